//! Pod.

mod defaults;
mod disabled_fields;
pub mod mirror_pod;
mod table;
mod validate;
mod warnings;

pub(super) use defaults::{set_pod_spec_defaults, set_volume_source_defaults};
pub(super) use validate::{
    is_native_resource, validate_node_selector, validate_overhead, validate_pod_spec, validate_resource_name,
    validate_tolerations,
};
pub(super) use warnings::{template_warnings, warn_claim, warn_removed_plugins};

use super::{Column, FieldErrors, Kind, KindInfo, Row, Subresource, WriteContext, WriteTarget};
use apply::Filter;
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) struct Pod;

/// Subresource for in-place resize of CPU and memory (KEP-1287).
const RESIZE: &str = "resize";

const fn connect(name: &'static str, kind: &'static str) -> Subresource {
    Subresource { name, group: "", version: "v1", kind, verbs: &["create", "get"] }
}

/// Subresource for ephemeral containers.
const EPHEMERAL: Subresource = Subresource {
    name: "ephemeralcontainers",
    group: "",
    version: "v1",
    kind: "Pod",
    verbs: &["get", "patch", "update"],
};

static INFO: KindInfo = KindInfo {
    short_names: &["po"],
    categories: &["all"],
    status: true,
    generation: true,
    subresources: &[
        connect("attach", "PodAttachOptions"),
        EPHEMERAL,
        Subresource { name: "binding", group: "", version: "v1", kind: "Binding", verbs: &["create"] },
        Subresource { name: "eviction", group: "policy", version: "v1", kind: "Eviction", verbs: &["create"] },
        connect("exec", "PodExecOptions"),
        Subresource { name: "log", group: "", version: "v1", kind: "Pod", verbs: &["get"] },
        connect("portforward", "PodPortForwardOptions"),
        Subresource::proxy("PodProxyOptions"),
        Subresource { name: RESIZE, group: "", version: "v1", kind: "Pod", verbs: &["get", "patch", "update"] },
    ],
    ..KindInfo::core("Pod", "pods", "pod")
};

const FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    // Upstream accepts it, but its value is always empty.
    "status.podIPs",
    "status.nominatedNodeName",
];

/// Sets a negative grace period to 1 s.
fn clamp_negative_grace_period(pod: &mut Value) {
    let grace = pod.pointer_mut("/spec/terminationGracePeriodSeconds");
    if let Some(grace) = grace.filter(|grace| grace.as_i64().is_some_and(|seconds| seconds < 0)) {
        *grace = json!(1);
    }
}

