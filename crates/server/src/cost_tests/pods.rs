//! Pods with long lists.

use super::{CostRequest, Requests, list};

const PODS_PATH: &str = "/api/v1/namespaces/default/pods";
const CONTAINER: &str = r#"{"name":"a","image":"i""#;

/// Returns a Pod with additional fields of its container and spec.
fn pod(container: &str, spec: &str) -> Vec<CostRequest> {
    let body = format!(
        r#"{{"metadata":{{"name":"p"}},"spec":{{"automountServiceAccountToken":false,"containers":[{CONTAINER}{container}}}]{spec}}}}}"#
    );
    let account = r#"{"metadata":{"name":"default"}}"#.to_owned();
    vec![CostRequest::post("/api/v1/namespaces/default/serviceaccounts", account), CostRequest::post(PODS_PATH, body)]
}

/// Returns a Pod with a list in its container.
fn in_container(field: &str, items: &str) -> Vec<CostRequest> {
    pod(&format!(r#","{field}":[{items}]"#), "")
}

/// Returns a Pod with a list in its spec.
fn in_spec(field: &str, items: &str) -> Vec<CostRequest> {
    pod("", &format!(r#","{field}":[{items}]"#))
}

pub(super) const PODS: &[(&str, u16, Requests)] = &[
    ("variables", 201, |length| in_container("env", &list(length, |i| format!(r#"{{"name":"V{i}"}}"#)))),
    ("duplicate variables", 201, |length| in_container("env", &list(length, |_| r#"{"name":"V"}"#.to_owned()))),
    ("duplicate ports", 201, |length| in_container("ports", &list(length, |_| r#"{"containerPort":1}"#.to_owned()))),
    ("host ports", 201, |length| {
        let port = |i| format!(r#"{{"containerPort":1,"hostPort":{}}}"#, i % 65_000 + 1);
        in_container("ports", &list(length, port))
    }),
    ("mounts and devices", 422, |length| {
        let mounts = list(length / 2, |i| format!(r#"{{"name":"v{i}","mountPath":"/{i}"}}"#));
        let devices = list(length / 2, |i| format!(r#"{{"name":"v{i}","devicePath":"/{i}"}}"#));
        pod(&format!(r#","volumeMounts":[{mounts}],"volumeDevices":[{devices}]"#), "")
    }),
    ("containers", 201, |length| {
        let containers = list(length, |i| format!(r#"{{"name":"c{i}","image":"i"}}"#));
        in_spec("initContainers", &containers)
    }),
    ("containers and claims", 422, |length| {
        let container = |i| format!(r#"{{"name":"c{i}","image":"i","resources":{{"claims":[{{"name":"x{i}"}}]}}}}"#);
        let claims = list(length / 2, |i| format!(r#"{{"name":"r{i}","resourceClaimName":"r"}}"#));
        let spec = format!(r#","initContainers":[{}],"resourceClaims":[{claims}]"#, list(length / 2, container));
        pod("", &spec)
    }),
    ("volumes", 201, |length| in_spec("volumes", &list(length, |i| format!(r#"{{"name":"v{i}"}}"#)))),
    ("volumes with claims", 422, |length| {
        let made = list(length / 2, |i| format!(r#"{{"name":"e{i}","ephemeral":{{}}}}"#));
        let used =
            list(length / 2, |i| format!(r#"{{"name":"u{i}","persistentVolumeClaim":{{"claimName":"p-x{i}"}}}}"#));
        in_spec("volumes", &format!("{made},{used}"))
    }),
    ("conflicting files of a volume", 422, |length| {
        let files = list(length, |_| r#"{"key":"k","path":"a"}"#.to_owned());
        in_spec(
            "volumes",
            &format!(r#"{{"name":"v","projected":{{"sources":[{{"secret":{{"name":"s","items":[{files}]}}}}]}}}}"#),
        )
    }),
    ("conflicting files of a ConfigMap", 201, |length| {
        let files = list(length, |_| r#"{"key":"k","path":"a"}"#.to_owned());
        in_spec("volumes", &format!(r#"{{"name":"v","configMap":{{"name":"s","items":[{files}]}}}}"#))
    }),
    ("tolerations", 201, |length| {
        in_spec("tolerations", &list(length, |i| format!(r#"{{"key":"k{i}","operator":"Exists"}}"#)))
    }),
    ("topology spread constraints", 422, |length| {
        let one = |i| {
            format!(r#"{{"maxSkew":1,"topologyKey":"k{i}","whenUnsatisfiable":"DoNotSchedule","labelSelector":{{}}}}"#)
        };
        let bad = |i: usize| if i == 0 { r#"{"maxSkew":0}"#.to_owned() } else { one(i) };
        in_spec("topologySpreadConstraints", &list(length, bad))
    }),
    ("scheduling gates", 201, |length| {
        in_spec("schedulingGates", &list(length, |i| format!(r#"{{"name":"a/g{i}"}}"#)))
    }),
    ("host aliases", 201, |length| in_spec("hostAliases", &list(length, |_| r#"{"ip":"1.1.1.1"}"#.to_owned()))),
    ("image pull secrets", 201, |length| {
        in_spec("imagePullSecrets", &list(length, |i| format!(r#"{{"name":"s{i}"}}"#)))
    }),
    ("label keys of an affinity", 422, |length| {
        let keys = |prefix: &str| list(length / 2, |i| format!(r#""{prefix}{i}""#));
        let term = format!(
            r#"{{"topologyKey":"k","labelSelector":{{}},"matchLabelKeys":[{}],"mismatchLabelKeys":[{}]}}"#,
            keys("a"),
            keys("a")
        );
        let affinity =
            format!(r#","affinity":{{"podAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":[{term}]}}}}"#);
        pod("", &affinity)
    }),
    ("AppArmor annotations", 422, |length| {
        let annotations =
            list(length / 2, |i| format!(r#""container.apparmor.security.beta.kubernetes.io/c{i}":"unconfined""#));
        let containers = list(length / 2, |i| format!(r#"{{"name":"d{i}","image":"i"}}"#));
        let body = format!(
            r#"{{"metadata":{{"name":"p","annotations":{{{annotations}}}}},"spec":{{"containers":[{containers}]}}}}"#
        );
        vec![CostRequest::post(PODS_PATH, body)]
    }),
];
