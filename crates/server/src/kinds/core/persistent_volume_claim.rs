//! PersistentVolumeClaim. Nothing binds it to a volume yet: its phase stays Pending.

use super::{access_modes, check_access_modes, check_positive, persistent_volume::attributes_class, storage_class};
use crate::kinds::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, WriteContext,
    checks::{subdomain, text as text_of},
    fill,
    plain::Plain,
    selector, text,
};
use serde_json::{Value, json};

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
    ..Plain::of(&KindInfo {
        short_names: &["pvc"],
        status: true,
        ..KindInfo::core("PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim")
    })
};

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
}

/// `ValidatePersistentVolumeClaimSpec`.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    check_access_modes(spec, &path, "at least 1 access mode is required", errors);
    selector::validate(&spec["selector"], &path.child("selector"), errors);
    let at = path.child("resources");
    match &spec["resources"]["requests"]["storage"] {
        Value::Null => errors.required(&at.key("storage"), ""),
        size => check_positive(size, &at.key("storage"), errors),
    }
    if !text_of(spec, "storageClassName").is_empty() {
        subdomain(&spec["storageClassName"], &path.child("storageClassName"), errors);
    }
    if !matches!(text_of(spec, "volumeMode"), "Block" | "Filesystem") {
        errors.not_supported(&path.child("volumeMode"), &spec["volumeMode"], &["Block", "Filesystem"]);
    }
}

/// `ValidatePersistentVolumeClaimUpdate`.
fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (path, mut new, before) = (FieldPath::new("spec"), object["spec"].clone(), &old["spec"]);
    let Some(fields) = new.as_object_mut() else { return };
    // A claim is bound by whoever finds a volume for it.
    let binding = text_of(before, "volumeName").is_empty().then_some("volumeName");
    for field in UPDATABLE.into_iter().chain(binding) {
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
}
