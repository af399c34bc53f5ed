//! `cargo xtask vm-test`: end-to-end tests in a virtual machine with Debian's kernel and cgroup v2.
//!
//! Podium runs its containers with its own engine there. The machine has no network, and all of its files are below
//! `vm-test` of the target directory.

mod init;
mod kernel;
mod machine;
mod root_image;
mod systemd;

use crate::{
    setup,
    step::{self, output_of},
};
use anyhow::{Context, Result, bail};
use machine::{Accelerator, Machine};
use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// The tests of a run without a filter: what depends on cgroups, the kernel or the container engine.
const TESTS: &[&str] = &[
    "the engine runs Pods without containerd",
    "nothing runs on without its keeper",
    "Pods have cgroups by QoS class, which are removed with them",
    "resource limits are set in the container's cgroup",
    "a container that exceeds its memory limit is OOMKilled",
    "an OOM-killed container reports OOMKilled and 137",
    "all processes of a container are OOM-killed with cgroup v2",
    "a Pod has at most podPidsLimit processes",
    "a container killed by SIGKILL is not reported as OOMKilled",
    "a resize changes cgroups without a restart",
    "a resize does not lower the memory limit below current usage",
    "exec carries stdout, stderr and exit codes",
    "liveness failure restarts the container after the threshold",
    "a timed-out exec probe ends with all its child processes",
    "a node port answers at the node's address and at 127.0.0.1",
    "containers survive a restart of Podium and are adopted",
    "memory pressure evicts Pods and rejects BestEffort Pods",
    "kubectl top shows resource usage, after a restart too",
    "a LoadBalancer Service gets an address that Pods and node reach",
    "AppArmor profiles are enforced, or the Pod is rejected without AppArmor",
    "the default AppArmor profile denies changes of the node",
    "confined containers have confined execs and hooks, and end at signals",
    "confined containers of a Pod signal each other, and not the node",
    "a Localhost AppArmor profile applies when it is loaded",
];

/// Deadline of the whole run in the machine.
const DEADLINE: Duration = Duration::from_secs(3600);
/// Time in which the machine starts its first program. A nested KVM may hang for ever.
const BOOT_DEADLINE: Duration = Duration::from_secs(20);
/// The same without KVM.
const EMULATED_BOOT_DEADLINE: Duration = Duration::from_secs(180);

/// Paths that this task makes.
struct Layout {
    dir: PathBuf,
}

impl Layout {
    fn kernel_dir(&self) -> PathBuf {
        self.dir.join("kernel")
    }

    fn root_dir(&self) -> PathBuf {
        self.dir.join("root")
    }

    fn image(&self) -> PathBuf {
        self.dir.join("root.ext4")
    }

    fn log(&self) -> PathBuf {
        self.dir.join("console.log")
    }
}

/// Builds the machine, and runs the tests in it: those of [`TESTS`] or of [`systemd::TESTS`], or all that match.
///
/// # Errors
/// When the machine cannot be built or does not boot, when a test fails, or at the deadline.
pub(crate) fn run(filter: Option<&str>) -> Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("the virtual machine is implemented for x86_64 only");
    }
    let layout = Layout { dir: step::target_dir().join("vm-test") };
    std::fs::create_dir_all(&layout.dir).with_context(|| layout.dir.display().to_string())?;
    let path = setup::path_with(&setup::run_for_vm()?);
    let kernel = kernel::fetch(&layout.kernel_dir())?;
    let programs = build()?;
    let init = std::env::var(systemd::INIT).ok();
    let selection = selection(filter, init.as_deref());
    if !has_tests(&programs.tests, &layout.dir, &selection)? {
        bail!("no end-to-end test has {:?} in its name", filter.unwrap_or_default());
    }
    root_image::build(&layout.root_dir(), &layout.image(), &kernel, &programs, &path, &selection)?;
    let (start, machine) = (Instant::now(), boot(&layout, &kernel)?);
    let status = machine.wait(DEADLINE);
    println!("==> {:>5} s  in the virtual machine", start.elapsed().as_secs());
    match status? {
        0 => Ok(()),
        code => bail!("tests failed in the virtual machine with exit code {code}; see {}", layout.log().display()),
    }
}

