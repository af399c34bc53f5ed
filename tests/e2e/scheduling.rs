//! Scheduling, and its Events and conditions for unschedulable Pods.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, PodBuilder, Shell, e2e_test, wait_for};

fn pod(name: &str) -> PodBuilder {
    PodBuilder::new(name).grace_period(0).command(&["sleep", "100000"])
}

/// Waits until the Pod is Unschedulable, in its condition and in an Event.
fn wait_for_unschedulable(kubectl: &Kubectl, name: &str, reasons: &str, preemption: &str) {
    let expected = format!(
        "0/1 nodes are available: {reasons}. no new claims to deallocate, preemption: 0/1 nodes are available: 1 {preemption}."
    );
    wait_for(&format!("{name} to wait for a node"), std::time::Duration::from_secs(60), || {
        let conditions = kubectl.value(&format!("pod/{name}"), "/status/conditions");
        let scheduled = conditions.as_array().into_iter().flatten().find(|c| c["type"] == "PodScheduled").cloned();
        let reported =
            kubectl.events(name).iter().any(|(reason, text)| reason == "FailedScheduling" && *text == expected);
        let same =
            |c: &Value| c["status"] == "False" && c["reason"] == "Unschedulable" && c["message"] == expected.as_str();
        let seen = || Err(format!("{conditions} {:?}", kubectl.events(name)));
        if reported && scheduled.as_ref().is_some_and(same) { Ok(()) } else { seen() }
    });
    let row = kubectl.run(&format!("get pod {name} --no-headers")).ok();
    assert_eq!(row.split_whitespace().take(4).collect::<Vec<_>>(), [name, "0/1", "Pending", "0"]);
}

fn node(kubectl: &Kubectl) -> String {
    kubectl.run("get nodes -o name").ok().trim().trim_start_matches("node/").to_owned()
}

const HOPELESS: &str = "Preemption is not helpful for scheduling";
const AFFINITY: &str = "1 node(s) didn't match Pod's node affinity/selector";

/// Returns a node label that only this test uses.
fn own_label(kubectl: &Kubectl) -> String {
    format!("example.com/{}", kubectl.namespace())
}

#[e2e_test("nodeSelector keeps a Pod Pending until a node gets the labels")]
fn node_selector_keeps_pod_pending(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let (node, label) = (node(&kubectl), own_label(&kubectl));
    kubectl.apply(&pod("p").spec(&json!({"nodeSelector": {&label: "ssd"}})).to_string());
    wait_for_unschedulable(&kubectl, "p", AFFINITY, HOPELESS);
    kubectl.run(&format!("label node {node} {label}=hdd")).ok();
    kubectl.run(&format!("label node {node} {label}=ssd --overwrite")).ok();
    kubectl.wait_ready("p");
    // A bound Pod stays, though the node no longer matches.
    kubectl.run(&format!("label node {node} {label}-")).ok();
    assert_eq!(kubectl.value("pod/p", "/status/phase"), "Running");
    kubectl.wait_for_event("p", "Scheduled", &format!("Successfully assigned {}/p to {node}", kubectl.namespace()));
}

#[e2e_test("required node affinity keeps a Pod Pending until a node matches")]
fn required_node_affinity_keeps_pod_pending(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let (node, label) = (node(&kubectl), own_label(&kubectl));
    let required = |term: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}});
    let expression = |operator: &str, values: Value| {
        required(json!({"matchExpressions": [{"key": label, "operator": operator, "values": values}]}))
    };
    kubectl.apply(&pod("in").spec(&expression("In", json!(["a", "b"]))).to_string());
    kubectl.apply(&pod("exists").spec(&expression("Exists", json!([]))).to_string());
    kubectl.apply(&pod("more").spec(&expression("Gt", json!(["5"]))).to_string());
    kubectl.apply(&pod("absent").spec(&expression("DoesNotExist", json!([]))).to_string());
    kubectl.apply(
        &pod("named")
            .spec(&required(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]})))
            .to_string(),
    );
    kubectl.wait_ready("absent");
    kubectl.wait_ready("named");
    for waits in ["in", "exists", "more"] {
        wait_for_unschedulable(&kubectl, waits, AFFINITY, HOPELESS);
    }
    kubectl.run(&format!("label node {node} {label}=7")).ok();
    kubectl.wait_ready("exists");
    kubectl.wait_ready("more");
    wait_for_unschedulable(&kubectl, "in", AFFINITY, HOPELESS);
    kubectl.run(&format!("label node {node} {label}=b --overwrite")).ok();
    kubectl.wait_ready("in");
    kubectl.run(&format!("label node {node} {label}-")).ok();
}

