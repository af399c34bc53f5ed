//! StatefulSet.

use super::{
    GROUP, SCALE,
    deployment::ready,
    not_negatives, selector_and_template,
    status::{Counts, collisions},
};
use crate::kinds::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, WriteContext,
    checks::{int_or_percent, items, not_negative, percent},
    core::{default_claim, validate_claim},
    fill,
    plain::Plain,
    pod::claim_warnings,
    template::{self, CONTAINERS, IMAGES},
    text,
};
use api::feature_gates::Gate;
use serde_json::{Value, json};
use std::collections::HashSet;

const COUNTS: Counts = Counts {
    counted: &["replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
    parts: &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
    ready: "status.readyReplicas",
};

pub(in crate::kinds) static STATEFUL_SET: Plain = Plain {
    columns: &[NAME, text("Ready", Cell::Of(|s, _| json!(ready(s)))), AGE, CONTAINERS, IMAGES],
    default,
    prepare: settle_gated,
    name: api::names::dns1123_label,
    validate,
    validate_new,
    validate_change,
    warnings,
    validate_status: |object, old, errors| {
        COUNTS.validate(object, errors);
        collisions(object, old, errors);
    },
    ..Plain::of(&KindInfo {
        short_names: &["sts"],
        categories: &["all"],
        status: true,
        generation: true,
        subresources: &[SCALE],
        ..KindInfo::of(GROUP, "StatefulSet", "statefulsets", "statefulset")
    })
};

fn warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let (spec, mut all) = (&object["spec"], template::warnings(object, old, template::SPEC_PATH));
    for (i, claim) in items(spec, "volumeClaimTemplates").enumerate() {
        let path = FieldPath::new("spec").child("volumeClaimTemplates").index(i);
        claim_warnings(&claim["spec"], &path, &mut all);
    }
    if spec["revisionHistoryLimit"].as_i64().is_some_and(|limit| limit < 0) {
        let why = "a negative value retains all historical revisions; a value >= 0 is recommended";
        all.push(format!("spec.revisionHistoryLimit: {why}"));
    }
    all
}

/// What an update may change.
const UPDATABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// `SetDefaults_StatefulSet`.
fn default(object: &mut Value) {
    template::default(object, template::SPEC);
    let values = [
        ("podManagementPolicy", json!("OrderedReady")),
        ("replicas", json!(1)),
        ("revisionHistoryLimit", json!(10)),
        ("persistentVolumeClaimRetentionPolicy", json!({})),
    ];
    fill::at(object, "/spec", &values);
    let retain = [("whenDeleted", json!("Retain")), ("whenScaled", json!("Retain"))];
    fill::at(object, "/spec/persistentVolumeClaimRetentionPolicy", &retain);
    fill::at(object, "/spec/updateStrategy", &[("type", json!("RollingUpdate"))]);
    if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
        fill::at(object, "/spec/updateStrategy", &[("rollingUpdate", json!({}))]);
        fill::at(object, "/spec/updateStrategy/rollingUpdate", &[("partition", json!(0))]);
    }
    let claims = object.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
    claims.into_iter().flatten().for_each(default_claim_template);
}

/// Upstream's conversion says of each what it is.
fn default_claim_template(claim: &mut Value) {
    default_claim(claim);
    fill::at(claim, "", &[("apiVersion", json!("v1")), ("kind", json!("PersistentVolumeClaim"))]);
}

/// `dropStatefulSetDisabledFields`, and the default of what is not dropped.
fn settle_gated(object: &mut Value, old: Option<&Value>, ctx: &WriteContext) {
    const FIELD: &str = "/spec/updateStrategy/rollingUpdate/maxUnavailable";
    let in_use = old.is_some_and(|old| old.pointer(FIELD).is_some());
    if ctx.gates.enabled(Gate::MaxUnavailableStatefulSet) {
        if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
            fill::at(object, "/spec/updateStrategy/rollingUpdate", &[("maxUnavailable", json!(1))]);
        }
        return;
    }
    if in_use {
        return;
    }
    let rolling = object.pointer_mut("/spec/updateStrategy/rollingUpdate").and_then(Value::as_object_mut);
    rolling.into_iter().for_each(|rolling| drop(rolling.remove("maxUnavailable")));
}

