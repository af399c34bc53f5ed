//! Preemption by the scheduler for Pods of higher priority (`PreemptionByScheduler`).

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually};

/// An extended resource of the node for one test, so that Pods of other tests do not interfere.
struct Seats<'a> {
    kubectl: &'a Kubectl,
    node: String,
    resource: String,
}

impl<'a> Seats<'a> {
    fn new(kubectl: &'a Kubectl, count: u32) -> Self {
        let node = kubectl.run("get nodes -o jsonpath={.items[0].metadata.name}").ok();
        let seats = Self { kubectl, node, resource: format!("example.com/{}", kubectl.namespace()) };
        seats.set(&json!(count.to_string()));
        seats
    }

    fn set(&self, count: &Value) {
        let patch = json!({"status": {"capacity": {&self.resource: count}}}).to_string();
        self.kubectl
            .args(&["patch", "node", &self.node, "--subresource=status", "--type=merge", "-p", &patch], "")
            .ok();
        let path = format!("/status/allocatable/{}", self.resource.replace('/', "~1"));
        self.kubectl.wait_value(&format!("node/{}", self.node), &path, count);
    }

    /// Creates a Pod that requests this many seats, and exits a moment after SIGTERM.
    fn pod(&self, name: &str, seats: u32, spec: &Value) {
        let limits = json!({"limits": {&self.resource: seats.to_string()}});
        let pod = PodBuilder::new(name)
            .label("app", name)
            .grace_period(60)
            .script("trap 'exit 7' TERM; touch /tmp/up; sleep 100000 & wait")
            .container(&json!({"readinessProbe": {"exec": {"command": ["cat", "/tmp/up"]}, "periodSeconds": 1}}))
            .resources(&limits)
            .spec(spec);
        self.kubectl.apply(&pod.to_string());
    }

    /// Creates a PriorityClass of this priority, and returns the spec fields of its Pods.
    fn class(&self, priority: i32) -> Value {
        let name = format!("{}-{priority}", self.kubectl.namespace());
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": priority});
        self.kubectl.apply(&class.to_string());
        json!({"priorityClassName": name})
    }

    fn end(&self) {
        self.kubectl.run("delete pods --all").ok();
        self.set(&Value::Null);
    }
}

#[e2e_test("a Pod of higher priority preempts as few Pods as possible")]
fn higher_priority_preempts_as_few_pods_as_possible(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let seats = Seats::new(&kubectl, 3);
    let (low, high) = (seats.class(10), seats.class(1000));
    seats.pod("lowest", 1, &json!({}));
    seats.pod("low", 2, &low);
    kubectl.wait_ready("lowest");
    kubectl.wait_ready("low");
    // The finalizer keeps the object, so that its last state can be read.
    kubectl.run("patch pod lowest --type=merge -p {\"metadata\":{\"finalizers\":[\"example.com/look\"]}}").ok();
    let uid = kubectl.value("pod/lowest", "/metadata/uid");
    seats.pod("high", 1, &high);
    kubectl.wait_ready("high");
    let status = kubectl.value("pod/lowest", "/status");
    let conditions = status["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|c| c["type"] == "DisruptionTarget").expect("DisruptionTarget");
    let message = "default-scheduler: preempting to accommodate a higher priority pod";
    assert_eq!(
        (&target["status"], &target["reason"], &target["message"]),
        (&json!("True"), &json!("PreemptionByScheduler"), &json!(message))
    );
    assert_eq!(
        status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 7,
        "the victim must terminate gracefully"
    );
    let by = kubectl.value("pod/high", "/metadata/uid");
    let message = format!("Preempted by pod {} on node {}", by.as_str().unwrap(), seats.node);
    eventually("the Event", || kubectl.events("lowest").contains(&("Preempted".to_owned(), message.clone())));
    assert_eq!(kubectl.value("pod/low", "/status/phase"), "Running");
    assert_eq!(kubectl.value("pod/low", "/metadata/deletionTimestamp"), Value::Null);
    assert_eq!(kubectl.value("pod/lowest", "/metadata/uid"), uid);
    kubectl.run("patch pod lowest --type=merge -p {\"metadata\":{\"finalizers\":null}}").ok();
    seats.end();
}

#[e2e_test("preemptionPolicy Never and equal priority preempt nothing")]
fn never_and_equal_priority_preempt_nothing(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let seats = Seats::new(&kubectl, 1);
    // Below the priority of other tests' Pods: with lower ones, the message would be that preemption does not help.
    let (class, mut never) = (seats.class(-10), seats.class(1000));
    seats.pod("first", 1, &class);
    kubectl.wait_ready("first");
    never["preemptionPolicy"] = json!("Never");
    let name = never["priorityClassName"].as_str().unwrap().to_owned();
    kubectl.run(&format!("delete priorityclass {name}")).ok();
    let quiet = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
        "value": 1000, "preemptionPolicy": "Never"});
    kubectl.apply(&quiet.to_string());
    seats.pod("quiet", 1, &json!({"priorityClassName": name}));
    seats.pod("equal", 1, &class);
    let insufficient = format!("0/1 nodes are available: 1 Insufficient {}.", seats.resource);
    for (pod, message) in [
        ("quiet", "not eligible due to preemptionPolicy=Never."),
        ("equal", "0/1 nodes are available: 1 No preemption victims found for incoming pod."),
    ] {
        let message = format!("{insufficient} no new claims to deallocate, preemption: {message}");
        eventually("the Event", || kubectl.events(pod).contains(&("FailedScheduling".to_owned(), message.clone())));
    }
    assert_eq!(kubectl.value("pod/first", "/metadata/deletionTimestamp"), Value::Null);
    // The order of two pending Pods depends on their back-off.
    kubectl.run("delete pod equal").ok();
    kubectl.run("delete pod first").ok();
    kubectl.wait_ready("quiet");
    seats.end();
}

#[e2e_test("preemption prefers victims without a PodDisruptionBudget")]
fn preemption_prefers_victims_without_budget(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let seats = Seats::new(&kubectl, 2);
    let (low, high) = (seats.class(10), seats.class(1000));
    // Without its budget this Pod would be the victim, because its priority is lower.
    seats.pod("kept", 1, &json!({}));
    seats.pod("goes", 1, &low);
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}});
    kubectl.apply(&budget.to_string());
    kubectl.wait_ready("kept");
    kubectl.wait_ready("goes");
    kubectl.wait_value("pdb/b", "/status/currentHealthy", &json!(1));
    seats.pod("high", 1, &high);
    kubectl.wait_ready("high");
    eventually("the victim to be deleted", || kubectl.get("pod/goes").is_none());
    assert_eq!(kubectl.value("pod/kept", "/metadata/deletionTimestamp"), Value::Null);
    kubectl.run("delete pdb b").ok();
    seats.end();
}