/// Boots with KVM if that works, else with an emulated processor.
fn boot(layout: &Layout, kernel: &kernel::Kernel) -> Result<Machine> {
    if Path::new("/dev/kvm").exists() {
        println!("==> boot with KVM");
        match Machine::boot(Accelerator::Kvm, &kernel.image, &layout.image(), &layout.log(), BOOT_DEADLINE) {
            Ok(machine) => return Ok(machine),
            Err(error) => println!("KVM does not work here: {error:#}"),
        }
    }
    println!("==> boot with an emulated processor");
    let accelerator = Accelerator::Emulation;
    Machine::boot(accelerator, &kernel.image, &layout.image(), &layout.log(), EMULATED_BOOT_DEADLINE)
}

/// Programs of this repository.
struct Programs {
    podium: PathBuf,
    tests: PathBuf,
}

/// Builds Podium and its end-to-end tests.
fn build() -> Result<Programs> {
    step::run("build Podium", &mut step::cargo(&["build", "--package", "podium"]))?;
    println!("==> build the end-to-end tests");
    let args = ["test", "--package", "tests", "--test", "e2e", "--no-run", "--message-format=json"];
    let output = step::cargo(&args).stderr(std::process::Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("the end-to-end tests do not compile");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let tests = text.lines().filter_map(executable).next_back().context("cargo reported no executable of the tests")?;
    Ok(Programs { podium: step::target_dir().join("debug/podium"), tests })
}

/// Returns the lines of the file that selects tests: the list of the init system, or a part of the names.
fn selection(filter: Option<&str>, init: Option<&str>) -> String {
    let tests = if init == Some("systemd") { systemd::TESTS } else { TESTS };
    filter.map_or_else(|| tests.iter().map(|name| format!("={name}\n")).collect(), |filter| format!("{filter}\n"))
}

/// Returns whether the program has tests that are selected. An empty run would succeed.
fn has_tests(program: &Path, dir: &Path, selection: &str) -> Result<bool> {
    let file = dir.join("tests.txt");
    std::fs::write(&file, selection).with_context(|| file.display().to_string())?;
    let list = output_of(Command::new(program).arg("--list").env("PODIUM_E2E_TESTS", &file))?;
    Ok(list.lines().any(|line| line.ends_with(": test")))
}

/// Returns the path in one of cargo's messages about the end-to-end tests.
fn executable(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let is_tests = message.pointer("/target/name").is_some_and(|name| name == "e2e");
    message.get("executable")?.as_str().filter(|_| is_tests).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_of_the_tests_is_found_in_cargos_messages() {
        let artifact = |name: &str, path: &str| format!(r#"{{"target":{{"name":"{name}"}},"executable":{path}}}"#);
        assert_eq!(executable(&artifact("e2e", "\"/t/e2e-1\"")), Some("/t/e2e-1".into()));
        assert_eq!(executable(&artifact("e2e", "null")), None);
        assert_eq!(executable(&artifact("probe_server", "\"/t/p\"")), None);
        assert_eq!(executable("warning: text"), None);
    }

    #[test]
    fn selection_has_the_filter_or_the_list() {
        assert_eq!(selection(Some("a node"), None), "a node\n");
        assert!(selection(None, None).starts_with("=the engine runs Pods without containerd\n"));
        assert_eq!(selection(None, None).lines().count(), TESTS.len());
        assert_eq!(selection(None, Some("systemd")).lines().count(), systemd::TESTS.len());
    }

    #[test]
    fn program_without_selected_tests_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("source"), dir.path().join("tests"));
        let script = "#!/bin/sh\n[ \"$*\" = --list ] && sed -n 's/^known.*/&: test/p' \"$PODIUM_E2E_TESTS\"\n";
        std::fs::write(&source, script).unwrap();
        // Written by another process, so that no child of another test holds a descriptor of it ("text file busy").
        output_of(Command::new("cp").args([&source, &program])).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(has_tests(&program, dir.path(), "known\n").unwrap());
        assert!(!has_tests(&program, dir.path(), "unknown\n").unwrap());
    }

    #[test]
    fn listed_tests_exist() {
        let dir = step::root().join("tests/e2e");
        let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        let sources: String = files.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        for name in TESTS.iter().chain(systemd::TESTS) {
            assert!(sources.contains(&format!("#[e2e_test(\"{name}\")]")), "{name}");
        }
    }
}