#[e2e_test("a Pod that requests too much is Pending with the resource named")]
fn insufficient_resources_are_reported(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let apply = |name: &str, requests: Value| {
        kubectl.apply(&pod(name).resources(&json!({"requests": requests})).to_string());
    };
    for (name, requests, reasons) in [
        ("cpu", json!({"cpu": "10k"}), "1 Insufficient cpu"),
        ("both", json!({"cpu": "10k", "memory": "100Ti"}), "1 Insufficient cpu, 1 Insufficient memory"),
        ("disk", json!({"ephemeral-storage": "100Pi"}), "1 Insufficient ephemeral-storage"),
    ] {
        apply(name, requests);
        wait_for_unschedulable(&kubectl, name, reasons, HOPELESS);
    }
    // A Pod that would fit without others, which must not be preempted.
    let cpu = kubectl.value(&format!("node/{}", node(&kubectl)), "/status/allocatable/cpu");
    apply("little", json!({"cpu": "1m"}));
    kubectl.wait_ready("little");
    apply("all", json!({"cpu": cpu}));
    wait_for_unschedulable(&kubectl, "all", "1 Insufficient cpu", "No preemption victims found for incoming pod");
}

#[e2e_test("scheduling gates block scheduling until all are removed")]
fn scheduling_gates_block_scheduling(cluster: &Cluster) {
    let shell = Shell::new(cluster.kubectl());
    shell.file(
        "pod.json",
        pod("p")
            .spec(&json!({"schedulingGates": [{"name": "example.com/one"}, {"name": "example.com/two"}]}))
            .to_string(),
    );
    shell.check(&[
        ("kubectl apply -f pod.json", 0, "pod/p created"),
        ("kubectl get pod p", 0, "NAME READY STATUS RESTARTS AGE p 0/1 SchedulingGated 0 ...s"),
        (
            "kubectl get pod p -o 'jsonpath={.status.conditions[0].type} {.status.conditions[0].reason}: {.status.conditions[0].message}'",
            0,
            "PodScheduled SchedulingGated: Scheduling is blocked due to non-empty scheduling gates",
        ),
        (r#"kubectl patch pod p --type=json -p '[{"op": "remove", "path": "/spec/schedulingGates/0"}]'"#, 0, "pod/p patched"),
        ("kubectl get pod p --no-headers", 0, "p 0/1 SchedulingGated 0 ...s"),
        (
            r#"kubectl patch pod p -p '{"spec": {"schedulingGates": [{"name": "example.com/three"}]}}'"#,
            1,
            "The Pod \"p\" is invalid: spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'example.com/three'",
        ),
        (r#"kubectl patch pod p --type=merge -p '{"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}'"#, 0, "pod/p patched"),
        (r#"kubectl patch pod p --type=json -p '[{"op": "remove", "path": "/spec/schedulingGates"}]'"#, 0, "pod/p patched"),
        ("kubectl wait --for=condition=Ready --timeout=60s pod/p", 0, "pod/p condition met"),
    ]);
    let kubectl = shell.kubectl();
    assert!(kubectl.events("p").iter().all(|(reason, _)| reason != "FailedScheduling"), "{:?}", kubectl.events("p"));
}

#[e2e_test("a Pod with a nodeName bypasses the scheduler")]
fn node_name_bypasses_scheduler(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.apply(&pod("p").spec(&json!({"nodeName": node(&kubectl)})).to_string());
    kubectl.apply(&pod("elsewhere").spec(&json!({"nodeName": "elsewhere"})).to_string());
    kubectl.wait_ready("p");
    assert!(kubectl.events("p").iter().all(|(reason, _)| reason != "Scheduled"), "{:?}", kubectl.events("p"));
    // No kubelet runs it.
    assert_eq!(kubectl.value("pod/elsewhere", "/status/phase"), "Pending");
    assert_eq!(kubectl.value("pod/elsewhere", "/status/containerStatuses"), Value::Null);
    kubectl.run("delete pod elsewhere --force").ok();
}

#[e2e_test("the kubelet rejects a bound Pod that does not match its node")]
fn kubelet_rejects_mismatched_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let name = node(&kubectl);
    let wait_for_unschedulable = |pod: &str, reason: &str, message: &str| {
        kubectl.wait_value(&format!("pod/{pod}"), "/status/phase", &json!("Failed"));
        let status = kubectl.value(&format!("pod/{pod}"), "/status");
        assert_eq!((&status["reason"], &status["message"]), (&json!(reason), &json!(message)), "{status}");
        let row = kubectl.run(&format!("get pod {pod} --no-headers")).ok();
        assert!(row.contains(reason), "{row}");
    };
    kubectl
        .apply(&pod("label").spec(&json!({"nodeName": name, "nodeSelector": {own_label(&kubectl): "x"}})).to_string());
    wait_for_unschedulable(
        "label",
        "NodeAffinity",
        "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    );
    let large = PodBuilder::new("large")
        .grace_period(0)
        .spec(&json!({"nodeName": name}))
        .resources(&json!({"requests": {"cpu": "10k"}}));
    kubectl.apply(&large.to_string());
    kubectl.wait_value("pod/large", "/status/reason", &json!("OutOfcpu"));
    let message = kubectl.value("pod/large", "/status/message");
    let expected = "Pod was rejected: Node didn't have enough resource: cpu, requested: 10000000, used: ";
    assert!(message.as_str().unwrap().starts_with(expected), "{message}");
}

#[e2e_test("a NoSchedule taint repels Pods without a toleration")]
fn no_schedule_taint_repels_pods() {
    let cluster = Cluster::start(&[]);
    let shell = Shell::new(cluster.kubectl());
    let kubectl = shell.kubectl();
    let name = node(kubectl);
    let line = |text: &str| text.replace("NODE", &name);
    shell.check(&[
        (&line("kubectl taint nodes NODE disk=slow:NoSchedule"), 0, &line("node/NODE tainted")),
        (
            &line("kubectl taint nodes NODE disk=fast:NoSchedule"),
            1,
            &line("error: node NODE already has disk taint(s) with same effect(s) and --overwrite is false"),
        ),
        (&line("kubectl taint nodes NODE disk=fast:NoSchedule --overwrite"), 0, &line("node/NODE modified")),
        (
            &line("kubectl taint nodes NODE disk=fast:Never"),
            1,
            "error: invalid taint effect: Never, unsupported taint effect...",
        ),
        (&line("kubectl describe node NODE"), 0, "... Taints: disk=fast:NoSchedule ..."),
    ]);
    let tolerating = |toleration: Value| json!({"tolerations": [toleration]});
    kubectl.apply(&pod("none").to_string());
    kubectl.apply(&pod("other").spec(&tolerating(json!({"key": "disk", "value": "slow"}))).to_string());
    kubectl.apply(
        &pod("equal").spec(&tolerating(json!({"key": "disk", "value": "fast", "effect": "NoSchedule"}))).to_string(),
    );
    kubectl.apply(&pod("exists").spec(&tolerating(json!({"key": "disk", "operator": "Exists"}))).to_string());
    kubectl.apply(&pod("all").spec(&tolerating(json!({"operator": "Exists"}))).to_string());
    for runs in ["equal", "exists", "all"] {
        kubectl.wait_ready(runs);
    }
    for waits in ["none", "other"] {
        wait_for_unschedulable(kubectl, waits, "1 node(s) had untolerated taint(s)", HOPELESS);
    }
    // A removed taint repels no Pod, and PreferNoSchedule does not block scheduling.
    shell.check(&[
        (&line("kubectl taint nodes NODE disk:NoSchedule-"), 0, &line("node/NODE untainted")),
        (&line("kubectl taint nodes NODE disk-"), 1, "error: taint \"disk\" not found"),
        (&line("kubectl taint nodes NODE disk=slow:PreferNoSchedule"), 0, &line("node/NODE tainted")),
    ]);
    kubectl.wait_ready("none");
    kubectl.wait_ready("other");
}

#[e2e_test("a cordoned node gets no new Pods")]
fn cordoned_node_gets_no_pods() {
    let cluster = Cluster::start(&[]);
    let shell = Shell::new(cluster.kubectl());
    let kubectl = shell.kubectl();
    let name = node(kubectl);
    let line = |text: &str| text.replace("NODE", &name);
    kubectl.apply(&pod("before").to_string());
    kubectl.wait_ready("before");
    shell.check(&[
        (&line("kubectl cordon NODE"), 0, &line("node/NODE cordoned")),
        (&line("kubectl cordon NODE"), 0, &line("node/NODE already cordoned")),
        (
            "kubectl get nodes",
            0,
            &line("NAME STATUS ROLES AGE VERSION NODE Ready,SchedulingDisabled <none> ... v1.35..."),
        ),
        ("kubectl get nodes --field-selector spec.unschedulable=true -o name", 0, &line("node/NODE")),
        (
            &line("kubectl describe node NODE"),
            0,
            "... Taints: node.kubernetes.io/unschedulable:NoSchedule Unschedulable: true ...",
        ),
    ]);
    kubectl.apply(&pod("after").to_string());
    kubectl.apply(
        &pod("daemon")
            .spec(&json!({"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}))
            .to_string(),
    );
    wait_for_unschedulable(kubectl, "after", "1 node(s) were unschedulable", HOPELESS);
    kubectl.wait_ready("daemon");
    assert_eq!(kubectl.value("pod/before", "/status/phase"), "Running");
    shell.check(&[
        (&line("kubectl uncordon NODE"), 0, &line("node/NODE uncordoned")),
        (&line("kubectl uncordon NODE"), 0, &line("node/NODE already uncordoned")),
        ("kubectl get nodes --no-headers", 0, &line("NODE Ready <none> ... v1.35...")),
    ]);
    kubectl.wait_ready("after");
}

#[e2e_test("extended resources are allocated once")]
fn extended_resources_are_allocated_once(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let (node, resource) = (node(&kubectl), "example.com/dongle");
    let capacity = |count: &Value| {
        let patch = json!({"status": {"capacity": {resource: count}}}).to_string();
        kubectl.args(&["patch", "node", &node, "--subresource=status", "--type=merge", "-p", &patch], "").ok();
    };
    capacity(&json!("1"));
    kubectl.wait_value(&format!("node/{node}"), "/status/allocatable/example.com~1dongle", &json!("1"));
    let asking = json!({"limits": {resource: "1"}});
    kubectl.apply(&pod("first").resources(&asking).to_string());
    kubectl.wait_ready("first");
    kubectl.apply(&pod("second").resources(&asking).to_string());
    wait_for_unschedulable(
        &kubectl,
        "second",
        "1 Insufficient example.com/dongle",
        "No preemption victims found for incoming pod",
    );
    kubectl.run("delete pod first").ok();
    kubectl.wait_ready("second");
    kubectl.run("delete pod second").ok();
    capacity(&Value::Null);
    kubectl.wait_value(&format!("node/{node}"), "/status/allocatable/example.com~1dongle", &Value::Null);
}

#[e2e_test("a Pod waits for its ResourceClaim or PersistentVolumeClaim")]
fn pod_waits_for_its_claims(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl
        .apply(&pod("p").spec(&json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]})).to_string());
    let expected = "0/1 nodes are available: resourceclaim.resource.k8s.io \"mine\" not found.";
    wait_for("the Event about the claim", std::time::Duration::from_secs(60), || {
        let events = kubectl.events("p");
        let reported = events.iter().any(|(reason, text)| reason == "FailedScheduling" && text == expected);
        if reported { Ok(()) } else { Err(format!("{events:?}")) }
    });
    assert_eq!(kubectl.value("pod/p", "/status/phase"), "Pending");
    kubectl.run("delete pod p").ok();
}
