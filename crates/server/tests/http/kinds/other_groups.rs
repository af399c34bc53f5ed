//! `scheduling.k8s.io`, `rbac.authorization.k8s.io`, `policy` and other groups.

use super::*;

#[tokio::test]
async fn priority_classes() {
    let api = TestApi::new().await;
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = |name: &str, value: i64| json!({"metadata": {"name": name}, "value": value});
    let returned = api.check(get_table(path), 200, json!({})).await.body;
    let columns: Vec<&Value> = returned["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(columns, ["Name", "Value", "Global-Default", "Age", "PreemptionPolicy"]);
    let names: Vec<&Value> = returned["rows"].as_array().unwrap().iter().map(|row| &row["cells"][0]).collect();
    assert_eq!(names, ["system-cluster-critical", "system-node-critical"]);
    api.check(post(path, &class("high", 1000)), 201, json!({"preemptionPolicy": "PreemptLowerPriority"})).await;
    let invalid = |name: &str, message: &str| json!({"message": format!("PriorityClass.scheduling.k8s.io {name:?} is invalid: {message}")});
    for (name, value, message) in [
        (
            "system-mine",
            1,
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-mine is not a known system priority class",
        ),
        ("top", 1_000_000_001, "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"),
    ] {
        api.check(post(path, &class(name, value)), 422, invalid(name, message)).await;
    }
    let change = merge_patch(format!("{path}/high"), &json!({"value": 5}));
    api.check(change, 422, invalid("high", "value: Forbidden: may not be changed in an update.")).await;
}

#[tokio::test]
async fn pods_get_the_priority_of_their_class() {
    let api = TestApi::new().await;
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let claim = |name: &str, class: &str| {
        let mut pod = pod(name);
        if !class.is_empty() {
            pod["spec"]["priorityClassName"] = json!(class);
        }
        pod
    };
    let polite = json!({"metadata": {"name": "polite"}, "value": -7, "preemptionPolicy": "Never"});
    api.check(post(path, &polite), 201, json!({})).await;
    let spec = json!({"priority": -7, "preemptionPolicy": "Never", "priorityClassName": "polite"});
    api.check(post(PODS, &claim("a", "polite")), 201, json!({"spec": spec})).await;
    api.check(post(PODS, &claim("b", "")), 201, json!({"spec": {"priority": 0, "priorityClassName": null}})).await;
    api.check(post(PODS, &claim("c", "system-node-critical")), 201, json!({"spec": {"priority": 2_000_001_000}})).await;
    let message = "pods \"d\" is forbidden: no PriorityClass with name none was found";
    api.check(post(PODS, &claim("d", "none")), 403, json!({"reason": "Forbidden", "message": message})).await;
    let mut own = claim("d", "polite");
    own["spec"]["priority"] = json!(3);
    let message = "pods \"d\" is forbidden: the integer value of priority (3) must not be provided in pod spec; priority admission controller computed -7 from the given PriorityClass name";
    api.check(post(PODS, &own), 403, json!({"message": message})).await;
    // Only one class may be the global default.
    let usual = |name: &str| json!({"metadata": {"name": name}, "value": 10, "globalDefault": true});
    api.check(post(path, &usual("usual")), 201, json!({})).await;
    let message = "priorityclasses.scheduling.k8s.io \"also\" is forbidden: PriorityClass \"usual\" is already marked as default. Only one default can exist";
    api.check(post(path, &usual("also")), 403, json!({"message": message})).await;
    api.check(post(PODS, &claim("e", "")), 201, json!({"spec": {"priority": 10, "priorityClassName": "usual"}})).await;
}

#[tokio::test]
async fn roles() {
    KindCase {
        path: "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
        discovery: json!({"singularName": "role"}),
        manifest: json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "read:pods"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        made: json!({"rules": [{"verbs": ["get"]}]}),
        invalid: &[
            (
                r#"{"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": []}]}"#,
                "rules[0].verbs: Required value: verbs must contain at least one value",
            ),
            (
                r#"{"rules": [{"resources": ["pods"], "verbs": ["get"]}]}"#,
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
            ),
            (
                r#"{"rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]}"#,
                "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
            ),
        ],
        columns: "Name|Created At",
        cells: json!(["read:pods", null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn cluster_roles() {
    KindCase {
        path: "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        discovery: json!({"singularName": "clusterrole"}),
        manifest: json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "health"},
            "rules": [{"nonResourceURLs": ["/healthz"], "verbs": ["get"]}]}),
        made: json!({"rules": [{"nonResourceURLs": ["/healthz"]}]}),
        invalid: &[(
            r#"{"rules": [{"nonResourceURLs": ["/x"], "resources": ["pods"], "verbs": ["get"]}]}"#,
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular resources and non-resource URLs",
        ), (
            r#"{"aggregationRule": {}}"#,
            "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil",
        )],
        columns: "Name|Created At",
        cells: json!(["health", null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn role_bindings() {
    let binding = |kind: &str, role: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "b"},
            "roleRef": {"kind": role, "name": "r"},
            "subjects": [{"kind": "User", "name": "ann"}, {"kind": "Group", "name": "all"}, {"kind": "ServiceAccount", "namespace": "n", "name": "a"}]})
    };
    let group = "rbac.authorization.k8s.io";
    KindCase {
        path: "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        discovery: json!({"singularName": "rolebinding"}),
        manifest: binding("RoleBinding", "Role"),
        made: json!({"roleRef": {"apiGroup": group}, "subjects": [{"apiGroup": group}, {"apiGroup": group}, {"apiGroup": null}]}),
        invalid: &[
            (r#"{"roleRef": {"kind": "Rule"}}"#, "roleRef.kind: Unsupported value: \"Rule\": supported values: \"Role\", \"ClusterRole\""),
            (r#"{"roleRef": {"name": null}}"#, "roleRef.name: Required value"),
        ],
        columns: "Name|Role|Age|Users|Groups|ServiceAccounts",
        cells: json!(["b", "Role/r", null, "ann", "all", "n/a"]),
    }
    .check()
    .await;
    // A ServiceAccount without a namespace is in that of the binding.
    let api = TestApi::new().await;
    let mut near = binding("RoleBinding", "Role");
    near["subjects"] = json!([{"kind": "ServiceAccount", "name": "a"}]);
    api.check(post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &near), 201, json!({})).await;
    KindCase {
        path: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        discovery: json!({"singularName": "clusterrolebinding"}),
        manifest: binding("ClusterRoleBinding", "ClusterRole"),
        made: json!({"roleRef": {"apiGroup": group}}),
        invalid: &[
            (
                r#"{"roleRef": {"kind": "Role"}}"#,
                "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
            ),
            (r#"{"subjects": [{"kind": "ServiceAccount", "name": "a"}]}"#, "subjects[0].namespace: Required value"),
        ],
        columns: "Name|Role|Age|Users|Groups|ServiceAccounts",
        cells: json!(["b", "ClusterRole/r", null, "ann", "all", "n/a"]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn pod_disruption_budgets() {
    KindCase {
        path: "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        discovery: json!({"singularName": "poddisruptionbudget", "shortNames": ["pdb"], "status": true}),
        manifest: json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "p"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}),
        made: json!({"status": {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}}),
        invalid: &[
            (
                r#"{"spec": {"minAvailable": -1}}"#,
                "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                r#"{"spec": {"minAvailable": "101%"}}"#,
                "spec.minAvailable: Invalid value: \"101%\": must not be greater than 100%",
            ),
        ],
        columns: "Name|Min Available|Max Unavailable|Allowed Disruptions|Age",
        cells: json!(["p", "1", "N/A", 0, null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn endpoint_slices() {
    KindCase {
        path: "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        discovery: json!({"singularName": "endpointslice"}),
        manifest: json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "s"}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]}),
        made: json!({"metadata": {"generation": 1}, "ports": [{"name": "", "port": 80, "protocol": "TCP"}]}),
        invalid: &[
            (
                r#"{"endpoints": [{"addresses": ["10.0.0.1"], "hostname": "A_"}]}"#,
                "endpoints[0].hostname: Invalid value: \"A_\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            ),
            (
                r#"{"endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "A_"}]}"#,
                "endpoints[0].nodeName: Invalid value: \"A_\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ),
            (
                r#"{"endpoints": [{"addresses": ["10.0.0.1"], "hints": {"forZones": [{"name": "a"}, {"name": "a"}], "forNodes": [{"name": "n"}, {"name": "n"}]}}]}"#,
                "[endpoints[0].hints.forZones[1].name: Duplicate value: \"a\", endpoints[0].hints.forNodes[1].name: Duplicate value: \"n\"]",
            ),
            (
                r#"{"endpoints": [{"addresses": ["10.0.0.1"], "hints": {"forZones": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}, {"name": "e"}, {"name": "f"}, {"name": "g"}, {"name": "h"}, {"name": "i"}]}}]}"#,
                "endpoints[0].hints.forZones: Too many: 9: must have at most 8 items",
            ),
            (r#"{"ports": [{"name": "A_"}]}"#, "ports[0].name: Invalid value: \"A_\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"),
            (
                r#"{"ports": [{"name": "a", "appProtocol": "a/b/c"}]}"#,
                "ports[0].appProtocol: Invalid value: \"a/b/c\": a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
            ),
            (
                r#"{"addressType": "FQDN", "endpoints": [{"addresses": ["A_B", "single"]}, {"addresses": ["a.b."]}]}"#,
                "[endpoints[0].addresses[0]: Invalid value: \"A_B\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'), endpoints[0].addresses[1]: Invalid value: \"single\": should be a domain with at least two segments separated by dots]",
            ),
            (r#"{"addressType": "IPv5"}"#, "addressType: Unsupported value: \"IPv5\": supported values: \"FQDN\", \"IPv4\", \"IPv6\""),
            (r#"{"endpoints": [{"addresses": []}]}"#, "endpoints[0].addresses: Required value: must contain at least 1 address"),
        ],
        columns: "Name|AddressType|Ports|Endpoints|Age",
        cells: json!(["s", "IPv4", "80", "10.0.0.1", null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn removed_fields_are_not_stored() {
    let api = TestApi::new().await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let endpoint = json!({"addresses": ["10.0.0.1"], "deprecatedTopology": {"kubernetes.io/hostname": "x"}});
    let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [endpoint]});
    let created = api.check(post(slices, &slice), 201, json!({})).await.body;
    assert_eq!(created["endpoints"][0]["deprecatedTopology"], Value::Null);
    // The feature gate of coordinated leader election is off.
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease =
        json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "strategy": "foo", "preferredHolder": "b"}});
    let created = api.check(post(leases, &lease), 201, json!({})).await.body;
    assert_eq!(created["spec"], json!({"holderIdentity": "a"}));
    let change = json!({"spec": {"holderIdentity": "c", "strategy": "foo"}});
    let changed = api.check(merge_patch(format!("{leases}/l"), &change), 200, json!({})).await.body;
    assert_eq!(changed["spec"], json!({"holderIdentity": "c"}));
}
