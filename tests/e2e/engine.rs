//! Podium's own container engine: Pods without containerd.

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use std::{fs, path::Path};
use tempfile::TempDir;
use tests::{Cluster, ClusterBuilder, PodBuilder, Process, e2e_test, eventually};

/// Starts a cluster with the engine, and an image store of its own.
pub(crate) fn start() -> (Cluster, TempDir) {
    let images = tempfile::tempdir().unwrap();
    let store = images.path().display().to_string();
    let cluster = ClusterBuilder::default().env("PODIUM_IMAGE_STORE", &store).start();
    (cluster, images)
}

/// Returns the keepers of a cluster.
pub(crate) fn keepers(cluster: &Cluster) -> Vec<Process> {
    let dir = cluster.data_dir().display().to_string();
    Process::all()
        .filter(|process| process.command().starts_with("podium-keeper") && process.command().contains(&dir))
        .collect()
}

pub(crate) fn mounts_below(dir: &Path) -> usize {
    let dir = dir.display().to_string();
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().filter(|line| line.contains(&dir)).count()
}

#[e2e_test("the engine runs Pods without containerd")]
fn engine_runs_pods_without_containerd() {
    let (cluster, _images) = start();
    let kubectl = cluster.kubectl_in("default");
    kubectl
        .apply(&PodBuilder::new("fails").restart_policy("Never").script("echo out; echo err >&2; exit 3").to_string());
    kubectl.wait_value("pod/fails", "/status/phase", &json!("Failed"));
    let state = kubectl.value("pod/fails", "/status/containerStatuses/0/state/terminated");
    assert_eq!((&state["exitCode"], &state["reason"]), (&json!(3), &json!("Error")));
    assert_eq!(kubectl.run("logs fails").ok(), "out\nerr\n");

    kubectl.apply(&PodBuilder::new("missing").restart_policy("Never").command(&["/no-such-program"]).to_string());
    kubectl.wait_value("pod/missing", "/status/containerStatuses/0/state/terminated/reason", &json!("StartError"));

    let server = "trap 'exit 0' TERM; echo served > /index.html; httpd -p 8080 -h / & while :; do sleep 0.1; done";
    kubectl.apply(&PodBuilder::new("serves").grace_period(5).script(server).to_string());
    kubectl.wait_ready("serves");
    let ip = kubectl.value("pod/serves", "/status/podIP");
    let client = format!("wget -qO- http://{}:8080/", ip.as_str().unwrap());
    let reads = PodBuilder::new("reads").restart_policy("OnFailure").script(&client).to_string();
    kubectl.apply(&reads);
    kubectl.wait_value("pod/reads", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.run("logs reads").ok(), "served\n");
    let refused = kubectl.args(&["exec", "serves", "--", "sh", "-c", "echo here; exit 5"], "").failed();
    assert!(refused.contains("exit code 5"), "{refused}");
    assert_eq!(kubectl.args(&["exec", "-i", "serves", "--", "cat"], "input").ok(), "input");
    for keeper in keepers(&cluster) {
        // That of `reads` may have ended.
        let Ok(status) = fs::read_to_string(keeper.dir().join("status")) else { continue };
        assert!(status.contains("Threads:\t1\n"), "{}: {status}", keeper.command());
    }

    kubectl.run("delete pods --all --timeout=60s").ok();
    eventually("all keepers to end", || keepers(&cluster).is_empty());
    let pods = cluster.data_dir().join("engine/pods");
    eventually("the directories of all sandboxes to be removed", || fs::read_dir(&pods).unwrap().next().is_none());
    assert_eq!(mounts_below(&pods), 0);
}

