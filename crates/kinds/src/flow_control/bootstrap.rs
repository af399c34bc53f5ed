//! Mandatory and suggested FlowSchemas and PriorityLevelConfigurations
//! (`k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap`).

use serde_json::{Value, json};

/// FlowSchema and priority level without limits.
pub const EXEMPT: &str = "exempt";
/// FlowSchema and priority level of requests that match no other.
pub const CATCH_ALL: &str = "catch-all";

fn metadata(name: &str) -> Value {
    json!({"name": name, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}})
}

fn level(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration", "metadata": metadata(name), "spec": spec})
}

/// Returns a priority level with queues.
fn queued(name: &str, shares: u32, lendable: u32, queues: u32, hand: u32) -> Value {
    let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
    let limited = json!({"nominalConcurrencyShares": shares, "lendablePercent": lendable,
        "limitResponse": {"type": "Queue", "queuing": queuing}});
    level(name, json!({"type": "Limited", "limited": limited}))
}

fn schema(name: &str, level: &str, precedence: u32, distinguisher: &str, rule: Value) -> Value {
    let mut spec =
        json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rule]});
    if !distinguisher.is_empty() {
        spec["distinguisherMethod"] = json!({"type": distinguisher});
    }
    json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": metadata(name), "spec": spec})
}

fn groups(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
}

fn users(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "User", "user": {"name": name}})).collect()
}

fn kube_system_service_accounts() -> Value {
    json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}})
}

/// Returns a rule that matches all requests of these subjects.
fn all_requests(subjects: Vec<Value>) -> Value {
    let all =
        json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]});
    json!({"subjects": subjects, "resourceRules": [all], "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]})
}

const ALL_GROUPS: [&str; 2] = ["system:unauthenticated", "system:authenticated"];
const CONTROLLERS: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";
const NODES: &str = "system:nodes";

/// Returns the mandatory FlowSchemas and PriorityLevelConfigurations.
pub fn mandatory() -> (Vec<Value>, Vec<Value>) {
    let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let limited = json!({"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}});
    let schemas = vec![
        schema(EXEMPT, EXEMPT, 1, "", all_requests(groups(&["system:masters"]))),
        schema(CATCH_ALL, CATCH_ALL, 10_000, "ByUser", all_requests(groups(&ALL_GROUPS))),
    ];
    (schemas, vec![level(EXEMPT, exempt), level(CATCH_ALL, json!({"type": "Limited", "limited": limited}))])
}

/// Returns all mandatory and suggested FlowSchemas and PriorityLevelConfigurations.
pub fn all() -> (Vec<Value>, Vec<Value>) {
    let (mut schemas, mut levels) = mandatory();
    levels.extend([
        queued("system", 30, 33, 64, 6),
        queued("node-high", 40, 25, 64, 6),
        queued("leader-election", 10, 0, 16, 4),
        queued("workload-high", 40, 50, 128, 6),
        queued("workload-low", 100, 90, 128, 6),
        queued("global-default", 20, 50, 128, 6),
    ]);
    let probes = json!({"subjects": groups(&ALL_GROUPS),
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]});
    let leases = |verbs: &[&str]| json!({"verbs": verbs, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]});
    let mut leaders = users(&[CONTROLLERS, SCHEDULER]);
    leaders.push(kube_system_service_accounts());
    let leaders = json!({"subjects": leaders, "resourceRules": [leases(&["get", "create", "update"])]});
    let nodes = json!({"verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"], "clusterScope": true, "namespaces": ["*"]});
    let node_high = json!({"subjects": groups(&[NODES]), "resourceRules": [nodes, leases(&["*"])]});
    let (user, namespace) = ("ByUser", "ByNamespace");
    schemas.extend([
        schema("probes", EXEMPT, 2, "", probes),
        schema("system-leader-election", "leader-election", 100, user, leaders),
        schema("system-node-high", "node-high", 400, user, node_high),
        schema("system-nodes", "system", 500, user, all_requests(groups(&[NODES]))),
        schema("kube-controller-manager", "workload-high", 800, namespace, all_requests(users(&[CONTROLLERS]))),
        schema("kube-scheduler", "workload-high", 800, namespace, all_requests(users(&[SCHEDULER]))),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            namespace,
            all_requests(vec![kube_system_service_accounts()]),
        ),
        schema("service-accounts", "workload-low", 9000, user, all_requests(groups(&["system:serviceaccounts"]))),
        schema("global-default", "global-default", 9900, user, all_requests(groups(&ALL_GROUPS))),
    ]);
    (schemas, levels)
}
