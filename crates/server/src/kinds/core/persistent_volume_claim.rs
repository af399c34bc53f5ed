//! PersistentVolumeClaim. The controllers bind it to a volume.

use super::{
    CLASS_IS_FIELD, OLD_CLASS, access_modes, check_access_modes, check_positive, is_negative, old_annotation,
    persistent_volume::attributes_class, storage_class,
};
use crate::kinds::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, WriteContext,
    checks::{subdomain, text as text_of},
    fill,
    plain::Plain,
    pod::claim_warnings,
    selector, text,
};
use api::quantity::Amount;
use serde_json::{Map, Value, json};

pub(in crate::kinds) static PERSISTENT_VOLUME_CLAIM: Plain = Plain {
    columns: &[
        NAME,
        text("Status", Cell::Of(|c, _| json!(status(c)))),
        text("Volume", Cell::At("/spec/volumeName")),
        text(
            "Capacity",
            Cell::Of(|c, _| if is_bound(c) { c["status"]["capacity"]["storage"].clone() } else { json!("") }),
        ),
        text(
            "Access Modes",
            Cell::Of(|c, _| json!(if is_bound(c) { access_modes(&c["status"]["accessModes"]) } else { String::new() })),
        ),
        text("StorageClass", Cell::Of(|c, _| json!(storage_class(c)))),
        text("VolumeAttributesClass", Cell::Of(|c, _| json!(attributes_class(c)))),
        AGE,
        text("VolumeMode", Cell::Of(|c, _| json!(c["spec"]["volumeMode"].as_str().unwrap_or("<unset>")))).wide(),
    ],
    default: default_claim,
    prepare,
    validate,
    validate_change,
    validate_status,
    warnings: |object, _| warnings(object),
    ..Plain::of(&KindInfo {
        short_names: &["pvc"],
        status: true,
        ..KindInfo::core("PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim")
    })
};

/// What upstream warns of, though it takes it (`pkg/api/persistentvolumeclaim/util.go`).
fn warnings(object: &Value) -> Vec<String> {
    let mut all = old_annotation(object, OLD_CLASS, CLASS_IS_FIELD);
    claim_warnings(&object["spec"], &FieldPath::new("spec"), &mut all);
    all
}

/// What an update may change: how much, and of which attributes.
const UPDATABLE: [&str; 2] = ["resources", "volumeAttributesClassName"];

fn is_bound(claim: &Value) -> bool {
    !text_of(&claim["spec"], "volumeName").is_empty()
}

fn status(claim: &Value) -> &str {
    if claim["metadata"]["deletionTimestamp"].is_null() { text_of(&claim["status"], "phase") } else { "Terminating" }
}

/// `SetDefaults_PersistentVolumeClaim`, also of the claims that a StatefulSet makes.
pub(in crate::kinds) fn default_claim(claim: &mut Value) {
    fill::at(claim, "/spec", &[("volumeMode", json!("Filesystem"))]);
    fill::at(claim, "/status", &[("phase", json!("Pending"))]);
}

fn prepare(object: &mut Value, old: Option<&Value>, _ctx: &WriteContext) {
    if old.is_none() {
        object["status"] = json!({"phase": "Pending"});
    }
    let in_use = old.is_some_and(|old| SOURCES.iter().any(|field| !old["spec"][*field].is_null()));
    if let Some(spec) = object["spec"].as_object_mut().filter(|_| !in_use) {
        settle_sources(spec);
    }
}

/// Two ways to say from where a volume is filled.
const SOURCES: [&str; 2] = ["dataSource", "dataSourceRef"];

