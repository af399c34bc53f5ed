//! The program of sandbox containers, run on this machine.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use bundle::{Architecture, pause_program};
use std::{
    fs::{self, Permissions},
    io,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    process::{Child, Command},
    time::{Duration, Instant},
};

/// A written program may be open in a process that another thread has just forked.
fn spawn(path: &std::path::Path) -> Child {
    loop {
        match Command::new(path).spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            child => return child.unwrap(),
        }
    }
}

/// Returns a field of `/proc/PID/status`.
fn field(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_default().trim().to_owned()
}

#[test]
fn program_waits_with_sigchld_ignored() {
    let Some(program) = pause_program(Architecture::default()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pause");
    fs::write(&path, program).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    let mut child = spawn(&path);
    let ignores_sigchld = |pid| u64::from_str_radix(&field(pid, "SigIgn"), 16).unwrap() & (1 << 16) != 0;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !(field(child.id(), "State").starts_with('S') && ignores_sigchld(child.id())) {
        assert!(Instant::now() < deadline, "{} {}", field(child.id(), "State"), field(child.id(), "SigIgn"));
        std::thread::park_timeout(Duration::from_millis(1));
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}
