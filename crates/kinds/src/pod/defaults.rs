//! Pod defaults: upstream's `SetDefaults_Pod` and related functions, and the default service account and tolerations of
//! admission plugins.

use crate::defaulting::{for_each_item, object_field, set_default, set_number_default};
use api::resources::{self, ResourceField};
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Map, Value, json};

/// String fields of the spec that upstream omits when they are empty.
const OMITEMPTY_STRINGS: [&str; 8] = [
    "nodeName",
    "hostname",
    "subdomain",
    "priorityClassName",
    "serviceAccountName",
    "serviceAccount",
    "schedulerName",
    "restartPolicy",
];
/// Boolean fields of the spec that upstream omits when they are false.
const OMITEMPTY_BOOLEANS: [&str; 3] = ["hostNetwork", "hostPID", "hostIPC"];

pub(super) fn set_pod_defaults(object: &mut Value) {
    if object["spec"].is_null() {
        object["spec"] = json!({});
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    self::set_pod_spec_defaults(spec);
    set_default(spec, "enableServiceLinks", json!(true));
    let host_network = spec.get("hostNetwork") == Some(&json!(true));
    for list in ["initContainers", "containers"] {
        for_each_item(spec, list, default_requests_to_limits);
        if host_network {
            for_each_item(spec, list, set_host_port_defaults);
        }
    }
    default_pod_requests(spec);
}

/// Sets the defaults of a Pod's or a Pod template's spec (`SetDefaults_PodSpec`).
pub(crate) fn set_pod_spec_defaults(spec: &mut Map<String, Value>) {
    spec.retain(|key, value| {
        !(OMITEMPTY_STRINGS.contains(&key.as_str()) && value == ""
            || OMITEMPTY_BOOLEANS.contains(&key.as_str()) && value == &json!(false))
    });
    // The deprecated `serviceAccount` applies if `serviceAccountName` is unset; both fields get the same value.
    let account = ["serviceAccountName", "serviceAccount"].iter().find_map(|f| spec.get(*f).cloned());
    let values = [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("securityContext", json!({})),
        ("schedulerName", json!("default-scheduler")),
    ];
    values.into_iter().for_each(|(key, value)| set_default(spec, key, value));
    for field in ["serviceAccountName", "serviceAccount"] {
        account.iter().for_each(|account| drop(spec.insert(field.to_owned(), account.clone())));
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for_each_item(spec, list, set_container_defaults);
    }
    for_each_item(spec, "volumes", set_volume_defaults);
}

/// Sets the host ports of a container in the host network (`defaultHostNetworkPorts`).
fn set_host_port_defaults(container: &mut Map<String, Value>) {
    for_each_item(container, "ports", |p| {
        let port = p.get("containerPort").and_then(Value::as_i64).unwrap_or(0);
        set_number_default(p, "hostPort", port);
    });
}

/// Sets the defaults of upstream's admission plugins `ServiceAccount` and `DefaultTolerationSeconds`.
pub(super) fn apply_admission_defaults(object: &mut Value) {
    // A mirror Pod has no service account, like its static Pod.
    let mirror = super::mirror_pod::is_mirror_pod(object);
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if !mirror && !spec.contains_key("serviceAccountName") {
        for field in ["serviceAccountName", "serviceAccount"] {
            spec.insert(field.to_owned(), json!("default"));
        }
    }
    add_default_tolerations(spec);
}

fn set_container_defaults(c: &mut Map<String, Value>) {
    let policy = default_pull_policy(c.get("image").and_then(Value::as_str).unwrap_or(""));
    set_default(c, "imagePullPolicy", policy);
    set_default(c, "terminationMessagePath", "/dev/termination-log");
    set_default(c, "terminationMessagePolicy", "File");
    set_default(c, "resources", json!({}));
    for switch in ["stdin", "stdinOnce", "tty"] {
        if c.get(switch) == Some(&json!(false)) {
            c.remove(switch);
        }
    }
    for_each_item(c, "ports", |p| {
        set_default(p, "protocol", "TCP");
        if p.get("hostPort") == Some(&json!(0)) {
            p.remove("hostPort");
        }
    });
    for_each_item(c, "env", |e| {
        if let Some(from) = object_field(e, "valueFrom") {
            set_field_ref_defaults(from);
            set_divisor_default(from);
        }
    });
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = object_field(c, probe) {
            if probe.get("initialDelaySeconds") == Some(&json!(0)) {
                probe.remove("initialDelaySeconds");
            }
            for (key, value) in
                [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
            {
                set_number_default(probe, key, value);
            }
            set_handler_defaults(probe);
        }
    }
    if let Some(lifecycle) = object_field(c, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = object_field(lifecycle, hook) {
                set_handler_defaults(hook);
            }
        }
    }
}

