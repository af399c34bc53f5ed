//! Tests of the kubelet with an in-memory API server and an in-memory container runtime, on a paused clock.
#![expect(clippy::expect_used, reason = "a test may panic")]

#[path = "kubelet/claims.rs"]
mod claims;
#[path = "kubelet/cleanup.rs"]
mod cleanup;
#[path = "kubelet/exits.rs"]
mod exits;
#[allow(dead_code, reason = "the unit tests use the rest of it")]
mod fake_runtime;
#[path = "kubelet/images.rs"]
mod images;
#[path = "kubelet/kubelet_crashes.rs"]
mod kubelet_crashes;
#[path = "kubelet/static_pods.rs"]
mod static_pods;
#[path = "kubelet/unsupported_fields.rs"]
mod unsupported_fields;
#[path = "kubelet/user_namespaces.rs"]
mod user_namespaces;

use fake_api::FakeApi;
use fake_runtime::{FakeRuntime, IMAGE, commands::Command};
use jiff::Timestamp;
use kubelet::{Clock, Kubelet, KubeletConfiguration, Options};
use lifecycle::NodePolicy;
use serde_json::{Value, json};
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

/// Node whose kubelet can be restarted.
struct Node {
    /// Node name of the kubelet.
    name: &'static str,
    api: FakeApi,
    runtime: FakeRuntime,
    clock: Clock,
    dir: tempfile::TempDir,
    config: KubeletConfiguration,
    running: Option<(CancellationToken, JoinHandle<()>)>,
    /// Latest kubelet.
    kubelet: Option<Kubelet>,
}

impl Node {
    fn new(config: &str) -> Self {
        let text = format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{config}");
        let mut config = KubeletConfiguration::parse(&text).expect("a configuration");
        // The cgroups of the machine must not be changed.
        config.cgroups_per_qos = false;
        // The state of the test machine must not cause evictions.
        config.eviction.eviction_hard.get_or_insert_default();
        let clock = Clock::starting_at(Timestamp::from_second(1_800_000_000).expect("a time"));
        let dir = tempfile::tempdir().expect("a directory");
        let runtime = FakeRuntime::new(clock.clone());
        Self { name: "n", api: FakeApi::new(), runtime, clock, dir, config, running: None, kubelet: None }
    }

    fn started(config: &str) -> Self {
        let mut node = Self::new(config);
        node.start();
        node
    }

    fn start(&mut self) {
        let node_ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let options = Options {
            node_name: self.name.to_owned(),
            root_dir: self.dir.path().to_owned(),
            node_ip,
            pod_cidr: None,
            policy: NodePolicy {
                host_ips: vec![node_ip],
                gates: self.config.gates().expect("gates"),
                ..NodePolicy::default()
            },
            config: self.config.clone(),
            pod_rules: |_, _| Ok(()),
            clock: self.clock.clone(),
            random: 7,
            home: None,
            credential_providers: Arc::default(),
            port: 0,
        };
        let stop = CancellationToken::new();
        let kubelet = Kubelet::new(options, self.api.client(), Arc::new(self.runtime.clone()), stop.clone());
        self.kubelet = Some(kubelet.clone());
        self.running = Some((stop, tokio::spawn(async move { kubelet.run().await })));
    }

    async fn stop(&mut self) {
        let (stop, task) = self.running.take().expect("it runs");
        stop.cancel();
        task.await.expect("it stops in order");
    }