#[e2e_test("containers of the engine survive a crash of Podium, and keep their exit codes")]
fn engine_containers_survive_crash() {
    let (mut cluster, _images) = start();
    let kubectl = cluster.kubectl_in("default");
    kubectl.apply(&PodBuilder::new("lives").grace_period(1).script("while :; do sleep 0.1; done").to_string());
    let marker = cluster.data_dir().with_file_name("ends");
    let ends = "until [ -e /markers/ends ]; do sleep 0.05; done; echo last words; exit 42";
    let dir = marker.parent().unwrap().to_owned();
    let volume = json!({"hostPath": {"path": dir, "type": "Directory"}});
    let ends = PodBuilder::new("ends")
        .restart_policy("Never")
        .volume("markers", &volume)
        .mount("markers", "/markers")
        .script(ends);
    kubectl.apply(&ends.to_string());
    kubectl.wait_ready("lives");
    kubectl.wait_ready("ends");
    let id = kubectl.value("pod/lives", "/status/containerStatuses/0/containerID");
    assert!(id.as_str().unwrap().starts_with("podium://"), "{id}");
    let record = |name: &str| {
        let uid = kubectl.value(&format!("pod/{name}"), "/metadata/uid");
        let uid = uid.as_str().unwrap().to_owned();
        let sandboxes = fs::read_dir(cluster.data_dir().join("engine/pods")).unwrap().map(|e| e.unwrap().path());
        sandboxes
            .filter(|dir| fs::read_to_string(dir.join("sandbox.json")).unwrap_or_default().contains(&uid))
            .map(|dir| dir.join("containers"))
            .next()
            .expect("a sandbox")
    };
    let containers = record("ends");
    cluster.stop_podium(Signal::SIGKILL);
    fs::write(&marker, "").unwrap();
    // The keeper records the exit while no Podium runs.
    eventually("the exit to be recorded", || {
        fs::read_dir(&containers).unwrap().any(|entry| entry.unwrap().path().join("exit.json").exists())
    });
    cluster.start_podium();
    kubectl.wait_value("pod/ends", "/status/phase", &json!("Failed"));
    assert_eq!(kubectl.value("pod/ends", "/status/containerStatuses/0/state/terminated/exitCode"), json!(42));
    assert_eq!(kubectl.run("logs ends").ok(), "last words\n");
    kubectl.wait_ready("lives");
    assert_eq!(kubectl.value("pod/lives", "/status/containerStatuses/0/containerID"), id);
    assert_eq!(kubectl.value("pod/lives", "/status/containerStatuses/0/restartCount"), json!(0));
}

#[e2e_test("nothing runs on without its keeper")]
fn containers_of_killed_keeper_are_killed() {
    let (cluster, _images) = start();
    let kubectl = cluster.kubectl_in("default");
    let script = "while :; do sleep 0.1; done";
    kubectl.apply(&PodBuilder::new("p").restart_policy("Never").grace_period(1).script(script).to_string());
    kubectl.wait_ready("p");
    let uid = kubectl.value("pod/p", "/metadata/uid").as_str().unwrap().to_owned();
    let [keeper] = keepers(&cluster)[..] else { panic!("expected one keeper") };
    kill(keeper.0, Signal::SIGKILL).unwrap();
    kubectl.wait_value("pod/p", "/status/phase", &json!("Failed"));
    let state = kubectl.value("pod/p", "/status/containerStatuses/0/state/terminated");
    assert_eq!((&state["exitCode"], &state["reason"]), (&json!(137), &json!("ContainerStatusUnknown")));
    eventually("the container's processes to end", || Process::of_pod(&uid).next().is_none());
    kubectl.run("delete pod p --timeout=60s").ok();
}

#[e2e_test("the engine imports the archives of the data directory at its start")]
fn engine_imports_archives_at_start() {
    let (mut cluster, _images) = start();
    cluster.stop_podium(Signal::SIGKILL);
    let dir = cluster.data_dir().join("images");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("bad.tar"), "no archive").unwrap();
    test_images::busybox(&dir.join("good.tar"), &["example.com/archived:1"], &test_images::ImageConfig::default())
        .unwrap();
    cluster.start_podium();
    let kubectl = cluster.kubectl_in("default");
    eventually("an Event about the bad archive", || {
        let events = kubectl
            .run("get events -n default --field-selector reason=FailedImageImport -o jsonpath={.items[*].message}")
            .ok();
        events.contains("bad.tar: the archive is corrupt")
    });
    let pod = PodBuilder::new("p").image("example.com/archived:1").restart_policy("Never").script("echo archived");
    kubectl.apply(&pod.to_string());
    kubectl.wait_value("pod/p", "/status/phase", &json!("Succeeded"));
}

