//! Table tests: assigned Pods and a preemptor in; a node and its victims, or upstream's message, out.
#![expect(clippy::needless_pass_by_value, reason = "rows of a table read better without references")]

use super::*;
use crate::schedule_pod::{Decision, schedule_pod};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

/// Returns a node with 4 CPUs and capacity for 10 Pods.
fn node(name: &str) -> Node {
    let allocatable = json!({ "cpu": "4", "memory": "8Gi", "pods": "10" });
    serde_json::from_value(json!({ "metadata": { "name": name }, "status": { "allocatable": allocatable } }))
        .expect("a node")
}

fn pod(name: &str, priority: i32, cpu: &str) -> Value {
    json!({
        "metadata": { "name": name, "uid": name, "namespace": "default", "labels": { "app": name } },
        "spec": { "priority": priority, "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] },
        "status": {},
    })
}

/// Returns a Pod on a node; it started at `second`.
fn assigned(node: &str, name: &str, priority: i32, cpu: &str, second: u32) -> Value {
    let mut pod = pod(name, priority, cpu);
    pod["spec"]["nodeName"] = node.into();
    pod["status"]["startTime"] = format!("2026-01-01T00:00:{second:02}Z").into();
    pod
}

fn parsed(pod: Value) -> Pod {
    serde_json::from_value(pod).expect("a Pod")
}

fn cache(nodes: &[&str], pods: Vec<Value>) -> Cache {
    let mut cache = Cache::default();
    for name in nodes {
        cache.set_node(&node(name));
    }
    for pod in pods {
        cache.set_pod(&parsed(pod));
    }
    cache
}

/// Adds a PodDisruptionBudget that allows `allowed` disruptions.
fn budget(cache: &mut Cache, name: &str, selector: Value, allowed: i32, disrupted: Value) {
    let budget = json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "selector": selector },
        "status": { "disruptionsAllowed": allowed, "disruptedPods": disrupted,
            "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0 },
    });
    cache.budgets.insert(format!("default/{name}"), serde_json::from_value(budget).expect("a budget"));
}

/// Adds a claim to the Pod.
fn with_claim(mut pod: Value) -> Value {
    pod["spec"]["volumes"] = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }]);
    pod
}

/// Adds the claim, as `ReadWriteOncePod`.
fn with_exclusive_claim(mut cache: Cache) -> Cache {
    let bound = json!({
        "metadata": { "name": "c", "namespace": "default", "uid": "1",
            "annotations": { "pv.kubernetes.io/bind-completed": "yes" } },
        "spec": { "accessModes": ["ReadWriteOncePod"], "volumeName": "v" }, "status": { "phase": "Bound" },
    });
    cache.storage.claims.insert("default/c".into(), serde_json::from_value(bound).expect("a claim"));
    let volume = json!({ "metadata": { "name": "v" }, "spec": {} });
    cache.storage.volumes.insert("v".into(), serde_json::from_value(volume).expect("a volume"));
    cache
}

/// Checks the decision; `expected` is `node: victims`, the message's part on preemption, or the decision.
#[track_caller]
fn check(cache: &Cache, pod: Value, expected: &str) {
    let preemption_message = |message: &str| message.split_once("preemption: ").expect("a message").1.to_owned();
    let decision = match schedule_pod(&parsed(pod), cache) {
        Decision::Preempt(preemption) => {
            let names: Vec<&str> = preemption.victims.iter().map(|victim| victim.name.as_str()).collect();
            format!("{}: {}", preemption.node, names.join(" "))
        }
        Decision::Unschedulable(message) => preemption_message(&message),
        Decision::UnschedulableKeepingNomination(message) => format!("nominated, {}", preemption_message(&message)),
        Decision::Bind(node) => format!("bound to {node}"),
        Decision::BindVolumes(orders) => panic!("{orders:?}"),
    };
    assert_eq!(decision, expected);
}

#[test]
fn preemption_selects_only_lower_priority_victims() {
    let full = |priority| cache(&["n"], vec![assigned("n", "a", priority, "4", 0)]);
    let none = "0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    check(&full(9), pod("p", 10, "1"), "n: a");
    check(&full(10), pod("p", 10, "1"), none);
    check(&full(11), pod("p", 10, "1"), none);
    check(&full(-1), pod("p", 0, "1"), "n: a");
    let mut never = pod("p", 10, "1");
    never["spec"]["preemptionPolicy"] = "Never".into();
    check(&full(9), never, "nominated, not eligible due to preemptionPolicy=Never.");
}

