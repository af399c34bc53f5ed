//! Encryption at rest and key rotation.

use nix::sys::signal::Signal;
use serde_json::json;
use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};
use tests::{Cluster, ClusterBuilder, Kubectl, e2e_test};

/// Secret values in plain text, and in base64 as in the object.
const OLD: (&str, &str) = ("plain-0c7d41aa-before", "cGxhaW4tMGM3ZDQxYWEtYmVmb3Jl");
const NEW: (&str, &str) = ("plain-93be05f2-behind", "cGxhaW4tOTNiZTA1ZjItYmVoaW5k");
const KEY_1: &str = "QUVTQ0JDLWtleS1vZi1hLXRlc3QtMzItYnl0ZXMtMDE=";
const KEY_2: &str = "U0VDUkVUQk9YLWtleS1vZi1hLXRlc3QtMzItYnl0ZXM=";
const AES: &str = "k8s:enc:aescbc:v1:key1:";
const BOX: &str = "k8s:enc:secretbox:v1:key2:";

fn configure(path: &Path, providers: &[&str]) {
    let all = [
        ("aescbc", json!({"aescbc": {"keys": [{"name": "key1", "secret": KEY_1}]}})),
        ("secretbox", json!({"secretbox": {"keys": [{"name": "key2", "secret": KEY_2}]}})),
        ("identity", json!({"identity": {}})),
    ];
    let provider = |name: &&str| all.iter().find(|(known, _)| known == name).map(|(_, provider)| provider);
    let providers: Vec<_> = providers.iter().filter_map(provider).collect();
    let configuration = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": providers}]});
    fs::write(path, configuration.to_string()).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Lists the files of the data directory that contain a text.
fn files_with(cluster: &Cluster, text: &str) -> Vec<String> {
    let mut grep = Command::new("grep");
    grep.args(["-r", "-l", "-a", "-F", "-D", "skip", "-e", text]).arg(cluster.data_dir());
    let found = grep.output().unwrap();
    String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect()
}

#[track_caller]
fn check_absent(cluster: &Cluster, texts: &[&str]) {
    for text in texts {
        assert_eq!(files_with(cluster, text), [""; 0], "{text} is on the disk");
    }
}

/// Rewrites all Secrets, as the documentation recommends.
fn rewrite(kubectl: &Kubectl) {
    let all = kubectl.run("get secrets --all-namespaces -o json").ok();
    kubectl.args(&["replace", "-f", "-"], &all).ok();
}

fn restart(cluster: &mut Cluster, path: &Path, providers: &[&str], signal: Signal) {
    cluster.stop_podium(signal);
    configure(path, providers);
    cluster.start_api();
}

fn create(kubectl: &Kubectl, name: &str, value: &str) {
    kubectl.run(&format!("create secret generic {name} --from-literal=k={value}")).ok();
}

#[e2e_test("Secrets are encrypted at rest, through key rotation and SIGKILL")]
fn secrets_are_encrypted_through_rotation_and_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("encryption.yaml");
    configure(&path, &["identity"]);
    let flag = ["--encryption-provider-config", path.to_str().unwrap()];
    let mut cluster = ClusterBuilder::default().args(&flag).without_images().start();
    let kubectl = cluster.kubectl_in("default");
    create(&kubectl, "old", OLD.0);
    assert!(!files_with(&cluster, OLD.1).is_empty(), "the identity provider does not encrypt");

    restart(&mut cluster, &path, &["aescbc", "identity"], Signal::SIGTERM);
    let kubectl = cluster.kubectl_in("default");
    create(&kubectl, "new", NEW.0);
    check_absent(&cluster, &[NEW.0, NEW.1]);
    assert!(!files_with(&cluster, AES).is_empty());
    rewrite(&kubectl);
    check_absent(&cluster, &[OLD.0, OLD.1, NEW.0, NEW.1]);

    restart(&mut cluster, &path, &["secretbox", "aescbc", "identity"], Signal::SIGTERM);
    let kubectl = cluster.kubectl_in("default");
    assert_eq!(kubectl.value("secret/old", "/data/k"), json!(OLD.1));
    rewrite(&kubectl);
    check_absent(&cluster, &[AES, OLD.1, NEW.1]);

    restart(&mut cluster, &path, &["secretbox"], Signal::SIGKILL);
    let kubectl = cluster.kubectl_in("default");
    for (name, value) in [("secret/old", OLD.1), ("secret/new", NEW.1)] {
        assert_eq!(kubectl.value(name, "/data/k"), json!(value), "{name}");
    }
    assert!(!files_with(&cluster, BOX).is_empty());
    check_absent(&cluster, &[OLD.0, OLD.1, NEW.0, NEW.1, KEY_1, KEY_2]);
    cluster.stop_podium(Signal::SIGKILL);
    refuses_to_start_without_the_key(&cluster, &path, &flag);
    configure(&path, &["secretbox"]);
    cluster.start_api();
    assert_eq!(cluster.kubectl_in("default").value("secret/old", "/data/k"), json!(OLD.1));
    assert!(!cluster.log().contains(KEY_1) && !cluster.log().contains(KEY_2));
}

fn refuses_to_start_without_the_key(cluster: &Cluster, path: &Path, flag: &[&str; 2]) {
    configure(path, &["aescbc", "identity"]);
    let with = ["up", "--bind", "127.0.0.1:0", flag[0], flag[1]];
    for args in [&with[..], &with[..3]] {
        let refused = cluster.podium(args).output().unwrap();
        let text = String::from_utf8_lossy(&refused.stderr);
        let named = ["secrets/default/old: ", "secrets/default/new: ", BOX, "--encryption-provider-config"];
        assert!(!refused.status.success() && named.iter().all(|part| text.contains(part)), "{args:?}: {text}");
        assert!(!text.contains(KEY_1) && !text.contains(KEY_2), "{args:?}: {text}");
    }
}