fn set_handler_defaults(handler: &mut Map<String, Value>) {
    if let Some(get) = object_field(handler, "httpGet") {
        set_default(get, "path", json!("/"));
        set_default(get, "scheme", json!("HTTP"));
    }
    if let Some(grpc) = object_field(handler, "grpc") {
        let service = grpc.entry("service").or_insert(Value::Null);
        if service.is_null() {
            *service = json!("");
        }
    }
}

fn set_field_ref_defaults(from: &mut Map<String, Value>) {
    if let Some(field) = object_field(from, "fieldRef") {
        set_default(field, "apiVersion", json!("v1"));
    }
}

/// Sets an unset divisor to `0`, as upstream encodes an empty quantity.
fn set_divisor_default(from: &mut Map<String, Value>) {
    if let Some(resource) = object_field(from, "resourceFieldRef") {
        set_default(resource, "divisor", json!("0"));
    }
}

/// Sets missing requests to the limits.
fn default_requests_to_limits(c: &mut Map<String, Value>) {
    let Some(resources) = object_field(c, "resources") else { return };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    set_default(resources, "requests", json!({}));
    if let Some(requests) = object_field(resources, "requests") {
        limits.into_iter().for_each(|(key, value)| set_default(requests, &key, value));
    }
}

/// Sets missing pod-level requests of a Pod with pod-level limits: to the sum of its containers' requests, else to the limit
/// (`defaultPodRequests`, KEP-2837).
fn default_pod_requests(spec: &mut Map<String, Value>) {
    let limits = spec.get("resources").and_then(|r| r["limits"].as_object()).filter(|l| !l.is_empty()).cloned();
    let Some(limits) = limits else { return };
    let typed: PodSpec = decode::from_value(&Value::Object(spec.clone())).unwrap_or_default();
    let sums = resources::aggregate_container_resources(&typed, ResourceField::Requests).into_iter();
    // Huge pages cannot be overcommitted, so their requests equal the limits.
    let sums = sums.filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory"));
    let Some(pod_resources) = object_field(spec, "resources") else { return };
    set_default(pod_resources, "requests", json!({}));
    if let Some(requests) = object_field(pod_resources, "requests") {
        sums.for_each(|(name, sum)| set_default(requests, &name, json!(resources::format_amount(&name, sum).0)));
        limits
            .into_iter()
            .filter(|(name, _)| resources::is_pod_level(name))
            .for_each(|(k, v)| set_default(requests, &k, v));
    }
}

/// Returns `Always` for an image without a tag or with the tag `latest`, else `IfNotPresent`.
fn default_pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or("");
    let tag = name.split_once(':').map_or("latest", |(_, tag)| tag);
    if !name.contains('@') && tag == "latest" { "Always" } else { "IfNotPresent" }
}

/// Sets the defaults of network volume sources in Pods and PersistentVolumes.
pub(crate) fn set_volume_source_defaults(v: &mut Map<String, Value>) {
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
        if let Some(source) = object_field(v, name) {
            defaults.iter().for_each(|(field, value)| set_default(source, field, value.clone()));
        }
    }
}

fn set_volume_defaults(v: &mut Map<String, Value>) {
    set_volume_source_defaults(v);
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = object_field(v, source) {
            set_default(source, "defaultMode", json!(420));
        }
    }
    if let Some(downward) = object_field(v, "downwardAPI") {
        set_downward_api_item_defaults(downward);
    }
    if let Some(projected) = object_field(v, "projected") {
        for_each_item(projected, "sources", |s| {
            if let Some(downward) = object_field(s, "downwardAPI") {
                set_downward_api_item_defaults(downward);
            }
            if let Some(token) = object_field(s, "serviceAccountToken") {
                set_default(token, "expirationSeconds", json!(3600));
            }
        });
    }
    if let Some(path) = object_field(v, "hostPath") {
        set_default(path, "type", json!(""));
    }
    if let Some(image) = object_field(v, "image") {
        let reference = image.get("reference").and_then(Value::as_str).unwrap_or("").to_owned();
        set_default(image, "pullPolicy", json!(default_pull_policy(&reference)));
    }
    if let Some(claim) = object_field(v, "ephemeral")
        .and_then(|e| object_field(e, "volumeClaimTemplate"))
        .and_then(|t| object_field(t, "spec"))
    {
        set_default(claim, "volumeMode", json!("Filesystem"));
    }
    if v.keys().all(|k| k == "name") {
        v.insert("emptyDir".to_owned(), json!({}));
    }
}

fn set_downward_api_item_defaults(source: &mut Map<String, Value>) {
    for_each_item(source, "items", |item| {
        set_field_ref_defaults(item);
        set_divisor_default(item);
    });
}

fn add_default_tolerations(spec: &mut Map<String, Value>) {
    set_default(spec, "tolerations", json!([]));
    let Some(list) = spec.get_mut("tolerations").and_then(Value::as_array_mut) else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerates = |t: &Value| {
            let (k, effect) = (t["key"].as_str().unwrap_or(""), t["effect"].as_str().unwrap_or(""));
            (k == key || k.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        };
        if !list.iter().any(tolerates) {
            list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
}