#[test]
fn victims_are_minimal_and_least_important() {
    let row = |pods: Vec<Value>| cache(&["n"], pods);
    let two = vec![assigned("n", "low", 1, "2", 0), assigned("n", "mid", 2, "2", 0)];
    check(&row(two.clone()), pod("p", 10, "2"), "n: low");
    check(&row(two.clone()), pod("p", 10, "3"), "n: mid low");
    check(&row(two), pod("p", 2, "2"), "n: low");
    // Among equal priorities, the longest running Pods are spared; a Pod without a start time is the newest.
    let equal = vec![assigned("n", "a", 1, "2", 9), assigned("n", "b", 1, "2", 3)];
    check(&row(equal.clone()), pod("p", 10, "2"), "n: a");
    let mut pods = equal;
    pods[1]["status"] = json!({});
    check(&row(pods), pod("p", 10, "2"), "n: b");
}

#[test]
fn preemption_without_benefit_selects_no_victims() {
    let mut both = cache(&["a", "b"], vec![assigned("a", "x", 20, "3", 0), assigned("a", "y", 1, "1", 0)]);
    both.set_pod(&parsed(assigned("b", "z", 20, "4", 0)));
    check(
        &both,
        pod("p", 10, "2"),
        "0/2 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod.",
    );
    check(&both, pod("p", 10, "5"), "0/2 nodes are available: 2 Preemption is not helpful for scheduling.");
    check(&both, pod("p", 10, "1"), "a: y");
}

#[test]
fn preemption_frees_ports_pod_capacity_and_claims() {
    let port =
        |pod: &mut Value| pod["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 1, "hostPort": 80 }]);
    let (mut holder, mut preemptor) = (assigned("n", "holder", 1, "1", 0), pod("p", 10, "1"));
    port(&mut holder);
    port(&mut preemptor);
    check(&cache(&["n"], vec![holder, assigned("n", "other", 0, "1", 0)]), preemptor, "n: holder");
    let many = (0..10).map(|i| assigned("n", &format!("a{i}"), i, "0", 0)).collect();
    check(&cache(&["n"], many), pod("p", 10, "0"), "n: a0");

    let holder = with_claim(assigned("n", "holder", 1, "1", 0));
    let claimed = with_exclusive_claim(cache(&["n", "o"], vec![holder, assigned("o", "other", 0, "4", 0)]));
    check(&claimed, with_claim(pod("p", 10, "1")), "n: holder");
}

#[test]
fn preemption_picks_the_least_disruptive_node() {
    // The lowest maximum priority of victims.
    let row = |a: Vec<Value>, b: Vec<Value>| cache(&["a", "b"], [a, b].concat());
    let one = |node: &str, priority, second| vec![assigned(node, node, priority, "4", second)];
    check(&row(one("a", 3, 0), one("b", 2, 0)), pod("p", 10, "4"), "b: b");
    check(&row(one("a", 2, 0), one("b", 3, 0)), pod("p", 10, "4"), "a: a");
    // The lowest sum of priorities, to which negative ones add, too; that is, fewer victims.
    let two = |node: &str, high, low| {
        let name = |nr: u32| format!("{node}{nr}");
        vec![assigned(node, &name(1), high, "2", 0), assigned(node, &name(2), low, "2", 0)]
    };
    check(&row(two("a", 3, 2), two("b", 3, 1)), pod("p", 10, "4"), "b: b1 b2");
    check(&row(two("a", -5, -5), one("b", -5, 0)), pod("p", 10, "4"), "b: b");
    // The latest start among victims of the highest priority; then the first node.
    check(&row(one("a", 3, 1), one("b", 3, 2)), pod("p", 10, "4"), "b: b");
    check(&row(one("a", 3, 2), one("b", 3, 1)), pod("p", 10, "4"), "a: a");
    check(&row(one("a", 3, 2), one("b", 3, 2)), pod("p", 10, "4"), "a: a");
}

#[test]
fn budget_is_violated_only_as_last_resort() {
    let app = |name: &str| json!({ "matchLabels": { "app": name } });
    let two = || cache(&["n"], vec![assigned("n", "guarded", 1, "2", 0), assigned("n", "free", 5, "2", 0)]);
    let row = |selector: Value, allowed, disrupted: Value, cpu: &str, expected: &str| {
        let mut cache = two();
        budget(&mut cache, "b", selector, allowed, disrupted);
        check(&cache, pod("p", 10, cpu), expected);
    };
    row(app("guarded"), 0, json!({}), "2", "n: free");
    row(app("guarded"), 1, json!({}), "2", "n: guarded");
    row(app("guarded"), 0, json!({}), "4", "n: free guarded");
    // Already counted in the status; empty selector; another namespace.
    row(app("guarded"), 0, json!({ "guarded": "2026-01-01T00:00:00Z" }), "2", "n: guarded");
    row(json!({}), 0, json!({}), "2", "n: guarded");
    row(app("other"), 0, json!({}), "2", "n: guarded");

    // One disruption is allowed for two victims: the more important one uses it.
    let all = json!({ "matchExpressions": [{ "key": "app", "operator": "Exists" }] });
    row(all.clone(), 1, json!({}), "2", "n: free");
    // More victims are better than a protected one on another node.
    let mut nodes = cache(&["a", "b"], vec![assigned("a", "x", 1, "4", 0), assigned("b", "y", 7, "2", 0)]);
    nodes.set_pod(&parsed(assigned("b", "z", 8, "2", 0)));
    budget(&mut nodes, "b", app("x"), 0, json!({}));
    check(&nodes, pod("p", 10, "4"), "b: z y");
    budget(
        &mut nodes,
        "c",
        json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["y", "z"] }] }),
        1,
        json!({}),
    );
    check(&nodes, pod("p", 10, "4"), "a: x");
    let mut elsewhere = two();
    budget(&mut elsewhere, "b", all, 0, json!({}));
    let budget = elsewhere.budgets.get_mut("default/b").expect("a budget");
    Arc::make_mut(budget).metadata.namespace = Some("other".into());
    check(&elsewhere, pod("p", 10, "2"), "n: guarded");
}

