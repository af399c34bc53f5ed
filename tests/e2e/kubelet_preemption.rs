//! Preemption by the kubelet for critical Pods.

use serde_json::json;
use tests::{Cluster, Kubectl, PodBuilder, e2e_test};

fn pod(name: &str, cpu: Option<i64>) -> PodBuilder {
    let resources = cpu.map_or(json!({}), |milli| json!({"requests": {"cpu": format!("{milli}m")}}));
    PodBuilder::new(name)
        .spec(&json!({"nodeName": "node-1"}))
        .grace_period(5)
        .script("trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done")
        .resources(&resources)
}

/// Returns the node's allocatable CPU in millicores.
fn cpus(kubectl: &Kubectl) -> i64 {
    let text = kubectl.value("node/node-1", "/status/allocatable/cpu").as_str().unwrap().to_owned();
    text.strip_suffix('m').map_or_else(|| text.parse::<i64>().unwrap() * 1000, |milli| milli.parse().unwrap())
}

#[e2e_test("the kubelet preempts as few Pods as possible for a critical Pod")]
fn critical_pod_preempts_as_few_pods_as_possible() {
    let cluster = Cluster::start(&["--node-name", "node-1"]);
    let kubectl = cluster.kubectl_in("default");
    let all = cpus(&kubectl);
    for (name, cpu) in [("idle", None), ("small", Some(100)), ("large", Some(all - 200))] {
        kubectl.apply(&pod(name, cpu).to_string());
        kubectl.wait_ready(name);
    }
    // A Pod that is not critical is rejected.
    kubectl.apply(&pod("ordinary", Some(300)).to_string());
    kubectl.wait_value("pod/ordinary", "/status/reason", &json!("OutOfcpu"));
    let critical = json!({"priorityClassName": "system-node-critical"});
    kubectl.apply(&pod("critical", Some(all - 100)).spec(&critical).to_string());
    kubectl.wait_ready("critical");

    let status = kubectl.value("pod/large", "/status");
    let words = ["phase", "reason", "message"].map(|field| status[field].as_str().unwrap().to_owned());
    assert_eq!(words, ["Failed", "Preempting", "Preempted in order to admit critical pod"]);
    let conditions = status["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|c| c["type"] == "DisruptionTarget").unwrap();
    let message = "Pod was preempted by Kubelet to accommodate a critical pod.";
    assert_eq!((&target["reason"], &target["message"]), (&json!("TerminationByKubelet"), &json!(message)));
    let ended = status["containerStatuses"][0]["state"]["terminated"]["finishedAt"].as_str().unwrap().to_owned();
    let started = kubectl.value("pod/critical", "/status/containerStatuses/0/state/running/startedAt");
    assert!(ended.as_str() <= started.as_str().unwrap(), "{ended} {started}");
    assert_eq!(kubectl.value("pod/small", "/status/phase"), "Running");
    assert_eq!(kubectl.value("pod/idle", "/status/phase"), "Running");
    let events = kubectl.run("get events --field-selector reason=Preempting -o wide").ok();
    assert!(events.contains("pod/large") && events.contains("Preempted in order to admit critical pod"), "{events}");
    let metrics = kubectl.run("get --raw /api/v1/nodes/node-1/proxy/metrics").ok();
    assert!(metrics.contains("kubelet_preemptions{preemption_signal=\"cpu\"} 1\n"), "{metrics}");

    // A Pod that cannot fit after any preemption is rejected.
    kubectl.apply(&pod("too-large", Some(all + 100)).spec(&critical).to_string());
    kubectl.wait_value("pod/too-large", "/status/reason", &json!("UnexpectedAdmissionError"));
    assert_eq!(kubectl.value("pod/small", "/status/phase"), "Running");
}
