//! Scheduling against a fake API server, on a paused clock.
#![expect(clippy::expect_used, reason = "a test may panic")]

use fake_api::FakeApi;
use scheduler::{Options, Scheduler};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn start() -> FakeApi {
    let api = FakeApi::new();
    let scheduler = Scheduler::new(api.client(), Options::default());
    tokio::spawn(scheduler.run(CancellationToken::new()));
    api
}

fn node(api: &FakeApi, name: &str, cpu: &str) {
    let allocatable = json!({ "cpu": cpu, "memory": "8Gi", "pods": "110" });
    let path = format!("api/v1/nodes/{name}");
    api.put(&path, json!({ "metadata": { "name": name }, "status": { "allocatable": allocatable } }));
}

fn pod(api: &FakeApi, name: &str, cpu: &str, change: impl FnOnce(&mut Value)) {
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "default", "uid": name },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] },
        "status": { "phase": "Pending", "conditions": [] },
    });
    change(&mut pod);
    api.put(&path(name), pod);
}

fn path(pod: &str) -> String {
    format!("api/v1/namespaces/default/pods/{pod}")
}

fn node_of(api: &FakeApi, name: &str) -> Option<String> {
    Some(api.get(&path(name))?["spec"]["nodeName"].as_str()?.to_owned())
}

async fn bound(api: &FakeApi, name: &str) -> String {
    api.wait_until(&format!("{name} is bound"), |api| node_of(api, name).is_some()).await;
    node_of(api, name).expect("it is bound")
}

fn events(api: &FakeApi, reason: &str) -> Vec<String> {
    let events = api.list("apis/events.k8s.io/v1/events");
    let of_reason = events.iter().filter(|e| e["reason"] == reason);
    of_reason.map(|e| e["note"].as_str().expect("a note").to_owned()).collect()
}

fn condition(api: &FakeApi, name: &str) -> Value {
    let pod = api.get(&path(name)).expect("a Pod");
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|c| c["type"] == "PodScheduled").unwrap_or(Value::Null)
}

#[tokio::test(start_paused = true)]
async fn pod_is_bound_with_scheduled_event() {
    let api = start();
    node(&api, "n1", "4");
    pod(&api, "a", "1", |_| {});
    assert_eq!(bound(&api, "a").await, "n1");
    api.wait_until("an event", |api| !events(api, "Scheduled").is_empty()).await;
    assert_eq!(events(&api, "Scheduled"), ["Successfully assigned default/a to n1"]);
    let event = &api.list("apis/events.k8s.io/v1/events")[0];
    assert_eq!((&event["action"], &event["type"]), (&json!("Binding"), &json!("Normal")));
    assert_eq!(event["reportingController"], "default-scheduler");
}

#[tokio::test(start_paused = true)]
async fn assumed_pods_reserve_cpu() {
    let api = start();
    for name in ["n1", "n2"] {
        node(&api, name, "2");
    }
    for name in ["a", "b", "c", "d"] {
        pod(&api, name, "1", |_| {});
    }
    let mut nodes = Vec::new();
    for name in ["a", "b", "c", "d"] {
        nodes.push(bound(&api, name).await);
    }
    nodes.sort();
    assert_eq!(nodes, ["n1", "n1", "n2", "n2"]);
}

#[tokio::test(start_paused = true)]
async fn unschedulable_pod_is_bound_once_resources_are_freed() {
    let api = start();
    node(&api, "n1", "1");
    pod(&api, "a", "1", |_| {});
    bound(&api, "a").await;
    pod(&api, "b", "1", |_| {});
    let message = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: \
                   1 No preemption victims found for incoming pod.";
    api.wait_until("a condition", |api| condition(api, "b")["reason"] == "Unschedulable").await;
    assert_eq!(condition(&api, "b")["message"], message);
    assert_eq!(condition(&api, "b")["status"], "False");
    assert_eq!(events(&api, "FailedScheduling"), [message]);

    pod(&api, "a", "1", |pod| {
        pod["spec"]["nodeName"] = "n1".into();
        pod["status"]["phase"] = "Succeeded".into();
    });
    assert_eq!(bound_at_once(&api, "b").await, "n1");
    let conditions = api.writes().iter().filter(|w| w.ends_with("b/status")).count();
    assert_eq!(conditions, 1, "its own report does not wake it: {:#?}", api.writes());
}

