//! StatefulSet.

use super::{
    GROUP, SCALE,
    deployment::ready_cell,
    status::{ReplicaCounts, validate_collision_count},
    validate_nonnegative_fields, validate_selector_and_template,
};
use crate::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, WriteContext,
    core::{set_claim_defaults, validate_claim_spec},
    defaulting,
    field_validation::{items, parse_percent, validate_int_or_percent, validate_nonnegative},
    generic_kind::GenericKind,
    pod::warn_claim,
    pod_template_spec::{self, CONTAINERS, IMAGES},
    text,
};
use api::feature_gates::Gate;
use serde_json::{Value, json};
use std::collections::HashSet;

const COUNTS: ReplicaCounts = ReplicaCounts {
    counts: &["replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
    bounded_by_replicas: &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
    ready_name: "status.readyReplicas",
};

pub(crate) static STATEFUL_SET: GenericKind = GenericKind {
    columns: &[NAME, text("Ready", Cell::Computed(|s, _| json!(ready_cell(s)))), AGE, CONTAINERS, IMAGES],
    default,
    prepare: set_gated_defaults,
    name: api::names::dns1123_label,
    validate,
    validate_new,
    validate_change,
    warnings,
    validate_status: |object, old, errors| {
        COUNTS.validate(object, errors);
        validate_collision_count(object, old, errors);
    },
    ..GenericKind::new(&KindInfo {
        short_names: &["sts"],
        categories: &["all"],
        status: true,
        generation: true,
        subresources: &[SCALE],
        ..KindInfo::namespaced(GROUP, "StatefulSet", "statefulsets", "statefulset")
    })
};

fn warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let (spec, mut all) = (&object["spec"], pod_template_spec::warnings(object, old, pod_template_spec::SPEC_PATH));
    for (i, claim) in items(spec, "volumeClaimTemplates").enumerate() {
        let path = FieldPath::new("spec").child("volumeClaimTemplates").index(i);
        warn_claim(&claim["spec"], &path, &mut all);
    }
    if spec["revisionHistoryLimit"].as_i64().is_some_and(|limit| limit < 0) {
        let detail = "a negative value retains all historical revisions; a value >= 0 is recommended";
        all.push(format!("spec.revisionHistoryLimit: {detail}"));
    }
    all
}

/// Mutable fields of the spec.
const MUTABLE_FIELDS: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// Sets the defaults of a StatefulSet (`SetDefaults_StatefulSet`).
fn default(object: &mut Value) {
    pod_template_spec::set_pod_template_defaults(object, pod_template_spec::SPEC);
    let values = [
        ("podManagementPolicy", json!("OrderedReady")),
        ("replicas", json!(1)),
        ("revisionHistoryLimit", json!(10)),
        ("persistentVolumeClaimRetentionPolicy", json!({})),
    ];
    defaulting::set_defaults_at(object, "/spec", &values);
    let retain = [("whenDeleted", json!("Retain")), ("whenScaled", json!("Retain"))];
    defaulting::set_defaults_at(object, "/spec/persistentVolumeClaimRetentionPolicy", &retain);
    defaulting::set_defaults_at(object, "/spec/updateStrategy", &[("type", json!("RollingUpdate"))]);
    if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
        defaulting::set_defaults_at(object, "/spec/updateStrategy", &[("rollingUpdate", json!({}))]);
        defaulting::set_defaults_at(object, "/spec/updateStrategy/rollingUpdate", &[("partition", json!(0))]);
    }
    let claims = object.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
    claims.into_iter().flatten().for_each(set_claim_template_defaults);
}

/// Sets the defaults of a claim template, and its `apiVersion` and `kind` like upstream's conversion.
fn set_claim_template_defaults(claim: &mut Value) {
    set_claim_defaults(claim);
    defaulting::set_defaults_at(claim, "", &[("apiVersion", json!("v1")), ("kind", json!("PersistentVolumeClaim"))]);
}

/// Drops `maxUnavailable` if its feature gate is disabled (`dropStatefulSetDisabledFields`), else sets its default.
fn set_gated_defaults(object: &mut Value, old: Option<&Value>, ctx: &WriteContext) {
    const FIELD: &str = "/spec/updateStrategy/rollingUpdate/maxUnavailable";
    let in_use = old.is_some_and(|old| old.pointer(FIELD).is_some());
    if ctx.gates.enabled(Gate::MaxUnavailableStatefulSet) {
        if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
            defaulting::set_defaults_at(object, "/spec/updateStrategy/rollingUpdate", &[("maxUnavailable", json!(1))]);
        }
        return;
    }
    if in_use {
        return;
    }
    let rolling = object.pointer_mut("/spec/updateStrategy/rollingUpdate").and_then(Value::as_object_mut);
    rolling.into_iter().for_each(|rolling| drop(rolling.remove("maxUnavailable")));
}

