//! Volumes of PersistentVolumeClaims: mounts, waiting, access and cleanup.

use super::{Node, path};
use crate::fake_runtime::IMAGE;
use nix::mount::{MntFlags, umount2};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const UID: &str = "claim-uid";

/// Unmounts everything below a node's directory on drop.
struct Mounts(PathBuf);

impl Drop for Mounts {
    fn drop(&mut self) {
        let table = read("/proc/self/mountinfo");
        let all = table.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
        for mount in all.filter(|mount| mount.starts_with(&self.0)) {
            let _ = umount2(mount, MntFlags::MNT_DETACH);
        }
    }
}

fn started() -> (Node, Mounts) {
    let node = Node::started("");
    let dir = node.dir.path().to_owned();
    (node, Mounts(dir))
}

/// Creates a claim and its bound volume of the same name.
fn bound(node: &Node, name: &str, source: &Value) {
    volume(node, name, source, UID);
    claim(node, name, "Bound");
}

fn volume(node: &Node, name: &str, source: &Value, uid: &str) {
    let mut spec = source.clone();
    spec["claimRef"] = json!({"namespace": "x", "name": name, "uid": uid});
    node.api.put(&format!("api/v1/persistentvolumes/{name}"), json!({"metadata": {"name": name}, "spec": spec}));
}

fn claim(node: &Node, name: &str, phase: &str) {
    let claim = json!({"metadata": {"name": name, "namespace": "x", "uid": UID}, "spec": {"volumeName": name},
        "status": {"phase": phase}});
    node.api.put(&format!("api/v1/namespaces/x/persistentvolumeclaims/{name}"), claim);
}

/// Creates a Pod that mounts these volumes, each at `/` plus its name.
fn pod(node: &Node, name: &str, volumes: &Value, spec: Value) {
    let mounts = volumes.as_array().into_iter().flatten();
    let mounts: Vec<Value> = mounts
        .map(|v| json!({"name": v["name"], "mountPath": format!("/{}", v["name"].as_str().unwrap_or(""))}))
        .collect();
    let mut all = json!({"volumes": volumes, "container": {"volumeMounts": mounts}});
    for (key, value) in spec.as_object().into_iter().flatten() {
        match key.as_str() {
            "container" => value.as_object().into_iter().flatten().for_each(|(k, v)| all["container"][k] = v.clone()),
            _ => all[key] = value.clone(),
        }
    }
    node.pod(name, &all);
}

fn of_claim(name: &str) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": name}})
}

/// Returns the host path of a container's mount, and whether it is read-only.
fn mounted(node: &Node, pod: &str, at: &str) -> (PathBuf, bool) {
    let made = node.runtime.made(pod).pop().expect("a container");
    let mount = made.mounts.into_iter().find(|m| m.container_path == at).expect("a mount");
    (mount.host_path, mount.readonly)
}

#[expect(clippy::disallowed_methods, reason = "a test reads what it has made")]
pub(super) fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Creates a directory on the node with a file in it.
fn data(dir: &Path, name: &str) -> PathBuf {
    let data = dir.join(name);
    fs::create_dir(&data).expect("a directory");
    fs::write(data.join("f"), name).expect("a file");
    data
}

async fn until_event(node: &Node, words: &str) {
    node.api
        .wait_until(words, |api| {
            let events = api.list("api/v1/namespaces/x/events");
            let mut reported =
                events.iter().filter(|e| e["reason"] == "FailedMount").filter_map(|e| e["message"].as_str());
            reported.any(|message| message.starts_with(words))
        })
        .await;
}