#[test]
fn preemptor_waits_for_terminating_victims() {
    let termination = |reason: &str| {
        let mut pod = assigned("a", "x", 1, "4", 0);
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        pod["status"]["conditions"] = json!([{ "type": "DisruptionTarget", "status": "True", "reason": reason }]);
        pod
    };
    let nominated = |mut cache: Cache, node: &str| {
        cache.add_nominated_pod("p", &parsed(pod("p", 10, "4")), node);
        cache
    };
    let waits = "nominated, not eligible due to a terminating pod on the nominated node.";
    let row = |reason: &str| cache(&["a", "b"], vec![termination(reason), assigned("b", "y", 0, "4", 0)]);
    check(&nominated(row("PreemptionByScheduler"), "a"), pod("p", 10, "4"), waits);
    check(&nominated(row("EvictionByEvictionAPI"), "a"), pod("p", 10, "4"), "b: y");
    check(&row("PreemptionByScheduler"), pod("p", 10, "4"), "b: y");
    check(&nominated(row("PreemptionByScheduler"), "b"), pod("p", 10, "4"), "b: y");
    check(&nominated(row("PreemptionByScheduler"), "gone"), pod("p", 10, "4"), "b: y");
    // Requested, and not yet reported by the API.
    let mut ordered = nominated(cache(&["a"], vec![assigned("a", "x", 1, "4", 0)]), "a");
    assert!(ordered.mark_preempted("x") && !ordered.mark_preempted("x"));
    ordered.set_pod(&parsed(assigned("a", "x", 1, "4", 0)));
    check(&ordered, pod("p", 10, "4"), waits);
    ordered.unmark_preempted("x");
    check(&ordered, pod("p", 10, "4"), "a: x");
    // Preemption does not help on the nominated node any more.
    let mut cordoned = nominated(row("PreemptionByScheduler"), "a");
    let mut node = node("a");
    node.spec.get_or_insert_default().unschedulable = Some(true);
    cordoned.set_node(&node);
    check(&cordoned, pod("p", 10, "4"), "b: y");
}

#[test]
fn nominated_pod_blocks_lower_priority_pod() {
    let kept = |priority, cpu: &str| {
        let mut cache = cache(&["a"], vec![]);
        cache.add_nominated_pod("first", &parsed(pod("first", priority, cpu)), "a");
        cache
    };
    let none = "0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    check(&kept(10, "4"), pod("p", 9, "1"), none);
    check(&kept(10, "4"), pod("p", 10, "1"), none);
    check(&kept(10, "4"), pod("p", 11, "1"), "bound to a");
    check(&kept(10, "3"), pod("p", 9, "1"), "bound to a");
    check(&kept(10, "4"), pod("first", 10, "4"), "bound to a");
    // No victims for a Pod that would not fit beside the nominated one.
    let mut full = kept(10, "4");
    full.set_pod(&parsed(assigned("a", "x", 1, "4", 0)));
    check(&full, pod("p", 9, "1"), "0/1 nodes are available: 1 Insufficient cpu.");
    check(&full, pod("p", 11, "1"), "a: x");
    let Decision::Preempt(preemption) = schedule_pod(&parsed(pod("p", 11, "1")), &full) else {
        panic!("no preemption")
    };
    assert_eq!(preemption.lower_nominated.iter().map(|other| other.name.as_str()).collect::<Vec<_>>(), ["first"]);
    assert_eq!(preemption.message, "0/1 nodes are available: 1 Insufficient cpu.");
}