/// Validates the service name and claim templates of creates only: stored objects predate this validation.
fn validate_new(object: &Value, errors: &mut FieldErrors) {
    let (path, name) = (FieldPath::new("spec"), &object["spec"]["serviceName"]);
    let wrong = name.as_str().filter(|name| !name.is_empty()).map(api::names::dns1035_label).unwrap_or_default();
    wrong.iter().for_each(|e| errors.invalid(&path.child("serviceName"), name, e));
    for (i, claim) in items(&object["spec"], "volumeClaimTemplates").enumerate() {
        validate_claim_spec(&claim["spec"], &path.child("volumeClaimTemplates").index(i).child("spec"), errors);
    }
}

/// Validates a StatefulSet (`ValidateStatefulSetSpec`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let policy = &spec["podManagementPolicy"];
    if !matches!(policy.as_str(), Some("OrderedReady" | "Parallel")) {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.invalid(&path.child("podManagementPolicy"), policy, detail);
    }
    validate_update_strategy(&spec["updateStrategy"], &path.child("updateStrategy"), errors);
    let (retention, at) =
        (&spec["persistentVolumeClaimRetentionPolicy"], path.child("persistentVolumeClaimRetentionPolicy"));
    for field in ["whenDeleted", "whenScaled"] {
        if !matches!(retention[field].as_str(), Some("Retain" | "Delete")) {
            errors.not_supported(&at.child(field), &retention[field], &["Delete", "Retain"]);
        }
    }
    validate_nonnegative_fields(spec, &["replicas", "minReadySeconds"], &path, errors);
    validate_nonnegative(&spec["ordinals"], "start", &path.child("ordinals"), errors);
    validate_selector_and_template(&with_claim_volumes(spec), "statefulset", "StatefulSet", &path, errors);
}

/// Returns the spec with the volumes of claim templates, which replace volumes of the same name
/// (`volumesToAddForTemplates`).
fn with_claim_volumes(spec: &Value) -> Value {
    let names: Vec<&Value> = items(spec, "volumeClaimTemplates").map(|claim| &claim["metadata"]["name"]).collect();
    let mut spec = spec.clone();
    if names.is_empty() {
        return spec;
    }
    let claimed_names: HashSet<&Value> = names.iter().copied().collect();
    let template_volumes =
        items(&spec["template"]["spec"], "volumes").filter(|volume| !claimed_names.contains(&volume["name"]));
    let claimed =
        names.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": "pvc-template"}}));
    let volumes: Vec<Value> = template_volumes.cloned().chain(claimed).collect();
    if spec["template"]["spec"].is_object() {
        spec["template"]["spec"]["volumes"] = json!(volumes);
    }
    spec
}

fn validate_update_strategy(strategy: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (rolling, at) = (&strategy["rollingUpdate"], path.child("rollingUpdate"));
    match strategy["type"].as_str().unwrap_or("") {
        "OnDelete" if !rolling.is_null() => {
            errors.invalid(&at, rolling, "only allowed for updateStrategy 'RollingUpdate'");
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            validate_nonnegative(rolling, "partition", &at, errors);
            let (unavailable, at) = (&rolling["maxUnavailable"], at.child("maxUnavailable"));
            validate_int_or_percent(unavailable, &at, errors);
            if unavailable.as_i64() == Some(0) || parse_percent(unavailable) == Some(0) {
                errors.invalid(&at, unavailable, "cannot be 0");
            }
            if parse_percent(unavailable).is_some_and(|p| p > 100) {
                errors.invalid(&at, unavailable, "must not be greater than 100%");
            }
        }
        _ => errors.invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

/// Validates an update (`ValidateStatefulSetUpdate`).
fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (mut new, mut old_spec) = (object["spec"].clone(), old["spec"].clone());
    // A stored object may lack the `apiVersion` and `kind` of its claim templates.
    let claims = old_spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut);
    claims.into_iter().flatten().for_each(set_claim_template_defaults);
    for field in MUTABLE_FIELDS {
        new[field] = old_spec[field].clone();
    }
    new.as_object_mut().into_iter().for_each(|spec| spec.retain(|_, value| !value.is_null()));
    if new != old_spec {
        let path = FieldPath::new("spec");
        errors.forbidden(&path, "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden");
    }
}
