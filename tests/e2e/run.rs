//! `podium run`: a throwaway cluster, its timeline and its exit code.

use crate::Alone;
use std::process::Command;

pub(crate) const TESTS: &[Alone] = &[
    ("podium run ends with 0 when all Pods succeeded, and leaves nothing", all_succeeded),
    ("podium run ends with 1 when a Pod failed", one_failed),
    ("podium run ends with 124 when time is up", time_is_up),
];

/// Runs one Pod with this script; gives the exit code and the output.
fn run(script: &str, timeout: &str) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let (tar, manifest) = (dir.path().join("busybox.tar"), dir.path().join("pod.yaml"));
    test_images::busybox(&tar, &[test_images::BUSYBOX], &test_images::ImageConfig::default()).unwrap();
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  restartPolicy: Never\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: c\n    image: {}\n    command: [sh, -c, '{script}']\n",
        test_images::BUSYBOX
    );
    std::fs::write(&manifest, text).unwrap();
    let mut command = Command::new(tests::podium_binary());
    command.arg("run").arg(&manifest).args(["--timeout", timeout, "--image"]).arg(&tar).env("TMPDIR", dir.path());
    let output = command.output().unwrap();
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left.len(), 2, "only the test's own files are left: {left:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), text)
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
