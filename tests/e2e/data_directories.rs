//! Permissions of data directories, and directories of other users.

use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually, podium_binary};

/// UID of the user `nobody`.
const NOBODY: u32 = 65534;

/// Creates a data directory that another user owns, with their CA.
fn prepare(dir: &Path) {
    fs::create_dir_all(dir.join("pki")).unwrap();
    fs::write(dir.join("pki/ca.crt"), "not an authority").unwrap();
    fs::write(dir.join("pki/ca.key"), "not a key").unwrap();
    for path in [dir.join("pki/ca.crt"), dir.join("pki/ca.key"), dir.join("pki"), dir.to_path_buf()] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

/// Creates a directory like `/tmp`, inside one that no other user can reach.
fn shared_directory(dir: &Path) -> PathBuf {
    let shared = dir.join("tmp");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    shared
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[e2e_test("podium run uses no directory that another user created")]
fn run_directory_of_another_user_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, manifest) = (shared_directory(dir.path()), dir.path().join("manifest.json"));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    fs::write(&manifest, map.to_string()).unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    // The shell execs podium, so the name of its directory is known before.
    let script = "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; exec \"$0\" run manifest.json --timeout 60s";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(podium_binary()).current_dir(dir.path()).env("TMPDIR", &shared);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let prepared = shared.join(format!("podium-run-{}", child.id()));
    prepare(&prepared);
    std::os::unix::fs::symlink(&victim, prepared.join("podium.lock")).unwrap();
    // Entries that look like leftovers of an ended run: symlinks, and directories of other users.
    let left = shared.join("podium-run-4194399");
    prepare(&left);
    fs::write(left.join("podium.lock"), "").unwrap();
    std::os::unix::fs::symlink(dir.path(), shared.join("podium-run-4194398")).unwrap();
    fs::write(dir.path().join("podium.lock"), "").unwrap();
    fs::write(dir.path().join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = text(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        !text.contains("removed the data directory of an earlier run") && !text.contains("failed to remove"),
        "{text}"
    );
    for dir in [&prepared, &left] {
        assert_eq!(fs::read_to_string(dir.join("pki/ca.crt")).unwrap(), "not an authority", "{dir:?}: {text}");
        assert_eq!(fs::metadata(dir).unwrap().uid(), NOBODY, "{dir:?}");
        assert_eq!(fs::read_dir(dir).unwrap().count(), 2, "{dir:?}: nothing was made there");
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(manifest.exists(), "a symlink must not be followed");
}

#[e2e_test("every command refuses a data directory of another user")]
fn data_directory_of_another_user_is_refused() {
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
            assert!(
                text.contains("(owner ") && text.contains("its owner must be root"),
                "{args:?} {data_dir:?}: {text}"
            );
        }
    }
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 3);
    assert!(!dir.path().join("new").exists());
}

/// Returns whether other users may read a path: files for containers, and logs.
fn is_for_others(path: &Path) -> bool {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    match parts.as_slice() {
        // Below private directories. The root of a container is for all of its users.
        ["engine", "pods", _, "hostname" | "resolv.conf"] | ["engine", "pods", _, "shm", ..] => true,
        ["engine", "pods", _, "containers", _, "upper" | "rootfs" | "images", _, ..] => true,
        ["engine", "pods", _, "containers", _, "upper" | "rootfs"] => true,
        ["volumes", _, ..] | ["kubelet", "logs", ..] => true,
        ["kubelet", "pods", _, "volumes" | "volume-subpaths", _, ..] => true,
        ["kubelet", "pods", _, "etc-hosts"] => true,
        ["kubelet", "pods", _, "containers", _, file] => file.ends_with(".termination"),
        _ => false,
    }
}

/// Collects files and directories with permissions for group or others, and returns the number of entries.
fn open_to_others(root: &Path, dir: &Path, found: &mut Vec<String>) -> usize {
    let mut count = 0;
    // It may have been removed.
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        count += 1;
        let below = path.strip_prefix(root).unwrap();
        // Access to a socket is limited by its directory.
        let is_checked = metadata.is_dir() || metadata.is_file();
        if is_checked && !is_for_others(below) && metadata.mode() & 0o077 != 0 {
            found.push(format!("{:o} {}", metadata.mode() & 0o7777, below.display()));
        }
        if metadata.is_dir() && !is_for_others(below) {
            count += open_to_others(root, &path, found);
        }
    }
    count
}

/// Script of a non-root container that reads its volumes, hosts and resolv.conf, and writes to its emptyDir.
const READER: &str = "cat /config/a/b /secret/s && cat /etc/hosts /etc/resolv.conf > /dev/null && echo x > /empty/f && \
                      echo x > /dev/termination-log && id -u; sleep 100000";

#[e2e_test("a data directory is private, and its volumes are accessible")]
fn data_directory_is_private_but_volumes_are_not() {
    let mut cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    let pod = PodBuilder::new("p")
        .script(READER)
        .container(&json!({"securityContext": {"runAsUser": 1000, "runAsGroup": 1000}}))
        .volume("config", &json!({"configMap": {"name": "c", "items": [{"key": "k", "path": "a/b"}]}}))
        .mount("config", "/config")
        .volume("secret", &json!({"secret": {"secretName": "s"}}))
        .mount("secret", "/secret")
        .volume("empty", &json!({"emptyDir": {}}))
        .mount("empty", "/empty");
    for object in [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "configured "}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"s": "secret "}}),
        pod.build(),
    ] {
        kubectl.apply(&object.to_string());
    }
    kubectl.wait_ready("p");
    eventually("the container to read its volumes", || {
        kubectl.run("logs p").is_ok_and(|output| output == "configured secret 1000\n")
    });
    let check = |dir: &Path| {
        let mut found = Vec::new();
        let count = open_to_others(dir, dir, &mut found);
        assert!(found.is_empty() && count > 50, "{count}: {found:#?}");
    };
    check(&cluster.data_dir());
    // The files of a second start.
    cluster.stop_podium(nix::sys::signal::Signal::SIGTERM);
    cluster.start_podium();
    check(&cluster.data_dir());
}

#[e2e_test("the admin certificate is the same after a restart")]
fn admin_certificate_is_kept_after_restart() {
    let mut cluster = Cluster::start(&[]);
    let read = |path: PathBuf| -> Value { serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap() };
    let first = read(cluster.kubeconfig());
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.kubeconfig");
    fs::copy(cluster.kubeconfig(), &copy).unwrap();
    cluster.stop_podium(nix::sys::signal::Signal::SIGTERM);
    cluster.start_podium();
    let second = read(cluster.kubeconfig());
    assert_eq!(first["users"], second["users"]);
    // The port differs, because the test binds port 0.
    let server = second["clusters"][0]["cluster"]["server"].as_str().unwrap();
    let printed = Kubectl::new(copy, "default").run(&format!("auth whoami --server={server}")).ok();
    assert!(printed.contains("kubernetes-admin") && printed.contains("system:masters"), "{printed}");
}
