//! `podium run`: output, exit codes and cleanup.

use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
};
use tests::{PodBuilder, e2e_test};

/// Returns a Pod with this script.
fn pod(script: &str) -> PodBuilder {
    PodBuilder::new("p").restart_policy("Never").grace_period(60).script(script)
}

/// Returns the spec of such a Pod.
fn template(script: &str) -> Value {
    pod(script).build()["spec"].take()
}

/// Returns a `podium run` command for a Pod with this script, with files in a test directory.
fn command(dir: &Path, script: &str, timeout: &str) -> Command {
    command_of(dir, &pod(script).build(), timeout)
}

fn command_of(dir: &Path, object: &Value, timeout: &str) -> Command {
    let (tar, manifest) = (dir.join("busybox.tar"), dir.join("manifest.yaml"));
    test_images::busybox(&tar, &[test_images::BUSYBOX], &test_images::ImageConfig::default()).unwrap();
    std::fs::write(&manifest, object.to_string()).unwrap();
    let mut command = Command::new(tests::podium_binary());
    command.arg("run").arg(&manifest).args(["--timeout", timeout, "--image"]).arg(&tar).env("TMPDIR", dir);
    command.arg("--kubelet-config").arg(tests::write_kubelet_config(dir));
    command
}

/// Returns exit code and output, and checks that only the test's files are left.
fn outcome(dir: &Path, output: &Output) -> (i32, String) {
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().flatten().map(|e| e.file_name()).collect();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(left.len(), 3, "only the test's own files are left: {left:?}\n{text}");
    (output.status.code().unwrap_or(-1), text)
}

fn run(script: &str, timeout: &str) -> (i32, String) {
    run_of(&pod(script).build(), timeout)
}

fn run_of(object: &Value, timeout: &str) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let output = command_of(dir.path(), object, timeout).output().unwrap();
    outcome(dir.path(), &output)
}

/// Script that announces that it serves, and its orderly end.
const SERVE: &str = "trap 'echo finished in order; exit 0' TERM; echo it serves; while :; do sleep 0.1; done";

/// Returns the output up to the line in which a container says that it serves.
fn until_serving(lines: &mut impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for line in lines {
        text += &format!("{line}\n");
        if line.contains("| it serves") {
            return text;
        }
    }
    panic!("the Pod's log is not shown: {text}");
}

/// Runs an object, sends SIGINT to Podium when a container says that it serves, and returns exit code and output.
fn interrupt(object: &Value) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut child = command_of(dir.path(), object, "60s").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut text = until_serving(&mut lines);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    lines.for_each(|line| text += &format!("{line}\n"));
    let output = Output { stdout: text.into_bytes(), ..child.wait_with_output().unwrap() };
    outcome(dir.path(), &output)
}

#[e2e_test("Ctrl-C ends podium run and its Pods gracefully")]
fn ctrl_c_ends_run_gracefully() {
    let (code, text) = interrupt(&pod(SERVE).build());
    assert!(text.contains("| finished in order"), "{text}");
    assert_eq!(code, 130, "{text}");
}

#[e2e_test("podium run exits with 0 when all Pods succeeded and removes everything")]
fn run_exits_with_0_when_all_pods_succeeded() {
    let (code, text) = run("echo it works", "60s");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("| it works") && text.contains("Succeeded"), "{text}");
}

#[e2e_test("podium run exits with 1 when a Pod failed")]
fn run_exits_with_1_when_a_pod_failed() {
    let (code, text) = run("exit 3", "60s");
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("exited with code 3, Error"), "{text}");
}

#[e2e_test("podium run exits with 124 at its timeout")]
fn run_exits_with_124_at_timeout() {
    let (code, text) = run("sleep 1000", "3s");
    assert_eq!(code, 124, "{text}");
}

