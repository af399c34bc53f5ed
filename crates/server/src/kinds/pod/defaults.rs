//! What upstream's `SetDefaults_Pod` and its kin fill in, and what its admission does: tolerations, priority.

use crate::kinds::fill::{each, inner, set, set_number};
use api::resources::{self, Side};
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Map, Value, json};

/// Text fields of the spec that upstream leaves out when they are empty.
const TEXT: [&str; 8] = [
    "nodeName",
    "hostname",
    "subdomain",
    "priorityClassName",
    "serviceAccountName",
    "serviceAccount",
    "schedulerName",
    "restartPolicy",
];
/// Switches that upstream leaves out when they are off.
const SWITCHES: [&str; 3] = ["hostNetwork", "hostPID", "hostIPC"];

pub(super) fn pod(object: &mut Value) {
    if object["spec"].is_null() {
        object["spec"] = json!({});
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    self::spec(spec);
    set(spec, "enableServiceLinks", json!(true));
    let host_network = spec.get("hostNetwork") == Some(&json!(true));
    for list in ["initContainers", "containers"] {
        each(spec, list, requests_from_limits);
        if host_network {
            each(spec, list, ports_of_the_host);
        }
    }
    pod_requests(spec);
}

/// What the spec of a Pod and that of a template of Pods have in common (`SetDefaults_PodSpec`).
pub(in crate::kinds) fn spec(spec: &mut Map<String, Value>) {
    spec.retain(|key, value| {
        !(TEXT.contains(&key.as_str()) && value == "" || SWITCHES.contains(&key.as_str()) && value == &json!(false))
    });
    // The older name of the field counts when the newer is not set; both show the same.
    let account = ["serviceAccountName", "serviceAccount"].iter().find_map(|f| spec.get(*f).cloned());
    let values = [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("securityContext", json!({})),
        ("schedulerName", json!("default-scheduler")),
    ];
    values.into_iter().for_each(|(key, value)| set(spec, key, value));
    for field in ["serviceAccountName", "serviceAccount"] {
        account.iter().for_each(|account| drop(spec.insert(field.to_owned(), account.clone())));
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        each(spec, list, container);
    }
    each(spec, "volumes", volume);
}

/// In the node's network, what a container listens on is the node's port.
fn ports_of_the_host(container: &mut Map<String, Value>) {
    each(container, "ports", |p| {
        let port = p.get("containerPort").and_then(Value::as_i64).unwrap_or(0);
        set_number(p, "hostPort", port);
    });
}

/// Upstream's `ServiceAccount` and `DefaultTolerationSeconds` admission.
pub(super) fn complete(object: &mut Value) {
    // What shows a static Pod has the account of that: none.
    let mirror = super::mirror::is_one(object);
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if !mirror && !spec.contains_key("serviceAccountName") {
        for field in ["serviceAccountName", "serviceAccount"] {
            spec.insert(field.to_owned(), json!("default"));
        }
    }
    tolerations(spec);
}

fn container(c: &mut Map<String, Value>) {
    let policy = pull_policy(c.get("image").and_then(Value::as_str).unwrap_or(""));
    set(c, "imagePullPolicy", policy);
    set(c, "terminationMessagePath", "/dev/termination-log");
    set(c, "terminationMessagePolicy", "File");
    set(c, "resources", json!({}));
    for switch in ["stdin", "stdinOnce", "tty"] {
        if c.get(switch) == Some(&json!(false)) {
            c.remove(switch);
        }
    }
    each(c, "ports", |p| {
        set(p, "protocol", "TCP");
        if p.get("hostPort") == Some(&json!(0)) {
            p.remove("hostPort");
        }
    });
    each(c, "env", |e| {
        if let Some(from) = inner(e, "valueFrom") {
            field_ref(from);
            divisor(from);
        }
    });
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = inner(c, probe) {
            if probe.get("initialDelaySeconds") == Some(&json!(0)) {
                probe.remove("initialDelaySeconds");
            }
            for (key, value) in
                [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
            {
                set_number(probe, key, value);
            }
            handler(probe);
        }
    }
    if let Some(lifecycle) = inner(c, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = inner(lifecycle, hook) {
                handler(hook);
            }
        }
    }
}

fn handler(handler: &mut Map<String, Value>) {
    if let Some(get) = inner(handler, "httpGet") {
        set(get, "path", json!("/"));
        set(get, "scheme", json!("HTTP"));
    }
    if let Some(grpc) = inner(handler, "grpc") {
        let service = grpc.entry("service").or_insert(Value::Null);
        if service.is_null() {
            *service = json!("");
        }
    }
}

fn field_ref(from: &mut Map<String, Value>) {
    if let Some(field) = inner(from, "fieldRef") {
        set(field, "apiVersion", json!("v1"));
    }
}