#[e2e_test("image archives are imported beside the kubelet")]
fn image_archives_are_imported_beside_the_kubelet() {
    let (mut cluster, images) = start();
    let kubectl = cluster.kubectl_in("default");
    kubectl.apply(&PodBuilder::new("runs").grace_period(1).script("while :; do sleep 0.1; done").to_string());
    kubectl.wait_ready("runs");
    cluster.stop_podium(Signal::SIGTERM);
    let dir = cluster.data_dir().join("images");
    fs::create_dir(&dir).unwrap();
    test_images::busybox(&dir.join("a.tar"), &["example.com/archived:1"], &test_images::ImageConfig::default())
        .unwrap();
    // The import waits for the names of images, as if it were long.
    let names = fs::File::open(images.path().join("names.lock")).unwrap();
    names.lock().unwrap();
    cluster.start_podium();
    let kubectl = cluster.kubectl_in("default");
    let pod = PodBuilder::new("p").image("example.com/archived:1").restart_policy("Never").script("echo archived");
    kubectl.apply(&pod.container(&json!({"imagePullPolicy": "Never"})).to_string());
    let lease = || kubectl.run("get leases -n kube-node-lease -o jsonpath={.items[*].spec.renewTime}").ok();
    let waiting = "/status/containerStatuses/0/state/waiting/reason";
    kubectl.wait_value("pod/p", waiting, &json!("ContainerCreating"));
    let begin = lease();
    eventually("a heartbeat", || lease() != begin);
    let reason = kubectl.value("pod/p", waiting);
    assert_eq!(reason, json!("ContainerCreating"));
    assert_eq!(kubectl.args(&["exec", "runs", "--", "echo", "here"], "").ok(), "here\n");
    cluster.stop_podium(Signal::SIGTERM);
    cluster.start_podium();
    names.unlock().unwrap();
    let kubectl = cluster.kubectl_in("default");
    kubectl.wait_value("pod/p", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.value("pod/runs", "/status/containerStatuses/0/restartCount"), json!(0));
}

#[e2e_test("the image garbage collection of a cluster keeps what another one needs")]
fn image_gc_keeps_images_of_other_clusters() {
    let images = tempfile::tempdir().unwrap();
    let store = images.path().display().to_string();
    let builder = || ClusterBuilder::default().without_images().env("PODIUM_IMAGE_STORE", &store);
    let collects = json!({"imageMinimumGCAge": "1s", "imageMaximumGCAge": "2s"});
    let (keeps, collects) = (builder().start(), builder().kubelet_config(collects).start());
    let tar = images.path().join("image.tar");
    test_images::busybox(&tar, &[test_images::BUSYBOX], &test_images::ImageConfig::default()).unwrap();
    keeps.import(&tar);
    collects.import(&tar);
    let ls = |cluster: &Cluster| {
        let output = cluster.podium(&["image", "ls"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains(test_images::BUSYBOX)
    };
    assert!(ls(&collects));
    let kubectl = collects.kubectl_in("default");
    kubectl.apply(&PodBuilder::new("p").restart_policy("Never").script("true").to_string());
    kubectl.wait_value("pod/p", "/status/phase", &json!("Succeeded"));
    kubectl.run("delete pod p --timeout=90s").ok();
    tests::wait_for("the image to be collected", std::time::Duration::from_secs(60), || {
        if ls(&collects) { Err("the cluster has it".to_owned()) } else { Ok(()) }
    });
    assert!(ls(&keeps));
    let kubectl = keeps.kubectl_in("default");
    kubectl.apply(&PodBuilder::new("p").restart_policy("Never").script("true").to_string());
    kubectl.wait_value("pod/p", "/status/phase", &json!("Succeeded"));
}
