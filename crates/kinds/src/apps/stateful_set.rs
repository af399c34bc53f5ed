//! StatefulSet.

use super::{
    GROUP, SCALE,
    deployment::ready_cell,
    status::{ReplicaCounts, validate_collision_count},
    validate_selector_and_template,
};
use crate::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, WriteContext,
    core::{set_claim_defaults, validate_claim_spec},
    defaulting,
    field_cursor::FieldCursor,
    field_validation::{items, parse_percent, validate_int_or_percent},
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
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    let name = spec.at("serviceName");
    if !name.text().is_empty() {
        name.validate_text(api::names::dns1035_label, errors);
    }
    for claim in spec.at("volumeClaimTemplates").items() {
        validate_claim_spec(&claim.at("spec"), errors);
    }
}

/// Validates a StatefulSet (`ValidateStatefulSetSpec`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    let policy = spec.at("podManagementPolicy");
    if !matches!(policy.text(), "OrderedReady" | "Parallel") {
        policy.invalid("must be 'OrderedReady' or 'Parallel'", errors);
    }
    validate_update_strategy(&spec.at("updateStrategy"), errors);
    let retention = spec.at("persistentVolumeClaimRetentionPolicy");
    for policy in [retention.at("whenDeleted"), retention.at("whenScaled")] {
        policy.supported(&["Delete", "Retain"], errors);
    }
    spec.at("replicas").nonnegative(errors);
    spec.at("minReadySeconds").nonnegative(errors);
    spec.at("ordinals").at("start").nonnegative(errors);
    let with_volumes = with_claim_volumes(spec.value());
    let spec = with_volumes.as_ref().map_or(spec, |with_volumes| spec.with_value(with_volumes));
    validate_selector_and_template(&spec, "statefulset", "StatefulSet", errors);
}

/// Returns the spec with the volumes of claim templates, which replace volumes of the same name
/// (`volumesToAddForTemplates`). `None` without claim templates.
fn with_claim_volumes(spec: &Value) -> Option<Value> {
    let names: Vec<&Value> = items(spec, "volumeClaimTemplates").map(|claim| &claim["metadata"]["name"]).collect();
    if names.is_empty() {
        return None;
    }
    let mut spec = spec.clone();
    let claimed_names: HashSet<&Value> = names.iter().copied().collect();
    let template_volumes =
        items(&spec["template"]["spec"], "volumes").filter(|volume| !claimed_names.contains(&volume["name"]));
    let claimed =
        names.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": "pvc-template"}}));
    let volumes: Vec<Value> = template_volumes.cloned().chain(claimed).collect();
    if spec["template"]["spec"].is_object() {
        spec["template"]["spec"]["volumes"] = json!(volumes);
    }
    Some(spec)
}

fn validate_update_strategy(strategy: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "OnDelete" if !rolling.is_null() => {
            rolling.invalid("only allowed for updateStrategy 'RollingUpdate'", errors);
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            rolling.at("partition").nonnegative(errors);
            let unavailable = rolling.at("maxUnavailable");
            validate_int_or_percent(&unavailable, errors);
            let percent = parse_percent(unavailable.value());
            if unavailable.integer() == Some(0) || percent == Some(0) {
                unavailable.invalid("cannot be 0", errors);
            }
            if percent.is_some_and(|p| p > 100) {
                unavailable.invalid("must not be greater than 100%", errors);
            }
        }
        _ => strategy.invalid("must be 'RollingUpdate' or 'OnDelete'", errors),
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
