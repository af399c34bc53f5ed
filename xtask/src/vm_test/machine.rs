//! A virtual machine of QEMU, whose serial console is relayed.

use super::{
    init::{BOOTED, EXITED},
    systemd,
};
use anyhow::{Context, Result, bail};
use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

/// Emulated processors are slower, so that the tests must wait longer.
const EMULATION_FACTOR: u32 = 8;

/// What executes the machine's instructions.
#[derive(Debug, Clone, Copy)]
pub(super) enum Accelerator {
    Kvm,
    Emulation,
}

/// A running machine, killed on drop.
pub(super) struct Machine {
    process: Child,
    lines: Receiver<String>,
}

impl Machine {
    /// Starts a machine, and waits until its first program runs. The console is appended to the file `log`.
    ///
    /// # Errors
    /// When that does not happen until the deadline.
    pub(super) fn boot(
        accelerator: Accelerator,
        kernel: &Path,
        disk: &Path,
        log: &Path,
        deadline: Duration,
    ) -> Result<Self> {
        let (options, factor): (&[&str], u32) = match accelerator {
            // Some hypervisors refuse to set the register of this feature.
            Accelerator::Kvm => (&["-accel", "kvm", "-cpu", "host,arch-capabilities=off"], 1),
            Accelerator::Emulation => (&["-accel", "tcg,thread=multi", "-cpu", "max"], EMULATION_FACTOR),
        };
        let arguments = format!(
            "console=ttyS0 panic=-1 quiet loglevel=2 apparmor=1 security=apparmor root=/dev/nvme0n1 rootfstype=ext4 rw init=/init \
             PODIUM_TEST_TIMEOUT_FACTOR={factor}{}",
            forwarded_variables()
        );
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-machine", "q35", "-smp", "2", "-m", "3G", "-nodefaults", "-nographic", "-no-reboot"]);
        qemu.args(["-serial", "stdio", "-nic", "none"]).args(options);
        // Writes go to a temporary file beside the image: the next attempt to boot starts with the same disk.
        qemu.env("TMPDIR", disk.parent().unwrap_or(disk));
        qemu.arg("-drive").arg(format!("if=none,id=root,format=raw,snapshot=on,cache=unsafe,file={}", disk.display()));
        qemu.args(["-device", "nvme,drive=root,serial=root", "-append", &arguments]).arg("-kernel").arg(kernel);
        let mut process = qemu.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("qemu-system-x86_64")?;
        let console = process.stdout.take().context("QEMU has no console")?;
        let log = File::create(log).with_context(|| log.display().to_string())?;
        let (sender, lines) = channel();
        thread::spawn(move || relay(console, log, &sender));
        let machine = Self { process, lines };
        machine.wait_for_line(deadline, |line| line.contains(BOOTED).then_some(()))?;
        Ok(machine)
    }

    /// Relays the console until the tests have ended, and returns their exit code.
    ///
    /// # Errors
    /// When that does not happen until the deadline.
    pub(super) fn wait(self, deadline: Duration) -> Result<i32> {
        self.wait_for_line(deadline, |line| line.trim().strip_prefix(EXITED)?.trim().parse().ok())
    }

    fn wait_for_line<T>(&self, deadline: Duration, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let start = Instant::now();
        loop {
            let Ok(line) = self.lines.recv_timeout(deadline.saturating_sub(start.elapsed())) else {
                bail!("the virtual machine ended, or was not ready within {} s", deadline.as_secs());
            };
            println!("{line}");
            if let Some(found) = find(&line) {
                return Ok(found);
            }
        }
    }
}

/// Returns the options of the kernel that set the variables of OCI runtime and init system, if `cargo xtask` has them. The kernel
/// passes options that it does not know to the first program.
fn forwarded_variables() -> String {
    let variables = ["PODIUM_DEFAULT_RUNTIME", systemd::INIT];
    variables.iter().filter_map(|name| Some(format!(" {name}={}", std::env::var(name).ok()?))).collect()
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends each line of the console, and writes it to the log.
fn relay(console: ChildStdout, mut log: File, lines: &Sender<String>) {
    let mut console = BufReader::new(console);
    let mut line = Vec::new();
    while console.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let _ = log.write_all(&line);
        // The firmware clears the screen.
        let text = String::from_utf8_lossy(&line).replace(|c: char| c.is_control() && c != '\t', "");
        line.clear();
        if lines.send(text).is_err() {
            return;
        }
    }
}