#[e2e_test("podium run cleans up after a killed podium run")]
fn run_cleans_up_after_a_killed_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = command(dir.path(), "echo it serves; sleep 1000", "60s").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.find(|l| l.contains("| it serves")).expect("the Pod's log is shown");
    child.kill().unwrap();
    child.wait().unwrap();
    let left = dir.path().join(format!("podium-run-{}", child.id()));
    assert!(left.is_dir(), "SIGKILL leaves the directory");
    let output = command(dir.path(), "echo it works", "60s").output().unwrap();
    let (code, text) = outcome(dir.path(), &output);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(&format!("removed the data directory of an earlier run: {}", left.display())), "{text}");
}

/// Returns whether a line has this object and this text.
fn has_line(text: &str, subject: &str, state: &str) -> bool {
    text.lines().any(|line| line.contains(&format!(" {subject} ")) && line.contains(state))
}

#[e2e_test("podium run ends restarting workloads in order")]
fn run_ends_restarting_workloads_in_order() {
    let mut spec = template(SERVE);
    spec["restartPolicy"] = "Always".into();
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}}});
    let (code, text) = interrupt(&deployment);
    assert_eq!(code, 130, "{text}");
    assert!(has_line(&text, "deployment/d", "[ScalingReplicaSet]"), "{text}");
    assert!(text.contains("| finished in order") && !text.contains("could not be ended"), "{text}");
}

#[e2e_test("podium run waits for Jobs and Pods with generated names")]
fn run_waits_for_jobs_and_generated_names() {
    let mut named = pod("echo it works").build();
    named["metadata"] = json!({"generateName": "p-"});
    let (code, text) = run_of(&named, "60s");
    assert_eq!(code, 0, "{text}");
    let job = |script| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"backoffLimit": 0, "template": {"spec": template(script)}}})
    };
    let (code, text) = run_of(&job("exit 0"), "60s");
    assert!(code == 0 && has_line(&text, "job/j", "Complete"), "{code} {text}");
    let (code, text) = run_of(&job("exit 3"), "60s");
    assert!(code == 1 && has_line(&text, "job/j", "[BackoffLimitExceeded]"), "{code} {text}");
}

#[e2e_test("podium run of manifests without workloads ends at once")]
fn run_without_workloads_ends_at_once() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let (code, text) = run_of(&map, "60s");
    assert!(code == 0 && text.contains("there is nothing to wait for"), "{code} {text}");
}

#[e2e_test("podium run refuses unknown fields and kinds")]
fn run_refuses_unknown_fields_and_kinds() {
    let wrong = pod("true").container(&json!({"bogus": 1})).build();
    let (code, text) = run_of(&wrong, "60s");
    assert!(code == 2 && text.contains("unknown field \"spec.containers[0].bogus\""), "{code} {text}");
    let strange = json!({"apiVersion": "example.com/v1", "kind": "Strange", "metadata": {"name": "c"}});
    let (code, text) = run_of(&strange, "60s");
    assert!(code == 2 && text.contains("the cluster serves no Strange of example.com/v1"), "{code} {text}");
}

#[e2e_test("podium run that fails to start leaves no files")]
fn failed_start_leaves_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = command_of(dir.path(), &pod("true").build(), "60s");
    let output = command.args(["--pod-cidr", "nonsense"]).output().unwrap();
    let (code, text) = outcome(dir.path(), &output);
    assert!(code != 0 && text.contains("--pod-cidr nonsense: must be an IPv4 CIDR"), "{code} {text}");
}

#[e2e_test("a second Ctrl-C ends podium run at once")]
fn second_ctrl_c_ends_run_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let stubborn = pod("trap '' TERM; echo it serves; while :; do sleep 0.1; done").grace_period(3600).build();
    let mut child = command_of(dir.path(), &stubborn, "600s").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut text = until_serving(&mut lines);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    let interrupt = || nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    interrupt();
    lines.find(|l| l.contains("[Killing]")).expect("the Pod is being ended");
    interrupt();
    lines.for_each(|line| text += &line);
    let output = Output { stdout: text.into_bytes(), ..child.wait_with_output().unwrap() };
    let (code, text) = outcome(dir.path(), &output);
    assert!(code == 130 && text.contains("interrupted again"), "{code} {text}");
}
