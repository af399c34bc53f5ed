//! Service account tokens in volumes: requests, caching and refresh, on a paused clock.
#![expect(clippy::expect_used, reason = "a test may panic")]

#[allow(dead_code, reason = "the other tests use the rest of it")]
mod fake_runtime;

use fake_api::FakeApi;
use fake_runtime::{FakeRuntime, IMAGE};
use jiff::Timestamp;
use kubelet::{Clock, Kubelet, KubeletConfiguration, Options};
use lifecycle::NodePolicy;
use serde_json::{Value, json};
use std::{
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::CancellationToken;

const POD: &str = "api/v1/namespaces/x/pods/p";

struct Node {
    api: FakeApi,
    runtime: FakeRuntime,
    clock: Clock,
    dir: tempfile::TempDir,
}

/// Unmounts volumes, because a directory with mounts cannot be removed.
impl Drop for Node {
    #[expect(clippy::disallowed_methods, reason = "a test reads what it has made")]
    fn drop(&mut self) {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for at in mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(1))
            .filter(|at| Path::new(at).starts_with(self.dir.path()))
        {
            let _ = nix::mount::umount(at);
        }
    }
}

impl Node {
    fn new() -> Self {
        let clock = Clock::starting_at(Timestamp::from_second(1_800_000_000).expect("a time"));
        let runtime = FakeRuntime::new(clock.clone());
        Self { api: FakeApi::new(), runtime, clock, dir: tempfile::tempdir().expect("a directory") }
    }

    /// Starts a kubelet.
    fn start(&self) -> (CancellationToken, tokio::task::JoinHandle<()>) {
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupsPerQOS: false\nenforceNodeAllocatable: []\nevictionHard: {}\n";
        let options = Options {
            node_name: "n".to_owned(),
            root_dir: self.dir.path().to_owned(),
            node_ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
            pod_cidr: None,
            policy: NodePolicy::default(),
            config: KubeletConfiguration::parse(text).expect("a configuration"),
            pod_rules: |_, _| Ok(()),
            random: 7,
            home: None,
            credential_providers: Arc::default(),
            port: 0,
            clock: self.clock.clone(),
        };
        let stop = CancellationToken::new();
        let kubelet = Kubelet::new(options, self.api.client(), Arc::new(self.runtime.clone()), stop.clone());
        (stop, tokio::spawn(async move { kubelet.run().await }))
    }

    /// Runs a Pod with a token volume, and returns the path of the token.
    async fn pod(&self, spec: &Value) -> PathBuf {
        let token = json!({"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "a"}});
        let container = json!({"name": "c", "image": IMAGE, "volumeMounts": [{"name": "t", "mountPath": "/t"}]});
        let mut pod = json!({"metadata": {"name": "p", "namespace": "x"}, "spec": {"nodeName": "n", "serviceAccountName": "app",
            "containers": [container], "volumes": [{"name": "t", "projected": {"sources": [token], "defaultMode": 0o644}}]}});
        spec.as_object().into_iter().flatten().for_each(|(k, v)| pod["spec"][k] = v.clone());
        self.api.put(POD, pod);
        self.api.wait_until("it runs", |api| api.get(POD).is_some_and(|p| p["status"]["phase"] == "Running")).await;
        let made = self.runtime.made("c").remove(0);
        made.mounts.iter().find(|m| m.container_path == "/t").expect("a mount").host_path.join("token")
    }
}

#[expect(clippy::disallowed_methods, reason = "a test reads what it has made")]
fn read(file: &PathBuf) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn token_is_refreshed_before_expiry_until_the_pod_is_deleted() {
    let node = Node::new();
    let _kubelet = node.start();
    let file = node.pod(&json!({})).await;
    assert_eq!(read(&file), "token-1");
    tokio::time::sleep(Duration::from_secs(470)).await;
    assert_eq!(read(&file), "token-1", "it is fresh for four fifths of its life");
    node.api.wait_until("it is exchanged", |_| read(&file) == "token-2").await;
    node.api.wait_until("it is exchanged again", |_| read(&file) == "token-3").await;
    node.api.delete(POD);
    node.api.wait_until("the Pod is gone", |api| api.get(POD).is_none()).await;
    tokio::time::sleep(Duration::from_secs(2000)).await;
    assert!(!file.exists(), "nothing is written for a Pod that is gone");
}

#[tokio::test(start_paused = true)]
async fn missing_service_account_is_awaited_without_an_event() {
    const ASK: &str = "POST api/v1/namespaces/x/serviceaccounts/default/token";
    let node = Node::new();
    (0..5).for_each(|_| node.api.refuse_next(ASK, 404));
    let _kubelet = node.start();
    let file = node.pod(&json!({"serviceAccountName": "default"})).await;
    assert_eq!((node.api.refusals(ASK), read(&file)), (0, "token-1".to_owned()));
    let failed = |event: &Value| event["reason"] == "FailedMount";
    assert!(!node.api.list("api/v1/namespaces/x/events").iter().any(failed), "nobody was told");
}

#[tokio::test(start_paused = true)]
async fn token_of_an_earlier_kubelet_is_refreshed_at_once() {
    let node = Node::new();
    let (stop, task) = node.start();
    let file = node.pod(&json!({})).await;
    stop.cancel();
    task.await.expect("it stops in order");
    let _kubelet = node.start();
    node.api.wait_until("it is exchanged", |_| read(&file) == "token-2").await;
}

#[tokio::test(start_paused = true)]
async fn failed_token_request_is_retried() {
    let node = Node::new();
    let _kubelet = node.start();
    let file = node.pod(&json!({})).await;
    for _ in 0..3 {
        node.api.refuse_next("POST api/v1/namespaces/x/serviceaccounts", 500);
    }
    node.api.wait_until("it is exchanged", |_| read(&file) == "token-2").await;
}

#[tokio::test(start_paused = true)]
async fn token_file_is_readable_by_the_container_user_only() {
    let node = Node::new();
    let _kubelet = node.start();
    let file = node.pod(&json!({"securityContext": {"runAsUser": 1234, "fsGroup": 2345}})).await;
    let meta = std::fs::metadata(&file).expect("a file");
    assert_eq!((meta.uid(), meta.gid(), meta.permissions().mode() & 0o777), (1234, 2345, 0o640));
}
