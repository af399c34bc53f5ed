//! A subPath that changes while it is mounted: a directory of a volume is exchanged with a symbolic link out of it.

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};
use tests::{Cluster, Kubectl, PodBuilder, container, e2e_test, eventually, wait_for};

/// Containers that mount the subPath.
const CONTAINERS: usize = 24;
/// The file in the directory, and in the directory outside of the volume.
const MARKER: &str = "marker";

/// A directory outside of the volume, which no container may see.
struct Outside(tempfile::TempDir);

impl Outside {
    fn new() -> Self {
        let outside = Self(tempfile::tempdir().unwrap());
        fs::write(outside.0.path().join(MARKER), "outside\n").unwrap();
        outside
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}

/// Numbers of reads of the file by its path, which follow the link.
#[derive(Debug, Default)]
struct PathReads {
    inside: AtomicUsize,
    outside: AtomicUsize,
}

/// Exchanges the directory `sub` of a volume with a link as fast as possible, as a container of the Pod could (`renameat2`).
fn exchange(volume: &Path, is_ended: &AtomicBool, reads: &PathReads) {
    let (sub, link) = (volume.join("sub"), volume.join("link"));
    while !is_ended.load(Ordering::Relaxed) {
        renameat2(AT_FDCWD, &sub, AT_FDCWD, &link, RenameFlags::RENAME_EXCHANGE).unwrap();
        match fs::read_to_string(sub.join(MARKER)).unwrap().as_str() {
            "inside\n" => reads.inside.fetch_add(1, Ordering::Relaxed),
            _ => reads.outside.fetch_add(1, Ordering::Relaxed),
        };
    }
}

/// Ends the exchange, also when the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns a Pod whose containers print what they see, when `/v/go` exists. Every other one mounts a directory that does not
/// exist yet.
fn pod(outside: &Path) -> PodBuilder {
    let script = format!(
        "mkdir /v/sub; echo inside > /v/sub/{MARKER}; ln -s {} /v/link; touch /v/ready; \
         until [ -e /v/go ]; do usleep 10000; done",
        outside.display()
    );
    let mut prepares = container("prepares", &script);
    prepares["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let pod = PodBuilder::new("p").restart_policy("Never").grace_period(1).script("exec sleep 100000");
    let pod = pod.volume("v", &json!({"emptyDir": {}})).init_container(prepares);
    (0..CONTAINERS).fold(pod, |pod, index| {
        let sub_path = if is_new(index) { format!("sub/new-{index}") } else { "sub".to_owned() };
        let mut reader = container(&format!("c{index}"), "cat /seen/* 2> /dev/null; true");
        reader["volumeMounts"] = json!([{"name": "v", "mountPath": "/seen", "subPath": sub_path}]);
        pod.add_container(reader)
    })
}

fn is_new(index: usize) -> bool {
    index % 2 == 1
}

/// Waits until each container has run, or was refused. Returns the containers that have run, and whether one was refused.
fn wait_for_containers(kubectl: &Kubectl) -> (Vec<usize>, bool) {
    let mut was_refused = false;
    wait_for("all containers to run or to be refused", Duration::from_secs(120), || {
        let status = kubectl.value("pod/p", "/status");
        let states: BTreeMap<&str, &Value> = status["containerStatuses"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|container| Some((container["name"].as_str()?, &container["state"])))
            .collect();
        let state = |index: usize| states.get(format!("c{index}").as_str()).copied().unwrap_or(&Value::Null);
        let has_run = |index: &usize| state(*index)["terminated"]["exitCode"] == 0;
        let is_refused = |index: usize| state(index)["waiting"]["reason"] == "CreateContainerConfigError";
        let is_complete = (0..CONTAINERS).all(|index| has_run(&index) || is_refused(index));
        was_refused |= (0..CONTAINERS).any(is_refused);
        let ran: Vec<usize> = (0..CONTAINERS).filter(has_run).collect();
        if is_complete && !ran.is_empty() { Ok((ran, was_refused)) } else { Err(status.to_string()) }
    })
}

#[e2e_test("a subPath that is exchanged with a link while it is mounted stays inside")]
fn exchanged_sub_path_stays_in_its_volume(cluster: &Cluster) {
    let (kubectl, outside) = (cluster.kubectl(), Outside::new());
    kubectl.apply(&pod(outside.0.path()).to_string());
    let uid = kubectl.value("pod/p", "/metadata/uid");
    let volume = cluster.data_dir().join(format!("kubelet/pods/{}/volumes/v", uid.as_str().unwrap()));
    eventually("the volume to be prepared", || volume.join("ready").exists());
    let (is_ended, reads) = (AtomicBool::new(false), PathReads::default());
    let (ran, was_refused) = thread::scope(|scope| {
        scope.spawn(|| exchange(&volume, &is_ended, &reads));
        let _end = EndOnDrop(&is_ended);
        let numbers = || [&reads.inside, &reads.outside].map(|number| number.load(Ordering::Relaxed));
        eventually("the path to be exchanged", || numbers().iter().all(|number| *number > 0));
        fs::write(volume.join("go"), "").unwrap();
        wait_for_containers(&kubectl)
    });
    for index in ran {
        let expected = if is_new(index) { "" } else { "inside\n" };
        assert_eq!(kubectl.run(&format!("logs p -c c{index}")).ok(), expected, "c{index}");
    }
    assert_eq!(outside.files(), [MARKER], "the kubelet created directories outside of the volume");
    // The status may pass too quickly to be seen, and a Pod has only 25 Events at once.
    let has_event = || kubectl.events("p").into_iter().any(|(_, message)| message.contains("subPath"));
    assert!(was_refused || has_event(), "no container was refused");
}