/// The old field says the same as the new one, and is nothing but a claim or a snapshot
/// (`EnforceDataSourceBackwardsCompatibility`, `NormalizeDataSources`).
fn settle_sources(spec: &mut Map<String, Value>) {
    let is_known = |source: &Value| {
        let (group, kind) = (text_of(source, "apiGroup"), text_of(source, "kind"));
        matches!((group, kind), ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot"))
    };
    let present = |spec: &Map<String, Value>, field: &str| spec.get(field).filter(|s| !s.is_null()).cloned();
    // Sources in other namespaces are behind a gate that is off.
    if let Some(reference) = spec.get_mut("dataSourceRef").and_then(Value::as_object_mut) {
        reference.remove("namespace");
    }
    if present(spec, "dataSource").is_some_and(|source| !is_known(&source)) {
        spec.remove("dataSource");
    }
    match (present(spec, "dataSource"), present(spec, "dataSourceRef")) {
        (Some(source), None) => drop(spec.insert("dataSourceRef".to_owned(), source)),
        (None, Some(reference)) => drop(spec.insert("dataSource".to_owned(), reference)),
        _ => {}
    }
}

fn validate(object: &Value, errors: &mut FieldErrors) {
    validate_claim(&object["spec"], &FieldPath::new("spec"), errors);
}

/// `ValidatePersistentVolumeClaimSpec`, also of the claims that a StatefulSet makes.
pub(in crate::kinds) fn validate_claim(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    check_access_modes(spec, path, "at least 1 access mode is required", errors);
    selector::validate(&spec["selector"], &path.child("selector"), errors);
    let at = path.child("resources");
    match &spec["resources"]["requests"]["storage"] {
        Value::Null => errors.required(&at.key("storage"), ""),
        size => check_positive(size, &at.key("storage"), errors),
    }
    for class in ["storageClassName", "volumeAttributesClassName"] {
        if !text_of(spec, class).is_empty() {
            subdomain(&spec[class], &path.child(class), errors);
        }
    }
    for field in SOURCES.into_iter().filter(|f| !spec[*f].is_null()) {
        source(&spec[field], &path.child(field), errors);
    }
    let [old, new] = SOURCES.map(|field| &spec[field]);
    let same = |field: &str| text_of(old, field) == text_of(new, field);
    if !old.is_null() && !new.is_null() && !["apiGroup", "kind", "name"].into_iter().all(same) {
        errors.invalid(path, &json!("spec.dataSource"), "must match dataSourceRef");
    }
    if !matches!(text_of(spec, "volumeMode"), "Block" | "Filesystem") {
        errors.not_supported(&path.child("volumeMode"), &spec["volumeMode"], &["Block", "Filesystem"]);
    }
}

/// `ValidatePersistentVolumeClaimUpdate`.
fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (path, mut new, before) = (FieldPath::new("spec"), object["spec"].clone(), &old["spec"]);
    let new_class = text_of(&object["spec"], "storageClassName");
    let Some(fields) = new.as_object_mut() else { return };
    // A claim is bound by whoever finds a volume for it, and until then a class may be chosen where none was.
    let unbound = text_of(before, "volumeName").is_empty();
    let classless = unbound && before["storageClassName"].is_null() && !new_class.is_empty();
    let bound = [&object["status"], &old["status"]].iter().all(|status| status["phase"] == "Bound");
    let may = [("volumeName", unbound), ("storageClassName", classless)];
    let updatable = UPDATABLE.into_iter().filter(|_| bound).chain(may.into_iter().filter(|m| m.1).map(|m| m.0));
    for field in updatable {
        match before.get(field) {
            Some(value) => drop(fields.insert(field.to_owned(), value.clone())),
            None => drop(fields.remove(field)),
        }
    }
    if &new != before {
        let why =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.forbidden(&path, why);
    }
    // A volume grows; what was asked for and has not come may be taken back, down to what there is.
    let size = |v: &Value| v["storage"].as_str().and_then(|q| Amount::parse(q).ok()).unwrap_or_default();
    let asked = |object: &Value| size(&object["spec"]["resources"]["requests"]);
    if asked(object) < asked(old) && asked(object) <= size(&old["status"]["capacity"]) {
        let at = path.child("resources").child("requests").child("storage");
        errors.forbidden(&at, "field can not be less than status.capacity");
    }
}

/// What may become of the size of a volume.
const RESIZING: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// `ValidatePersistentVolumeClaimStatusUpdate`.
fn validate_status(object: &Value, _: &Value, errors: &mut FieldErrors) {
    let (path, status) = (FieldPath::new("status"), &object["status"]);
    let entries = |field: &str| status[field].as_object().into_iter().flatten();
    for list in ["capacity", "allocatedResources"] {
        for (name, quantity) in entries(list).filter(|(_, quantity)| is_negative(quantity)) {
            errors.invalid(&path.child(list).key(name), quantity, "must be a valid resource quantity");
        }
    }
    for (name, resizing) in entries("allocatedResourceStatuses") {
        if !resizing.as_str().is_some_and(|resizing| RESIZING.contains(&resizing)) {
            let mut known = RESIZING;
            known.sort_unstable();
            errors.not_supported(&path.child("allocatedResourceStatuses").key(name), resizing, &known);
        }
    }
}

/// From where a volume is filled (`validateDataSource`).
fn source(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for field in ["name", "kind"].into_iter().filter(|f| text_of(source, f).is_empty()) {
        errors.required(&path.child(field), "");
    }
    let (group, kind) = (text_of(source, "apiGroup"), text_of(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.invalid(path, &json!(kind), why);
    }
    if !group.is_empty() {
        subdomain(&source["apiGroup"], &path.child("apiGroup"), errors);
    }
}