#[tokio::test(start_paused = true)]
async fn first_node_schedules_pending_pod_without_backoff() {
    let api = start();
    pod(&api, "a", "1", |_| {});
    api.wait_until("a condition", |api| condition(api, "a")["reason"] == "Unschedulable").await;
    assert_eq!(condition(&api, "a")["message"], "no nodes available to schedule pods");
    let started = tokio::time::Instant::now();
    node(&api, "n1", "4");
    assert_eq!(bound(&api, "a").await, "n1");
    assert!(started.elapsed().as_millis() < 10, "without backoff");
}

#[tokio::test(start_paused = true)]
async fn gated_pod_is_scheduled_once_gates_are_removed() {
    let api = start();
    node(&api, "n1", "4");
    let gated = |gates: Value| pod(&api, "a", "1", move |pod| pod["spec"]["schedulingGates"] = gates);
    gated(json!([{ "name": "quota" }, { "name": "more" }]));
    api.wait_until("a condition", |api| condition(api, "a")["reason"] == "SchedulingGated").await;
    assert_eq!(condition(&api, "a")["message"], "Scheduling is blocked due to non-empty scheduling gates");
    assert!(events(&api, "FailedScheduling").is_empty());
    gated(json!([{ "name": "quota" }]));
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    let opened = tokio::time::Instant::now();
    pod(&api, "a", "1", |_| {});
    assert_eq!(bound(&api, "a").await, "n1");
    assert!(opened.elapsed().as_millis() < 10, "it was not attempted before");
}