    /// Creates a Pod of one container that has the Pod's name.
    fn pod(&self, name: &str, spec: &Value) {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "x", "labels": {"app": name}},
            "spec": {"nodeName": "n", "containers": [{"name": name, "image": IMAGE}]},
        });
        for (key, value) in spec.as_object().into_iter().flatten() {
            match (key.as_str(), value) {
                ("container", Value::Object(fields)) => {
                    fields.iter().for_each(|(k, v)| pod["spec"]["containers"][0][k] = v.clone());
                }
                _ => pod["spec"][key] = value.clone(),
            }
        }
        self.api.put(&path(name), pod);
    }

    fn status(&self, name: &str) -> Value {
        self.api.get(&path(name)).map(|pod| pod["status"].clone()).unwrap_or_default()
    }

    async fn until_status(&self, name: &str, expectation: &str, condition: impl Fn(&Value) -> bool) {
        self.api.wait_until(&format!("{name}: {expectation}"), |_| condition(&self.status(name))).await;
    }

    async fn until_running(&self, name: &str) {
        self.until_status(name, "runs", |s| s["phase"] == "Running").await;
    }
}

fn path(name: &str) -> String {
    format!("api/v1/namespaces/x/pods/{name}")
}

#[tokio::test(start_paused = true)]
async fn pod_runs_and_its_exit_is_reported_in_the_status() {
    let node = Node::started("");
    node.pod("p", &json!({"restartPolicy": "Never"}));
    node.until_running("p").await;
    let status = node.status("p");
    let container = &status["containerStatuses"][0];
    assert_eq!((&status["podIP"], &status["hostIP"]), (&json!("10.0.0.7"), &json!("192.0.2.1")));
    assert_eq!((&container["ready"], &container["restartCount"]), (&json!(true), &json!(0)));
    assert!(container["containerID"].as_str().is_some_and(|id| id.starts_with("containerd://container-")));
    node.runtime.exit("p", 0, true);
    node.until_status("p", "has succeeded", |s| s["phase"] == "Succeeded").await;
    let terminated = &node.status("p")["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&terminated["exitCode"], &terminated["reason"]), (&json!(0), &json!("Completed")));
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_is_stopped_and_cleaned_up() {
    let node = Node::started("");
    node.pod("p", &json!({}));
    node.until_running("p").await;
    node.api.delete(&path("p"));
    node.api.wait_until("it is gone", |api| api.get(&path("p")).is_none()).await;
    assert_eq!(node.api.removed(&path("p")).expect("it was")["status"]["phase"], "Failed");
    let runtime = &node.runtime;
    node.api.wait_until("its sandbox is gone", |_| runtime.sandbox_configs().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_container_blocks_its_own_pod_only() {
    let node = Node::started("");
    node.runtime.hang("stuck");
    node.pod("stuck", &json!({}));
    node.until_status("stuck", "waits for its container", |s| {
        s["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    })
    .await;
    let began = Instant::now();
    for name in ["a", "b", "c"] {
        node.pod(name, &json!({}));
        node.until_running(name).await;
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(node.status("stuck")["phase"], "Pending");
}

#[tokio::test(start_paused = true)]
async fn exit_without_a_kubelet_is_reported_once_with_its_code() {
    let mut node = Node::started("");
    node.pod("p", &json!({"restartPolicy": "Always"}));
    node.until_running("p").await;
    node.stop().await;
    node.runtime.exit("p", 7, false);
    node.start();
    node.until_status("p", "runs again", |s| {
        let container = &s["containerStatuses"][0];
        container["restartCount"] == 1 && container["state"]["running"].is_object()
    })
    .await;
    let last = node.status("p")["containerStatuses"][0]["lastState"]["terminated"].clone();
    assert_eq!((&last["exitCode"], &last["reason"]), (&json!(7), &json!("Error")));
    // After two relists, it is still one restart.
    tokio::time::sleep(Duration::from_secs(150)).await;
    assert_eq!(node.status("p")["containerStatuses"][0]["restartCount"], 1);
    assert_eq!(node.runtime.made("p").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn restarted_kubelet_keeps_running_containers() {
    let mut node = Node::started("");
    node.pod("p", &json!({}));
    node.until_running("p").await;
    let before = node.status("p");
    node.stop().await;
    node.start();
    tokio::time::sleep(Duration::from_secs(150)).await;
    assert_eq!(node.status("p"), before);
    assert_eq!((node.runtime.made("p").len(), node.runtime.sandbox_configs().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn exit_without_an_event_is_found_by_relist() {
    let node = Node::started("");
    node.pod("p", &json!({"restartPolicy": "Never"}));
    node.until_running("p").await;
    let began = Instant::now();
    node.runtime.exit("p", 3, false);
    node.until_status("p", "has failed", |s| s["phase"] == "Failed").await;
    assert!(began.elapsed() <= Duration::from_secs(61), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn rejected_status_write_is_retried() {
    let node = Node::started("");
    let write = format!("PATCH {}/status", path("p"));
    for _ in 0..5 {
        node.api.refuse_next(&write, 500);
    }
    node.pod("p", &json!({"restartPolicy": "Never"}));
    node.until_running("p").await;
    // The latest status is correct even if earlier writes were lost.
    for _ in 0..5 {
        node.api.refuse_next(&write, 503);
    }
    node.runtime.exit("p", 4, true);
    node.until_status("p", "has failed", |s| s["phase"] == "Failed").await;
    assert_eq!(node.status("p")["containerStatuses"][0]["state"]["terminated"]["exitCode"], 4);
}

#[tokio::test(start_paused = true)]
async fn unanswered_api_request_is_retried() {
    let node = Node::started("");
    for request in [format!("PATCH {}/status", path("p")), format!("GET {}", "api/v1/nodes/n")] {
        node.api.hang_next(&request);
    }
    node.pod("p", &json!({}));
    let began = Instant::now();
    node.pod("q", &json!({}));
    node.until_running("q").await;
    assert!(began.elapsed() < Duration::from_secs(31), "{:?}", began.elapsed());
    node.until_running("p").await;
    assert!(began.elapsed() < Duration::from_secs(62), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn pods_beyond_max_pods_are_rejected() {
    let node = Node::started("maxPods: 1");
    node.pod("a", &json!({}));
    node.until_running("a").await;
    node.pod("b", &json!({}));
    let write = format!("PATCH {}/status", path("b"));
    let reported = || node.api.writes().iter().filter(|w| **w == write).count();
    node.until_status("b", "was told of", |s| !s.is_null()).await;
    // The first status is already Failed (upstream's `rejectPod`).
    assert_eq!((&node.status("b")["phase"], &node.status("b")["reason"]), (&json!("Failed"), &json!("OutOfpods")));
    assert_eq!(reported(), 1);
}

#[tokio::test(start_paused = true)]
async fn container_environment_is_assembled_in_order() {
    let node = Node::started("");
    node.api.put("api/v1/namespaces/x/configmaps/cm", json!({"data": {"k": "v", "l": "$(HOST)"}}));
    node.api.put("api/v1/namespaces/x/secrets/s", json!({"data": {"p": "c2VjcmV0"}}));
    let env = json!([
        {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(P_k)$(C)$$(A)"}, {"name": "A", "value": "2"},
        {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "I", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "M", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}},
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}},
        {"name": "O", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "k", "optional": true}}},
    ]);
    let from = json!([{"prefix": "P_", "configMapRef": {"name": "cm"}}]);
    let requests = json!({"requests": {"cpu": "250m"}});
    node.pod("p", &json!({"container": {"env": env, "envFrom": from, "command": ["$(B)"], "resources": requests}}));
    node.until_running("p").await;
    let made = node.runtime.made("p").remove(0);
    let found: Vec<(&str, &str)> = made.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let expected = [
        ("P_k", "v"),
        ("P_l", "$(HOST)"),
        ("A", "2"),
        ("B", "1v$(C)$(A)"),
        ("N", "p"),
        ("I", "10.0.0.7"),
        ("M", "250"),
        ("S", "secret"),
    ];
    assert_eq!((found.as_slice(), made.command.as_slice()), (&expected[..], &["1v$(C)$(A)".to_owned()][..]));
}

#[tokio::test(start_paused = true)]
async fn missing_references_are_reported_until_they_exist() {
    let node = Node::started("");
    for (name, source, words) in [
        ("a", json!({"configMapKeyRef": {"name": "none", "key": "k"}}), "configmap \"none\" not found"),
        ("b", json!({"secretKeyRef": {"name": "none", "key": "k"}}), "secret \"none\" not found"),
        ("c", json!({"fieldRef": {"fieldPath": "spec.foo"}}), "unsupported fieldPath: spec.foo"),
    ] {
        node.pod(name, &json!({"container": {"env": [{"name": "A", "valueFrom": source}]}}));
        node.until_status(name, words, |s| {
            let waiting = &s["containerStatuses"][0]["state"]["waiting"];
            waiting["reason"] == "CreateContainerConfigError"
                && waiting["message"].as_str().is_some_and(|m| m.contains(words))
        })
        .await;
    }
    node.api.put("api/v1/namespaces/x/configmaps/none", json!({"data": {"k": "v"}}));
    node.until_running("a").await;
}

#[tokio::test(start_paused = true)]
async fn volumes_have_the_api_content_and_are_refreshed() {
    let node = Node::started("");
    let config_map = |text: &str| node.api.put("api/v1/namespaces/x/configmaps/cm", json!({"data": {"k": text}}));
    let secret = |text: &str| node.api.put("api/v1/namespaces/x/secrets/s", json!({"data": {"p": text}}));
    config_map("one");
    secret("b25l");
    let labels = json!({"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}});
    let volumes = json!([
        {"name": "cm", "configMap": {"name": "cm"}},
        {"name": "all", "projected": {"sources": [
            {"configMap": {"name": "cm", "items": [{"key": "k", "path": "d/k"}]}},
            {"secret": {"name": "s"}}, {"downwardAPI": {"items": [labels]}},
        ]}},
    ]);
    let mounts = json!([{"name": "cm", "mountPath": "/cm"}, {"name": "all", "mountPath": "/all"}]);
    node.pod("p", &json!({"volumes": volumes, "container": {"volumeMounts": mounts}}));
    node.until_running("p").await;
    let made = node.runtime.made("p").remove(0);
    let host = |path: &str| made.mounts.iter().find(|m| m.container_path == path).expect("a mount").host_path.clone();
    assert!(
        made.mounts
            .iter()
            .filter(|m| m.container_path != "/etc/hosts")
            .all(|m| m.readonly || m.container_path == "/dev/termination-log")
    );
    let files = [host("/cm").join("k"), host("/all").join("d/k"), host("/all").join("p"), host("/all").join("labels")];
    let read = || files.clone().map(claims::read);
    assert_eq!(read(), ["one", "one", "one", "app=\"p\""]);
    let began = Instant::now();
    config_map("two");
    secret("dHdv");
    let mut pod = node.api.get(&path("p")).expect("a Pod");
    pod["metadata"]["labels"]["app"] = json!("q");
    node.api.put(&path("p"), pod);
    node.api.wait_until("the files follow", |_| read() == ["two", "two", "two", "app=\"q\""]).await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    node.api.delete(&path("p"));
    node.api.wait_until("it is gone", |api| api.get(&path("p")).is_none()).await;
    config_map("three");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!host("/cm").exists(), "nothing is written for a Pod that is gone");
}

#[tokio::test(start_paused = true)]
async fn pod_has_the_hosts_and_dns_config_of_its_spec() {
    let node = Node::started("clusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\n");
    let aliases = json!([{"ip": "192.0.2.9", "hostnames": ["a"]}]);
    let dns = json!({"options": [{"name": "ndots", "value": "1"}]});
    node.pod("p", &json!({"hostname": "h", "subdomain": "s", "hostAliases": aliases, "dnsConfig": dns}));
    node.until_running("p").await;
    let sandbox = node.runtime.sandbox_configs().remove(0);
    let dns = sandbox.dns.expect("resolvers");
    assert_eq!(
        (sandbox.hostname.as_str(), dns.servers, dns.options),
        ("h", vec!["10.96.0.10".to_owned()], vec!["ndots:1".to_owned()])
    );
    assert_eq!(dns.searches[0], "x.svc.cluster.local");
    let made = node.runtime.made("p").remove(0);
    let hosts = made.mounts.iter().find(|m| m.container_path == "/etc/hosts").expect("a mount");
    let text = claims::read(&hosts.host_path);
    assert!(text.contains("10.0.0.7\th.s.x.svc.cluster.local\th\n") && text.ends_with("192.0.2.9\ta\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn large_log_is_rotated_and_dead_container_log_removed() {
    let node = Node::started("containerLogMaxSize: 1Ki");
    node.pod("p", &json!({}));
    node.until_running("p").await;
    let config = node.runtime.sandbox_configs().remove(0);
    let logs = config.log_directory.join("p");
    std::fs::write(logs.join("0.log"), "x".repeat(2048)).expect("a log");
    let count = || std::fs::read_dir(&logs).map(Iterator::count).unwrap_or_default();
    node.api.wait_until("the log is rotated", |_| node.runtime.reopened().len() == 1 && count() == 2).await;
    for attempt in 0..3 {
        node.until_status("p", "runs", |s| {
            let container = &s["containerStatuses"][0];
            container["restartCount"] == attempt && container["state"]["running"].is_object()
        })
        .await;
        std::fs::write(logs.join(format!("{attempt}.log")), "y").expect("a log");
        node.runtime.exit("p", 1, true);
    }
    node.api.wait_until("the first logs are gone", |_| !logs.join("0.log").exists()).await;
    assert_eq!(std::fs::read_dir(&logs).map(Iterator::count).expect("a directory"), 2, "the last two attempts");
}

#[tokio::test(start_paused = true)]
async fn exec_probes_control_readiness_and_restarts() {
    let node = Node::started("");
    node.runtime.command("ready?", Command::Ends(1, "no".to_owned()));
    node.runtime.command("alive?", Command::Ends(0, String::new()));
    let probe = |command: &str| json!({"exec": {"command": [command]}, "periodSeconds": 10, "failureThreshold": 3});
    node.pod("p", &json!({"container": {"readinessProbe": probe("ready?"), "livenessProbe": probe("alive?")}}));
    node.until_running("p").await;
    let ready = |s: &Value| s["containerStatuses"][0]["ready"] == true;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!ready(&node.status("p")));
    node.runtime.command("ready?", Command::Ends(0, String::new()));
    node.until_status("p", "is ready", ready).await;
    node.runtime.command("alive?", Command::Hangs);
    node.until_status("p", "was restarted", |s| s["containerStatuses"][0]["restartCount"] == 1).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_hook_ends_with_its_container() {
    for received in [true, false] {
        let node = Node::started("");
        node.runtime.command("bye", Command::Hangs);
        let hooks = json!({"preStop": {"exec": {"command": ["bye"]}}});
        node.pod("p", &json!({"terminationGracePeriodSeconds": 3600, "container": {"lifecycle": hooks}}));
        node.until_running("p").await;
        let mut pod = node.api.get(&path("p")).expect("a Pod");
        pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T09:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(3600);
        node.api.put(&path("p"), pod);
        node.api.wait_until("the hook runs", |_| node.runtime.commands().len() == 1).await;
        let began = Instant::now();
        node.runtime.exit("p", 0, received);
        node.api.wait_until("it is gone", |api| api.get(&path("p")).is_none()).await;
        let limit = if received { 5 } else { 70 };
        assert!(began.elapsed() < Duration::from_secs(limit), "heard: {received}, {:?}", began.elapsed());
    }
}