#[test]
fn nominated_node_precedes_higher_scores() {
    let mut both = cache(&["a", "b"], vec![assigned("b", "x", 20, "2", 0)]);
    check(&both, pod("p", 10, "1"), "bound to a");
    both.add_nominated_pod("p", &parsed(pod("p", 10, "1")), "b");
    check(&both, pod("p", 10, "1"), "bound to b");
    check(&both, pod("p", 10, "4"), "bound to a");
}

#[test]
fn candidate_search_ends_with_one_without_violations() {
    let names: Vec<String> = (0..250).map(|i| format!("n{i:03}")).collect();
    let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
    // The best node is the last one, which the search does not reach.
    let at = |i: usize, priority| assigned(&names[i], &format!("x{i:03}"), priority, "4", 0);
    let pods: Vec<Value> = (0..250).map(|i| at(i, if i == 249 { 1 } else { 5 })).collect();
    check(&cache(&nodes, pods.clone()), pod("p", 10, "4"), "n000: x000");
    let mut guarded = cache(&nodes, pods);
    let values: Vec<String> = (0..249).map(|i| format!("x{i:03}")).collect();
    budget(
        &mut guarded,
        "b",
        json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": values }] }),
        0,
        json!({}),
    );
    check(&guarded, pod("p", 10, "4"), "n249: x249");
}

/// Returns a Pod with required (anti-)affinity to an app, by host.
fn caring(name: &str, priority: i32, kind: &str, app: &str) -> Value {
    let term = json!({ "topologyKey": "host", "labelSelector": { "matchLabels": { "app": app } } });
    let mut pod = pod(name, priority, "1");
    pod["spec"]["affinity"] = json!({ kind: { "requiredDuringSchedulingIgnoredDuringExecution": [term] } });
    pod
}

/// Returns the cluster with a `host` label on each node.
fn hosts(names: &[&str], pods: Vec<Value>) -> Cache {
    let mut cache = cache(names, pods);
    for name in names {
        let mut host = node(name);
        host.metadata.labels = Some([("host".to_owned(), (*name).to_owned())].into());
        cache.set_node(&host);
    }
    cache
}

#[test]
fn preemption_evicts_anti_affine_and_spares_affine_pods() {
    let others = || vec![assigned("a", "web", 0, "1", 1), assigned("a", "db", 0, "1", 2)];
    check(&hosts(&["a"], others()), caring("high", 9, "podAntiAffinity", "web"), "a: web");
    // The simulation removes all Pods and adds them again: the cycle state is restored for the next node.
    let two = [others(), vec![assigned("b", "web-b", 0, "4", 0)]].concat();
    check(&hosts(&["a", "b"], two), caring("high", 9, "podAntiAffinity", "web"), "a: web");
    // Affinity to a lower-priority Pod yields no victims: as upstream, the simulation removes all of them.
    let full = vec![assigned("a", "web", 0, "2", 1), assigned("a", "db", 0, "2", 2)];
    let alone = "0/1 nodes are available: 1 node(s) didn't match pod affinity rules.";
    check(&hosts(&["a"], full), caring("high", 9, "podAffinity", "web"), alone);
}

#[test]
fn nominated_pods_anti_affinity_is_respected() {
    let mut cache = hosts(&["a"], vec![]);
    cache.add_nominated_pod("high", &parsed(caring("high", 9, "podAntiAffinity", "web")), "a");
    let refused = schedule_pod(&parsed(pod("web", 0, "1")), &cache);
    assert!(
        matches!(&refused, Decision::Unschedulable(message) if message.contains("existing pods anti-affinity")),
        "{refused:?}"
    );
    assert_eq!(schedule_pod(&parsed(pod("other", 0, "1")), &cache), Decision::Bind("a".to_owned()));
}

#[test]
fn exclusive_claim_is_reserved_for_nominated_pod() {
    let mut cache = with_exclusive_claim(hosts(&["a"], vec![]));
    cache.add_nominated_pod("high", &parsed(with_claim(pod("high", 9, "1"))), "a");
    let refused = schedule_pod(&parsed(with_claim(pod("low", 0, "1"))), &cache);
    assert!(
        matches!(&refused, Decision::Unschedulable(message) if message.contains("ReadWriteOncePod")),
        "{refused:?}"
    );
    check(&cache, with_claim(pod("higher", 10, "1")), "bound to a");
    check(&cache, pod("other", 0, "1"), "bound to a");
}

#[test]
fn missing_affinity_does_not_trigger_preemption() {
    let mut cache = hosts(&["a"], vec![assigned("a", "low", 0, "3", 0)]);
    cache.add_nominated_pod("web", &parsed(pod("web", 9, "1")), "a");
    let alone = "0/1 nodes are available: 1 node(s) didn't match pod affinity rules.";
    check(&cache, caring("follower", 9, "podAffinity", "web"), alone);
}
