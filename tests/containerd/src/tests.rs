//! A real containerd with a container, which needs root.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panicking")]

use super::*;

/// Returns processes, mounts, links and files of a containerd.
fn traces(dir: &Path, bridge: &str) -> Vec<String> {
    let name = dir.display().to_string();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains(&name)).map(str::to_owned).collect::<Vec<_>>();
    let processes = process::all(dir).into_iter().map(|id| format!("process {id}"));
    let link = Path::new("/sys/class/net").join(bridge);
    let paths = [dir, &link].map(Path::to_owned).into_iter().filter(|path| path.exists());
    mounts.into_iter().chain(processes).chain(paths.map(|path| path.display().to_string())).collect()
}

/// Runs a container of the sandbox image.
fn run_container(containerd: &Containerd, name: &str) {
    let mut ctr = program("ctr");
    ctr.arg("--address").arg(containerd.slot.socket()).args(["--namespace", "k8s.io", "run", "--detach"]);
    // The CRI has these settings for its own containers.
    ctr.args(["--cgroup", "", "--runc-root"]).arg(containerd.dir().join("runc"));
    let output = ctr.args([test_images::PAUSE, name]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn containers_survive_restart_and_end_with_the_fixture() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    let mut containerd = Containerd::start().unwrap();
    let (dir, bridge) = (containerd.dir().to_owned(), containerd.slot.bridge());
    run_container(&containerd, "one");
    let client = ["-c", "sleep 1000; :", "--runtime-endpoint", &containerd.endpoint()];
    let mut client = Command::new("sh").args(client).spawn().unwrap();
    let sockets = || cleanup::shim_sockets(&dir);
    let first = sockets();
    assert!(first.len() == 1 && first[0].exists(), "{first:?}");
    containerd.kill().unwrap();
    let survivors = process::all(&dir);
    assert!(survivors.len() >= 2, "a shim and its container: {survivors:?}");
    containerd.restart().unwrap();
    assert!(survivors.iter().all(|id| process::all(&dir).contains(id)));
    let another = Containerd::start().unwrap();
    assert_ne!(another.endpoint(), containerd.endpoint());
    drop(another);
    assert!(survivors.iter().all(|id| process::all(&dir).contains(id)), "another one's end changes nothing");
    drop(containerd);
    assert_eq!(traces(&dir, &bridge), [""; 0]);
    assert!(!first[0].exists());
    assert!(!client.wait().unwrap().success(), "a client is killed");
}