#[tokio::test(start_paused = true)]
async fn foreign_and_terminating_pods_are_ignored() {
    let api = start();
    node(&api, "n1", "4");
    pod(&api, "foreign", "1", |pod| pod["spec"]["schedulerName"] = "other".into());
    pod(&api, "leaving", "1", |pod| pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    pod(&api, "last", "1", |_| {});
    bound(&api, "last").await;
    assert_eq!((node_of(&api, "foreign"), node_of(&api, "leaving")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn failed_binding_is_retried() {
    let api = start();
    node(&api, "n1", "1");
    for code in [500, 409] {
        api.refuse_next(&format!("POST {}/binding", path("a")), code);
    }
    pod(&api, "a", "1", |_| {});
    let before = tokio::time::Instant::now();
    assert_eq!(bound(&api, "a").await, "n1");
    assert!(before.elapsed() >= std::time::Duration::from_secs(3), "two backoffs, after {:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn repeated_failure_is_counted_in_one_event_every_ten_seconds() {
    let api = start();
    node(&api, "n1", "1");
    pod(&api, "a", "5", |_| {});
    api.wait_until("an event", |api| !events(api, "FailedScheduling").is_empty()).await;
    for cpu in 2..=4 {
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        node(&api, "n1", &cpu.to_string());
    }
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let series = |api: &FakeApi| {
        let events = api.list("apis/events.k8s.io/v1/events");
        events.iter().map(|event| event["series"]["count"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(series(&api), [Value::Null], "the event is too new");
    node(&api, "n1", "4500m");
    api.wait_until("a series", |api| series(api) == [json!(5)]).await;
}

const CLAIM: &str = "api/v1/namespaces/default/persistentvolumeclaims/c";

/// Creates a Pod with a claim that is provisioned for its node.
fn with_claim(api: &FakeApi) {
    node(api, "n1", "4");
    api.put(
        "apis/storage.k8s.io/v1/storageclasses/s",
        json!({"metadata": {"name": "s"}, "provisioner": "example.com/disk", "volumeBindingMode": "WaitForFirstConsumer"}),
    );
    let claim = json!({"metadata": {"name": "c", "namespace": "default", "uid": "1"}, "status": {"phase": "Pending"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "s", "resources": {"requests": {"storage": "1Gi"}}}});
    api.put(CLAIM, claim);
    pod(api, "a", "1", |pod| {
        pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    });
}

/// Returns whether provisioning of the claim is requested.
fn is_provisioning_requested(api: &FakeApi) -> bool {
    api.get(CLAIM).is_some_and(|c| c["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "n1")
}

#[tokio::test(start_paused = true)]
async fn provisioning_precedes_binding_without_backoff() {
    let api = start();
    with_claim(&api);
    api.wait_until("provisioning is requested", is_provisioning_requested).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!((node_of(&api, "a"), condition(&api, "a")), (None, Value::Null));
    let mut bound = api.get(CLAIM).expect("a claim");
    bound["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
    bound["spec"]["volumeName"] = json!("v");
    api.put("api/v1/persistentvolumes/v", json!({"metadata": {"name": "v"}, "spec": {}}));
    api.put(CLAIM, bound);
    assert_eq!(bound_at_once(&api, "a").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn failed_volume_write_is_retried_after_a_backoff() {
    let api = start();
    (0..2).for_each(|_| api.refuse_next(&format!("PUT {CLAIM}"), 500));
    let before = tokio::time::Instant::now();
    with_claim(&api);
    api.wait_until("provisioning is requested", is_provisioning_requested).await;
    assert!(before.elapsed() >= std::time::Duration::from_secs(2), "after {:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn failed_provisioning_is_reported_and_retried() {
    let api = start();
    with_claim(&api);
    api.wait_until("provisioning is requested", is_provisioning_requested).await;
    let mut failed = api.get(CLAIM).expect("a claim");
    failed["metadata"]["annotations"] = json!({});
    api.put(CLAIM, failed);
    api.wait_until("the condition is reported", |api| condition(api, "a")["reason"] == "Unschedulable").await;
    let message = "running PreBind plugin \"VolumeBinding\": binding volumes: provisioning failed for PVC \"c\"";
    assert_eq!(
        (&condition(&api, "a")["message"], events(&api, "FailedScheduling")),
        (&json!(message), vec![message.to_owned()])
    );
    api.wait_until("provisioning is requested again", is_provisioning_requested).await;
}

/// Asserts that the Pod is bound without a backoff.
async fn bound_at_once(api: &FakeApi, name: &str) -> String {
    let before = tokio::time::Instant::now();
    let node = bound(api, name).await;
    assert!(before.elapsed() < std::time::Duration::from_millis(100), "after {:?}", before.elapsed());
    node
}

/// Sets the Pod's label `app`.
fn labelled(app: &str) -> impl FnOnce(&mut Value) {
    let labels = json!({ "app": app });
    move |pod| pod["metadata"]["labels"] = labels
}

/// Sets a required affinity term by host.
fn needing(mut term: Value) -> impl FnOnce(&mut Value) {
    term["topologyKey"] = "host".into();
    let terms = json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } });
    move |pod| pod["spec"]["affinity"] = terms
}

fn web() -> Value {
    json!({ "labelSelector": { "matchLabels": { "app": "web" } } })
}

fn host(api: &FakeApi, name: &str) {
    let path = format!("api/v1/nodes/{name}");
    let mut node = api.get(&path).expect("a node");
    node["metadata"]["labels"] = json!({ "host": name });
    api.put(&path, node);
}

/// Waits until the Pod is reported as unschedulable and its backoff is over.
async fn waits(api: &FakeApi, name: &str) {
    api.wait_until("a condition", |api| condition(api, name)["reason"] == "Unschedulable").await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn pod_waits_until_its_required_affinity_matches() {
    let api = start();
    for name in ["n1", "n2"] {
        node(&api, name, "4");
        host(&api, name);
    }
    pod(&api, "large", "5", |_| {});
    waits(&api, "large").await;
    pod(&api, "a", "1", needing(web()));
    waits(&api, "a").await;
    let reports = |api: &FakeApi, name: &str| {
        let of_it = |event: &&Value| event["regarding"]["name"] == name && event["reason"] == "FailedScheduling";
        let events = api.list("apis/events.k8s.io/v1/events");
        events.iter().filter(of_it).map(|e| e["series"]["count"].as_u64().unwrap_or(1)).sum::<u64>()
    };
    let before = reports(&api, "large");
    pod(&api, "b", "1", |pod| {
        labelled("web")(pod);
        pod["spec"]["nodeName"] = "n2".into();
    });
    assert_eq!(bound_at_once(&api, "a").await, "n2");
    assert_eq!(reports(&api, "large"), before, "a Pod without affinity is not requeued");
}

#[tokio::test(start_paused = true)]
async fn assumed_pod_satisfies_required_affinity_at_once() {
    let api = start();
    node(&api, "n1", "4");
    host(&api, "n1");
    pod(&api, "a", "1", needing(web()));
    waits(&api, "a").await;
    pod(&api, "b", "1", labelled("web"));
    assert_eq!(bound_at_once(&api, "a").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn pod_and_namespace_label_changes_requeue_pods() {
    let api = start();
    node(&api, "n1", "4");
    host(&api, "n1");
    let placed = |app: &str| {
        pod(&api, "b", "1", |pod| {
            labelled(app)(pod);
            pod["spec"]["nodeName"] = "n1".into();
        });
    };
    placed("db");
    let mut term = web();
    pod(&api, "a", "1", needing(term.clone()));
    waits(&api, "a").await;
    placed("web");
    assert_eq!(bound_at_once(&api, "a").await, "n1");

    let far = json!({ "metadata": { "name": "b", "namespace": "far", "uid": "far", "labels": { "app": "web" } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c" }] } });
    api.put("api/v1/namespaces/far/pods/b", far);
    term["namespaceSelector"] = json!({ "matchLabels": { "team": "red" } });
    pod(&api, "c", "1", needing(term));
    waits(&api, "c").await;
    api.put("api/v1/namespaces/far", json!({ "metadata": { "name": "far", "labels": { "team": "red" } } }));
    assert_eq!(bound_at_once(&api, "c").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn namespace_label_change_lifts_anti_affinity() {
    let api = start();
    node(&api, "n1", "4");
    host(&api, "n1");
    let labelled = |team: &str| {
        let labels = json!({ "team": team });
        api.put("api/v1/namespaces/default", json!({ "metadata": { "name": "default", "labels": labels } }));
    };
    labelled("red");
    let term = json!({ "topologyKey": "host", "labelSelector": {},
        "namespaceSelector": { "matchLabels": { "team": "red" } } });
    pod(&api, "b", "1", |pod| {
        pod["spec"]["affinity"] =
            json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } });
        pod["spec"]["nodeName"] = "n1".into();
    });
    pod(&api, "a", "1", |_| {});
    waits(&api, "a").await;
    labelled("blue");
    assert_eq!(bound_at_once(&api, "a").await, "n1");
}

#[tokio::test(start_paused = true)]
async fn removed_domain_lowers_skew() {
    let api = start();
    for (name, cpu) in [("n1", "4"), ("n2", "1")] {
        node(&api, name, cpu);
        host(&api, name);
    }
    let spread = |pod: &mut Value| {
        labelled("web")(pod);
        pod["spec"]["topologySpreadConstraints"] = json!([{ "maxSkew": 1, "topologyKey": "host",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "app": "web" } } }]);
    };
    pod(&api, "other", "1", |pod| pod["spec"]["nodeName"] = "n2".into());
    pod(&api, "a", "1", spread);
    assert_eq!(bound(&api, "a").await, "n1");
    pod(&api, "b", "1", spread);
    waits(&api, "b").await;
    api.remove("api/v1/nodes/n2");
    assert_eq!(bound_at_once(&api, "b").await, "n1");
}
