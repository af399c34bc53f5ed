//! A private D-Bus.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

/// A D-Bus daemon, stopped on drop.
pub(crate) struct Bus {
    daemon: Child,
    address: String,
    dir: tempfile::TempDir,
}

impl Bus {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = dir.path().join("bus.conf");
        let text = format!(
            "<busconfig><listen>unix:path={}</listen><policy context=\"default\">\
             <allow send_destination=\"*\"/><allow receive_sender=\"*\"/><allow own=\"*\"/></policy></busconfig>",
            dir.path().join("bus").display()
        );
        std::fs::write(&config, text).expect("a file");
        let mut command = Command::new("dbus-daemon");
        command.args(["--nofork", "--nopidfile", "--print-address"]).arg(format!("--config-file={}", config.display()));
        let mut daemon = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("dbus-daemon starts");
        let mut address = String::new();
        let stdout = daemon.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut address).expect("dbus-daemon prints its address");
        Self { daemon, address: address.trim().to_owned(), dir }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns a directory that is removed with the bus.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}