/// One that was taken before its Service's name and its claims were looked at stays.
fn validate_new(object: &Value, errors: &mut FieldErrors) {
    let (path, name) = (FieldPath::new("spec"), &object["spec"]["serviceName"]);
    let wrong = name.as_str().filter(|name| !name.is_empty()).map(api::names::dns1035_label).unwrap_or_default();
    wrong.iter().for_each(|e| errors.invalid(&path.child("serviceName"), name, e));
    for (i, claim) in items(&object["spec"], "volumeClaimTemplates").enumerate() {
        validate_claim(&claim["spec"], &path.child("volumeClaimTemplates").index(i).child("spec"), errors);
    }
}

/// `ValidateStatefulSetSpec`.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let policy = &spec["podManagementPolicy"];
    if !matches!(policy.as_str(), Some("OrderedReady" | "Parallel")) {
        let why = "must be 'OrderedReady' or 'Parallel'";
        errors.invalid(&path.child("podManagementPolicy"), policy, why);
    }
    strategy(&spec["updateStrategy"], &path.child("updateStrategy"), errors);
    let (retention, at) =
        (&spec["persistentVolumeClaimRetentionPolicy"], path.child("persistentVolumeClaimRetentionPolicy"));
    for field in ["whenDeleted", "whenScaled"] {
        if !matches!(retention[field].as_str(), Some("Retain" | "Delete")) {
            errors.not_supported(&at.child(field), &retention[field], &["Delete", "Retain"]);
        }
    }
    not_negatives(spec, &["replicas", "minReadySeconds"], &path, errors);
    not_negative(&spec["ordinals"], "start", &path.child("ordinals"), errors);
    selector_and_template(&with_claims(spec), "statefulset", "StatefulSet", &path, errors);
}

/// What its Pods have: a claim that is made for each takes the place of the volume of its name (`volumesToAddForTemplates`).
fn with_claims(spec: &Value) -> Value {
    let names: Vec<&Value> = items(spec, "volumeClaimTemplates").map(|claim| &claim["metadata"]["name"]).collect();
    let mut spec = spec.clone();
    if names.is_empty() {
        return spec;
    }
    let claimed_names: HashSet<&Value> = names.iter().copied().collect();
    let own = items(&spec["template"]["spec"], "volumes").filter(|volume| !claimed_names.contains(&volume["name"]));
    let claimed =
        names.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": "pvc-template"}}));
    let volumes: Vec<Value> = own.cloned().chain(claimed).collect();
    if spec["template"]["spec"].is_object() {
        spec["template"]["spec"]["volumes"] = json!(volumes);
    }
    spec
}

fn strategy(strategy: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (rolling, at) = (&strategy["rollingUpdate"], path.child("rollingUpdate"));
    match strategy["type"].as_str().unwrap_or("") {
        "OnDelete" if !rolling.is_null() => {
            errors.invalid(&at, rolling, "only allowed for updateStrategy 'RollingUpdate'");
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            not_negative(rolling, "partition", &at, errors);
            let (unavailable, at) = (&rolling["maxUnavailable"], at.child("maxUnavailable"));
            int_or_percent(unavailable, &at, errors);
            if unavailable.as_i64() == Some(0) || percent(unavailable) == Some(0) {
                errors.invalid(&at, unavailable, "cannot be 0");
            }
            if percent(unavailable).is_some_and(|p| p > 100) {
                errors.invalid(&at, unavailable, "must not be greater than 100%");
            }
        }
        _ => errors.invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

/// `ValidateStatefulSetUpdate`.
fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (mut new, mut before) = (object["spec"].clone(), old["spec"].clone());
    // One that is stored may be of a time in which its claims did not say what they are.
    let claims = before.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut);
    claims.into_iter().flatten().for_each(default_claim_template);
    for field in UPDATABLE {
        new[field] = before[field].clone();
    }
    new.as_object_mut().into_iter().for_each(|spec| spec.retain(|_, value| !value.is_null()));
    if new != before {
        let path = FieldPath::new("spec");
        errors.forbidden(&path, "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden");
    }
}
