//! `podium run`: a throwaway cluster, its timeline and its exit code.

use crate::Alone;
use serde_json::json;
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
};

pub(crate) const TESTS: &[Alone] = &[
    ("podium run ends with 0 when all Pods succeeded, and leaves nothing", all_succeeded),
    ("podium run ends with 1 when a Pod failed", one_failed),
    ("Ctrl-C ends podium run and its Pods gracefully", ctrl_c_ends_it_gracefully),
    ("what a podium run that was killed has left goes with the next one", a_killed_run_is_cleaned_up),
    ("podium run ends with 124 when time is up", time_is_up),
];

/// `podium run` of one Pod with this script, in a directory where it leaves nothing.
fn command(dir: &Path, script: &str, timeout: &str) -> Command {
    let (tar, manifest) = (dir.join("busybox.tar"), dir.join("pod.yaml"));
    test_images::busybox(&tar, &[test_images::BUSYBOX], &test_images::ImageConfig::default()).unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 10,
        "containers": [{"name": "c", "image": test_images::BUSYBOX, "command": ["sh", "-c", script]}]}});
    std::fs::write(&manifest, pod.to_string()).unwrap();
    let mut command = Command::new(tests::podium_binary());
    command.arg("run").arg(&manifest).args(["--timeout", timeout, "--image"]).arg(&tar).env("TMPDIR", dir);
    command
}

/// Exit code and output; nothing but the test's own files may be left.
fn outcome(dir: &Path, output: &Output) -> (i32, String) {
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().flatten().map(|e| e.file_name()).collect();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(left.len(), 2, "only the test's own files are left: {left:?}\n{text}");
    (output.status.code().unwrap_or(-1), text)
}

fn run(script: &str, timeout: &str) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let output = command(dir.path(), script, timeout).output().unwrap();
    outcome(dir.path(), &output)
}

fn ctrl_c_ends_it_gracefully() {
    let dir = tempfile::tempdir().unwrap();
    let script = "trap 'echo finished in order; exit 0' TERM; echo it serves; while :; do sleep 0.1; done";
    let mut child = command(dir.path(), script, "60s").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut text = lines.find(|l| l.contains("| it serves")).expect("the Pod's log is shown");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    lines.for_each(|line| text += &line);
    let output = Output { stdout: text.into_bytes(), ..child.wait_with_output().unwrap() };
    let (code, text) = outcome(dir.path(), &output);
    assert!(text.contains("| finished in order"), "{text}");
    assert_eq!(code, 130, "{text}");
}

fn all_succeeded() {
    let (code, text) = run("echo it works", "60s");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("| it works") && text.contains("Succeeded"), "{text}");
}

fn one_failed() {
    let (code, text) = run("exit 3", "60s");
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("exited with code 3, Error"), "{text}");
}

fn time_is_up() {
    let (code, text) = run("sleep 1000", "3s");
    assert_eq!(code, 124, "{text}");
}

fn a_killed_run_is_cleaned_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = command(dir.path(), "echo it serves; sleep 1000", "60s").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.find(|l| l.contains("| it serves")).expect("the Pod's log is shown");
    child.kill().unwrap();
    child.wait().unwrap();
    let left = dir.path().join(format!("podium-run-{}", child.id()));
    assert!(left.is_dir(), "who is killed cleans up nothing");
    let output = command(dir.path(), "echo it works", "60s").output().unwrap();
    let (code, text) = outcome(dir.path(), &output);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(&format!("removed what an earlier run left in {}", left.display())), "{text}");
}
