//! Containers that are started by their creation.

use crate::support::{ContainerSpec, Pod, can_run, eventually};
use keeper::Status;
use std::{fs, path::Path};

fn started(script: &str) -> ContainerSpec {
    let mut spec = ContainerSpec::shell(script);
    spec.options.starts_at_creation = true;
    spec
}

#[tokio::test]
async fn created_container_runs() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    for terminal in [false, true] {
        let mut spec = started("echo ready; sleep 1000");
        spec.options.terminal = terminal;
        let (id, pid) = pod.create(if terminal { "b" } else { "a" }, &spec).await;
        let states = pod.client.list_containers().await.unwrap();
        let state = states.iter().find(|state| state.id == id).unwrap();
        assert_eq!((state.status, state.pid), (Status::Running, Some(pid)));
        eventually("output", || pod.log(&id).len() == 1).await;
        pod.client.start_container(&id).await.unwrap();
        pod.client.kill_container(&id, 9, false).await.unwrap();
        assert_eq!(pod.exit(&id).await.exit_code, 137);
    }
}

#[tokio::test]
async fn short_process_has_output_and_exit() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    for number in 0..5 {
        let (id, _) = pod.create(&number.to_string(), &started("echo out; echo err >&2; exit 3")).await;
        assert_eq!(pod.exit(&id).await.exit_code, 3);
        let mut streams: Vec<String> = pod.log(&id).into_iter().map(|(stream, _)| stream).collect();
        streams.sort();
        assert_eq!(streams, ["stderr", "stdout"]);
        // The exit may precede the request to start it.
        pod.client.start_container(&id).await.unwrap();
        pod.client.delete_container(&id, false).await.unwrap();
        pod.client.start_container(&id).await.unwrap();
        pod.client.start_container("other").await.unwrap_err();
    }
}

#[tokio::test]
async fn failed_start_leaves_no_container() {
    if !can_run() {
        return;
    }
    let pod = Pod::start().await;
    let mut spec = started("true");
    spec.args = vec!["/no/such/program".to_owned()];
    let id = pod.id("a");
    pod.prepare(&id, &spec);
    let error = pod.client.create_container(&id).await.unwrap_err();
    assert!(error.to_string().contains("/no/such/program"), "{error}");
    assert_eq!(pod.client.list_containers().await.unwrap(), []);
    assert!(!pod.sandbox().join("state").join(&id).exists());
}

#[tokio::test]
async fn creation_leaves_mounts_and_directory_of_the_keeper() {
    if !can_run() {
        return;
    }
    let pod = Pod::with(keeper::NamespaceModes::default(), |config| config.runtime.refuses_hybrid_cgroups = true).await;
    let keeper = format!("/proc/{}", pod.keeper_pid());
    let namespace = || fs::read_link(Path::new(&keeper).join("ns/mnt")).unwrap();
    let unified = || fs::read_to_string("/proc/self/mountinfo").unwrap().contains("/sys/fs/cgroup/unified");
    let before = (namespace(), unified());
    pod.create("a", &started("sleep 1000")).await;
    assert_eq!((namespace(), unified()), before);
    assert_eq!(fs::read_link(Path::new(&keeper).join("cwd")).unwrap(), Path::new("/"));
}