/// An unset divisor is shown as `0`, as upstream's quantity of nothing.
fn divisor(from: &mut Map<String, Value>) {
    if let Some(resource) = inner(from, "resourceFieldRef") {
        set(resource, "divisor", json!("0"));
    }
}

/// What is limited and not asked for is asked for in full.
fn requests_from_limits(c: &mut Map<String, Value>) {
    let Some(resources) = inner(c, "resources") else { return };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    set(resources, "requests", json!({}));
    if let Some(requests) = inner(resources, "requests") {
        limits.into_iter().for_each(|(key, value)| set(requests, &key, value));
    }
}

/// Where a Pod as a whole has limits, what it does not ask for is what its containers ask for together, or else its limit
/// (`defaultPodRequests`, KEP-2837).
fn pod_requests(spec: &mut Map<String, Value>) {
    let limits = spec.get("resources").and_then(|r| r["limits"].as_object()).filter(|l| !l.is_empty()).cloned();
    let Some(limits) = limits else { return };
    let typed: PodSpec = serde_json::from_value(Value::Object(spec.clone())).unwrap_or_default();
    let sums = resources::aggregate(&typed, Side::Requests).into_iter();
    // Huge pages are not promised to more than there are.
    let sums = sums.filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory"));
    let Some(whole) = inner(spec, "resources") else { return };
    set(whole, "requests", json!({}));
    if let Some(requests) = inner(whole, "requests") {
        sums.for_each(|(name, sum)| set(requests, &name, json!(resources::shown(&name, sum).0)));
        limits.into_iter().filter(|(name, _)| resources::is_pod_level(name)).for_each(|(k, v)| set(requests, &k, v));
    }
}

/// No tag, or `latest`, is pulled each time.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or("");
    let tag = name.split_once(':').map_or("latest", |(_, tag)| tag);
    if !name.contains('@') && tag == "latest" { "Always" } else { "IfNotPresent" }
}

/// What volumes outside of the node say of themselves where nobody else does, those of Pods and PersistentVolumes.
pub(in crate::kinds) fn default_source(v: &mut Map<String, Value>) {
    let sources: [(&str, &[(&str, Value)]); 4] = [
        ("iscsi", &[("iscsiInterface", json!("default"))]),
        ("rbd", &[("pool", json!("rbd")), ("user", json!("admin")), ("keyring", json!("/etc/ceph/keyring"))]),
        (
            "azureDisk",
            &[
                ("cachingMode", json!("ReadWrite")),
                ("kind", json!("Shared")),
                ("fsType", json!("ext4")),
                ("readOnly", json!(false)),
            ],
        ),
        ("scaleIO", &[("storageMode", json!("ThinProvisioned")), ("fsType", json!("xfs"))]),
    ];
    for (name, defaults) in sources {
        if let Some(source) = inner(v, name) {
            defaults.iter().for_each(|(field, value)| set(source, field, value.clone()));
        }
    }
}

fn volume(v: &mut Map<String, Value>) {
    default_source(v);
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = inner(v, source) {
            set(source, "defaultMode", json!(420));
        }
    }
    if let Some(downward) = inner(v, "downwardAPI") {
        downward_items(downward);
    }
    if let Some(projected) = inner(v, "projected") {
        each(projected, "sources", |s| {
            if let Some(downward) = inner(s, "downwardAPI") {
                downward_items(downward);
            }
            if let Some(token) = inner(s, "serviceAccountToken") {
                set(token, "expirationSeconds", json!(3600));
            }
        });
    }
    if let Some(path) = inner(v, "hostPath") {
        set(path, "type", json!(""));
    }
    if let Some(image) = inner(v, "image") {
        let reference = image.get("reference").and_then(Value::as_str).unwrap_or("").to_owned();
        set(image, "pullPolicy", json!(pull_policy(&reference)));
    }
    if let Some(claim) =
        inner(v, "ephemeral").and_then(|e| inner(e, "volumeClaimTemplate")).and_then(|t| inner(t, "spec"))
    {
        set(claim, "volumeMode", json!("Filesystem"));
    }
    if v.keys().all(|k| k == "name") {
        v.insert("emptyDir".to_owned(), json!({}));
    }
}

fn downward_items(source: &mut Map<String, Value>) {
    each(source, "items", |item| {
        field_ref(item);
        divisor(item);
    });
}

fn tolerations(spec: &mut Map<String, Value>) {
    set(spec, "tolerations", json!([]));
    let Some(list) = spec.get_mut("tolerations").and_then(Value::as_array_mut) else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |t: &Value| {
            let (k, effect) = (t["key"].as_str().unwrap_or(""), t["effect"].as_str().unwrap_or(""));
            (k == key || k.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        };
        if !list.iter().any(covers) {
            list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
}
