//! Data directories that another user of the machine has prepared.

use crate::Alone;
use serde_json::json;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use tests::podium_binary;

pub(crate) const TESTS: &[Alone] = &[
    ("podium run uses no directory that another user has prepared", a_prepared_run_directory_is_not_used),
    ("a data directory of another user is refused by every command", a_foreign_data_directory_is_refused),
];

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// A directory of another user's, with a certificate authority of theirs.
fn prepare(dir: &Path) {
    fs::create_dir_all(dir.join("pki")).unwrap();
    fs::write(dir.join("pki/ca.crt"), "not an authority").unwrap();
    fs::write(dir.join("pki/ca.key"), "not a key").unwrap();
    for path in [dir.join("pki/ca.crt"), dir.join("pki/ca.key"), dir.join("pki"), dir.to_path_buf()] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

/// A directory like `/tmp`, in one that nobody else can reach.
fn shared_directory(dir: &Path) -> PathBuf {
    let shared = dir.join("tmp");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    shared
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn a_prepared_run_directory_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, manifest) = (shared_directory(dir.path()), dir.path().join("manifest.json"));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    fs::write(&manifest, map.to_string()).unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    // The shell's process becomes podium's, so that the name of its directory is known beforehand.
    let script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; exec \"$0\" run manifest.json --timeout 60s";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(podium_binary()).current_dir(dir.path()).env("TMPDIR", &shared);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let prepared = shared.join(format!("podium-run-{}", child.id()));
    prepare(&prepared);
    std::os::unix::fs::symlink(&victim, prepared.join("podium.lock")).unwrap();
    // What seems to be left by a run that is over: links, and directories of others.
    let left = shared.join("podium-run-4194399");
    prepare(&left);
    fs::write(left.join("podium.lock"), "").unwrap();
    std::os::unix::fs::symlink(dir.path(), shared.join("podium-run-4194398")).unwrap();
    fs::write(dir.path().join("podium.lock"), "").unwrap();
    fs::write(dir.path().join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = text(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(!text.contains("removed what an earlier run left") && !text.contains("could not remove"), "{text}");
    for dir in [&prepared, &left] {
        assert_eq!(fs::read_to_string(dir.join("pki/ca.crt")).unwrap(), "not an authority", "{text}");
        assert_eq!(fs::metadata(dir).unwrap().uid(), NOBODY);
        assert_eq!(fs::read_dir(dir).unwrap().count(), 2, "nothing was made there");
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(manifest.exists(), "a link was not followed");
}

fn a_foreign_data_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let shared = shared_directory(dir.path());
    let foreign = shared.join("data");
    prepare(&foreign);
    fs::write(foreign.join("podium.lock"), std::process::id().to_string()).unwrap();
    fs::write(foreign.join("runtime-endpoint"), "unix:///tmp/somebody.sock").unwrap();
    let link = shared.join("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(NOBODY), None).unwrap();
    for data_dir in [&foreign, &foreign.join("below"), &link.join("new")] {
        for args in [&["up", "--bind", "127.0.0.1:0"][..], &["down"], &["image", "ls"], &["explain", "p"]] {
            let output = Command::new(podium_binary())
                .args(args)
                .arg("--data-dir")
                .arg(data_dir)
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let text = text(&output);
            assert_eq!(output.status.code(), Some(2), "{args:?} {}: {text}", data_dir.display());
            assert!(text.contains("(owner ") && text.contains("its owner must be root"), "{text}");
        }
    }
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 3);
    assert!(!dir.path().join("new").exists());
}