impl Kind for Pod {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }

    fn set_defaults(&self, object: &mut Value) {
        defaults::set_pod_defaults(object);
    }

    fn apply_admission_defaults(&self, object: &mut Value) {
        defaults::apply_admission_defaults(object);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        // Updates are mostly frequent writes of controllers (`WarningsOnUpdate`).
        if old.is_some() { Vec::new() } else { warnings::pod_warnings(object) }
    }

    fn prepare_create(&self, object: &mut Value, ctx: &WriteContext) {
        clamp_negative_grace_period(object);
        disabled_fields::drop_fields(object, None, &ctx.gates);
        validate::apparmor::set_fields_from_annotations(object);
        let spec: PodSpec = decode::from_value(&object["spec"]).unwrap_or_default();
        object["status"] = json!({"phase": "Pending", "qosClass": api::resources::qos_class(&spec).as_str()});
        if spec.scheduling_gates.is_some_and(|g| !g.is_empty()) {
            object["status"]["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]);
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, ctx: &WriteContext) {
        match ctx.target {
            WriteTarget::Status => {
                object["spec"] = old["spec"].clone();
                if object["status"]["qosClass"].as_str().unwrap_or("").is_empty() && object["status"].is_object() {
                    object["status"]["qosClass"] = old["status"]["qosClass"].clone();
                }
                // Like upstream, because old kubelets sent wrong owner references.
                match old["metadata"].get("ownerReferences") {
                    Some(owners) => object["metadata"]["ownerReferences"] = owners.clone(),
                    None => drop(object["metadata"].as_object_mut().map(|m| m.remove("ownerReferences"))),
                }
            }
            WriteTarget::Sub("ephemeralcontainers") => {
                // Only the ephemeral containers may change (`dropNonEphemeralContainerUpdates`).
                let mut new = old.clone();
                match object["spec"].get("ephemeralContainers") {
                    Some(list) => new["spec"]["ephemeralContainers"] = list.clone(),
                    None => drop(new["spec"].as_object_mut().map(|s| s.remove("ephemeralContainers"))),
                }
                *object = new;
            }
            WriteTarget::Sub(RESIZE) => {
                validate::prepare_resize(object, old);
                object["status"] = old["status"].clone();
            }
            _ => {
                clamp_negative_grace_period(object);
                object["status"] = old["status"].clone();
                disabled_fields::drop_fields(object, Some(old), &ctx.gates);
                // Only a mirror Pod has no service account; defaulting must not add one.
                if old["spec"]["serviceAccountName"].is_null()
                    && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
                {
                    spec.remove("serviceAccountName");
                    spec.remove("serviceAccount");
                }
                // Admission computed these fields on the create.
                for field in ["priority", "preemptionPolicy"] {
                    if object["spec"][field].is_null() && !old["spec"][field].is_null() {
                        object["spec"][field] = old["spec"][field].clone();
                    }
                }
            }
        }
    }

    fn reset_fields_filter(&self, target: WriteTarget) -> Filter {
        match target {
            WriteTarget::Main => Filter::without(&[&["status"]]),
            WriteTarget::Status => {
                Filter::without(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
            }
            WriteTarget::Sub("ephemeralcontainers") => Filter::only(&[&["spec", "ephemeralContainers"]]),
            WriteTarget::Sub(_) => Filter::only(&[
                &["spec", "containers", "*", "resources"],
                &["spec", "containers", "*", "resizePolicy"],
                &["spec", "initContainers", "*", "resources"],
                &["spec", "initContainers", "*", "resizePolicy"],
            ]),
        }
    }

    fn validate_create(&self, object: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        mirror_pod::validate_create(object, errors);
        validate::validate_pod_create(object, errors);
        validate::restart_policy::validate_gated_values(object, None, &ctx.gates, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        // Also for status updates: a node must not turn a mirror Pod into a Pod that can read the objects it references.
        mirror_pod::validate_update(object, old, errors);
        match ctx.target {
            WriteTarget::Main => {
                validate::validate_pod(object, errors);
                validate::validate_update(object, old, errors);
                validate::restart_policy::validate_gated_values(object, Some(old), &ctx.gates, errors);
            }
            WriteTarget::Sub(RESIZE) => {
                validate::validate_pod(object, errors);
                validate::validate_resize(object, old, errors);
            }
            WriteTarget::Sub(_) => {
                validate::validate_pod(object, errors);
                validate::validate_ephemeral_containers_update(object, old, errors);
            }
            WriteTarget::Status => validate::validate_status(object, old, errors),
        }
    }

    fn columns(&self) -> &'static [Column] {
        table::COLUMNS
    }

    fn row(&self, object: &Value, now: jiff::Timestamp) -> Row {
        table::row(object, now)
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        FIELDS
    }

    /// Old clients select by `spec.host`.
    fn convert_field_label<'a>(&self, field: &'a str) -> &'a str {
        if field == "spec.host" { "spec.nodeName" } else { field }
    }

    fn field_values(&self, object: &Value) -> BTreeMap<&'static str, String> {
        let value = |path: &str| match object.pointer(&format!("/{}", path.replace('.', "/"))) {
            Some(Value::String(s)) => s.clone(),
            Some(Value::Bool(b)) => b.to_string(),
            _ if path == "spec.hostNetwork" => "false".to_owned(),
            _ => String::new(),
        };
        FIELDS.iter().map(|f| (*f, value(f))).collect()
    }

    fn check_graceful_delete(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        let pod_grace_period = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        let unscheduled = object["spec"]["nodeName"].as_str().unwrap_or("").is_empty();
        let terminal = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let grace = requested.unwrap_or(pod_grace_period);
        Some(if unscheduled || terminal {
            0
        } else if grace < 0 {
            1
        } else {
            grace
        })
    }
}