async fn until_gone(node: &Node, name: &str) {
    node.api.delete(&path(name));
    node.api.wait_until("it is gone", |api| api.get(&path(name)).is_none()).await;
    let uid_dirs = || fs::read_dir(node.dir.path().join("pods")).map(Iterator::count).unwrap_or_default();
    node.api.wait_until("nothing of it is left", |_| uid_dirs() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn claim_volume_is_mounted_and_outlives_its_pod() {
    let dir = tempfile::tempdir().expect("a directory");
    let (host, local) = (data(dir.path(), "host"), data(dir.path(), "local"));
    let (mut node, _mounts) = started();
    bound(&node, "h", &json!({"hostPath": {"path": host, "type": "Directory"}}));
    bound(&node, "l", &json!({"local": {"path": local}, "volumeMode": "Filesystem"}));
    let mut readonly = of_claim("l");
    (readonly["name"], readonly["persistentVolumeClaim"]["readOnly"]) = (json!("r"), json!(true));
    pod(&node, "p", &json!([of_claim("h"), of_claim("l"), readonly]), json!({}));
    node.until_running("p").await;
    assert_eq!(mounted(&node, "p", "/h"), (host.clone(), false));
    let (l, r) = (mounted(&node, "p", "/l"), mounted(&node, "p", "/r"));
    assert_eq!((l.1, r.1), (false, true));
    assert_ne!(l.0, r.0);
    fs::write(l.0.join("g"), "new").expect("a file");
    assert_eq!((read(r.0.join("f")), read(local.join("g"))), ("local".to_owned(), "new".to_owned()));
    // The next kubelet finds the mounts although the claims cannot be read.
    for name in ["h", "l"] {
        node.api.remove(&format!("api/v1/namespaces/x/persistentvolumeclaims/{name}"));
    }
    node.stop().await;
    node.start();
    node.runtime.exit("p", 1, true);
    node.api.wait_until("it is started again", |_| node.runtime.made("p").len() == 2).await;
    assert_eq!((mounted(&node, "p", "/h").0, mounted(&node, "p", "/l")), (host.clone(), l.clone()));
    until_gone(&node, "p").await;
    assert!(!l.0.exists());
    assert_eq!(
        (read(host.join("f")), read(local.join("f")), read(local.join("g"))),
        ("host".to_owned(), "local".to_owned(), "new".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn pod_waits_for_its_claims_and_reports_the_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    let (node, _mounts) = started();
    let local = dir.path().join("later");
    pod(&node, "p", &json!([of_claim("c")]), json!({}));
    let unprocessed = |message: &str| {
        format!(
            "Unable to attach or mount volumes: unmounted volumes=[c], unattached volumes=[], \
             failed to process volumes=[c]: error processing PVC x/c: {message}"
        )
    };
    let missing = "failed to fetch PVC from API server: ";
    until_event(&node, &unprocessed(missing)).await;
    claim(&node, "c", "Pending");
    until_event(&node, &unprocessed("PVC is not bound")).await;
    claim(&node, "c", "Bound");
    until_event(&node, &unprocessed("failed to fetch PV c from API server: ")).await;
    volume(&node, "c", &json!({"local": {"path": local}}), "other");
    let other_claim = "found PV object c but its pv.Spec.ClaimRef.UID other does not point to claim.UID claim-uid";
    until_event(&node, &unprocessed(other_claim)).await;
    let elsewhere = json!({"required": {"nodeSelectorTerms": [{"matchFields":
        [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}]}});
    volume(&node, "c", &json!({"local": {"path": local}, "nodeAffinity": elsewhere}), UID);
    until_event(&node, "MountVolume.NodeAffinity check failed for volume \"c\" : no matching NodeSelectorTerms").await;
    volume(&node, "c", &json!({"nfs": {"server": "s", "path": "/"}}), UID);
    until_event(&node, "MountVolume.SetUp failed for volume \"c\" : volumes of type nfs are not supported yet").await;
    volume(&node, "c", &json!({"local": {"path": local}}), UID);
    let absent = format!("path {:?} does not exist", local.display().to_string());
    until_event(&node, &format!("MountVolume.NewMounter initialization failed for volume \"c\" : {absent}")).await;
    assert_eq!(node.status("p")["phase"], "Pending");
    data(dir.path(), "later");
    node.until_running("p").await;
    assert_eq!(read(mounted(&node, "p", "/c").0.join("f")), "later");
    until_gone(&node, "p").await;
    assert_eq!(read(local.join("f")), "later");
}

#[tokio::test(start_paused = true)]
async fn block_volumes_are_not_supported() {
    let dir = tempfile::tempdir().expect("a directory");
    let (node, _mounts) = started();
    bound(&node, "b", &json!({"local": {"path": dir.path()}, "volumeMode": "Block"}));
    bound(&node, "f", &json!({"local": {"path": dir.path()}, "volumeMode": "Filesystem"}));
    bound(&node, "m", &json!({"local": {"path": dir.path()}, "volumeMode": "Block"}));
    let (device, mount) = (json!({"devicePath": "/dev/x"}), json!({"mountPath": "/x"}));
    for (name, list, how, message) in [
        ("b", "volumeDevices", &device, "volumes of mode Block are not supported yet"),
        ("f", "volumeDevices", &device, "volume f has volumeMode Filesystem, but is specified in volumeDevices"),
        ("m", "volumeMounts", &mount, "volume m has volumeMode Block, but is specified in volumeMounts"),
    ] {
        let mut used = how.clone();
        used["name"] = json!(name);
        node.pod(name, &json!({"volumes": [of_claim(name)], "container": {list: [used]}}));
        let lists = format!("unmounted volumes=[{name}], unattached volumes=[], failed to process volumes=[{name}]");
        until_event(&node, &format!("Unable to attach or mount volumes: {lists}: {message}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn ephemeral_claim_must_be_owned_by_the_pod() {
    let dir = tempfile::tempdir().expect("a directory");
    let host = data(dir.path(), "host");
    let (node, _mounts) = started();
    bound(&node, "p-e", &json!({"hostPath": {"path": host}}));
    pod(&node, "p", &json!([{"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]), json!({}));
    until_event(
        &node,
        "Unable to attach or mount volumes: unmounted volumes=[e], unattached volumes=[], failed to process \
         volumes=[e]: PVC x/p-e was not created for pod x/p (pod is not owner)",
    )
    .await;
    let at = "api/v1/namespaces/x/persistentvolumeclaims/p-e";
    let mut claim = node.api.get(at).expect("a claim");
    let uid = node.api.get(&path("p")).expect("a Pod")["metadata"]["uid"].clone();
    claim["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true}]);
    node.api.put(at, claim);
    node.until_running("p").await;
    assert_eq!(mounted(&node, "p", "/e"), (host, false));
}

#[tokio::test(start_paused = true)]
async fn fs_group_applies_to_local_volumes_and_not_to_host_paths() {
    let dir = tempfile::tempdir().expect("a directory");
    let (host, local) = (data(dir.path(), "host"), data(dir.path(), "local"));
    let (node, _mounts) = started();
    bound(&node, "h", &json!({"hostPath": {"path": host}}));
    bound(&node, "l", &json!({"local": {"path": local}}));
    let group = |gid: u32| json!({"securityContext": {"fsGroup": gid}});
    let seen =
        |path: &Path| fs::metadata(path).map(|m| (m.gid(), m.permissions().mode() & 0o7777)).expect("it is there");
    let before = seen(&host);
    let mut readonly = of_claim("l");
    readonly["persistentVolumeClaim"]["readOnly"] = json!(true);
    pod(&node, "r", &json!([readonly]), group(4710));
    node.until_running("r").await;
    assert_eq!(seen(&local), before, "who only reads changes nothing");
    until_gone(&node, "r").await;
    pod(&node, "p", &json!([of_claim("h"), of_claim("l")]), group(4711));
    node.until_running("p").await;
    assert_eq!((seen(&local), seen(&local.join("f"))), ((4711, 0o2775), (4711, 0o664)));
    pod(&node, "q", &json!([of_claim("l")]), group(4712));
    node.until_running("q").await;
    assert_eq!((seen(&local).0, seen(&host)), (4711, before));
}

#[tokio::test(start_paused = true)]
async fn sub_path_does_not_escape_a_claim_volume() {
    let dir = tempfile::tempdir().expect("a directory");
    let (host, local) = (data(dir.path(), "host"), data(dir.path(), "local"));
    let (node, _mounts) = started();
    bound(&node, "h", &json!({"hostPath": {"path": host}}));
    bound(&node, "l", &json!({"local": {"path": local}}));
    for node_volume in [&host, &local] {
        fs::create_dir(node_volume.join("d")).expect("a directory");
        fs::write(node_volume.join("d/g"), "inner").expect("a file");
        symlink(dir.path(), node_volume.join("out")).expect("a link");
    }
    let mount = |name: &str, sub: &str| json!({"name": name, "mountPath": format!("/{name}"), "subPath": sub});
    let mounts = json!([mount("h", "d"), mount("l", "d")]);
    pod(&node, "p", &json!([of_claim("h"), of_claim("l")]), json!({"container": {"volumeMounts": mounts}}));
    node.until_running("p").await;
    for at in ["/h", "/l"] {
        assert_eq!(read(mounted(&node, "p", at).0.join("g")), "inner", "{at}");
    }
    for name in ["h", "l"] {
        let mounts = json!({"container": {"volumeMounts": [mount(name, "out/host")], "image": IMAGE}});
        pod(&node, &format!("out-{name}"), &json!([of_claim(name)]), mounts);
        node.until_status(&format!("out-{name}"), "is refused", |s| {
            s["containerStatuses"][0]["state"]["waiting"]["message"]
                .as_str()
                .is_some_and(|m| m.contains(&format!("subPath for volumeMount {name:?}")))
        })
        .await;
    }
    node.api.delete(&path("out-h"));
    node.api.delete(&path("out-l"));
    until_gone(&node, "p").await;
    for volume in [&host, &local] {
        assert_eq!(read(volume.join("d/g")), "inner", "{volume:?}");
    }
}

/// Returns the `/stats/summary` of the node's only Pod.
#[expect(clippy::disallowed_methods, reason = "a test reads what it has made")]
async fn summary(node: &Node) -> Value {
    let (mut own, other) = tokio::io::duplex(1 << 16);
    let kubelet = node.kubelet.clone().expect("it runs");
    let served = tokio::spawn(async move { kubelet.serve_stream(other).await });
    own.write_all(b"GET /stats/summary HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n").await.expect("a request");
    let mut text = String::new();
    own.read_to_string(&mut text).await.expect("an answer");
    served.await.expect("it ends");
    let body = text.split_once("\r\n\r\n").expect("a body").1;
    serde_json::from_str::<Value>(body).expect("figures")["pods"][0].clone()
}

#[tokio::test(start_paused = true)]
async fn claim_volume_is_not_counted_as_ephemeral_storage() {
    let dir = tempfile::tempdir().expect("a directory");
    let (host, local) = (data(dir.path(), "host"), data(dir.path(), "local"));
    for volume in [&host, &local] {
        fs::write(volume.join("large"), vec![1; 4 << 20]).expect("a file");
    }
    let (node, _mounts) = started();
    bound(&node, "h", &json!({"hostPath": {"path": host}}));
    bound(&node, "l", &json!({"local": {"path": local}}));
    pod(&node, "p", &json!([of_claim("h"), of_claim("l"), {"name": "e", "emptyDir": {}}]), json!({}));
    node.until_running("p").await;
    let found = summary(&node).await;
    let used = found["ephemeral-storage"]["usedBytes"].as_i64().expect("a figure");
    assert!(used < 1 << 20, "{used}");
    let volumes = found["volume"].as_array().expect("volumes");
    let shown: Vec<_> = volumes.iter().map(|v| (&v["name"], &v["pvcRef"])).collect();
    let claim = json!({"name": "l", "namespace": "x"});
    assert_eq!(shown, [(&json!("e"), &Value::Null), (&json!("l"), &claim)]);
    assert!(volumes[1]["usedBytes"].as_u64() >= Some(4 << 20), "{}", volumes[1]);
}

#[tokio::test(start_paused = true)]
async fn read_write_once_pod_volume_is_mounted_for_one_pod() {
    let dir = tempfile::tempdir().expect("a directory");
    let local = data(dir.path(), "local");
    let (node, _mounts) = started();
    bound(&node, "c", &json!({"local": {"path": local}, "accessModes": ["ReadWriteOncePod"]}));
    pod(&node, "first", &json!([of_claim("c")]), json!({}));
    node.until_running("first").await;
    pod(&node, "second", &json!([of_claim("c")]), json!({}));
    let message = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
    until_event(&node, &format!("MountVolume.SetUp failed for volume \"c\" : {message}")).await;
    node.api.delete(&path("first"));
    node.until_running("second").await;
}
