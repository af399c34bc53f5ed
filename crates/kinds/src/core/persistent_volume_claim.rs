//! PersistentVolumeClaim.

use super::{
    STORAGE_CLASS_ANNOTATION, STORAGE_CLASS_ANNOTATION_WARNING, deprecated_annotation_warnings, format_access_modes,
    persistent_volume::attributes_class_cell, storage_class, validate_access_modes, validate_positive_quantity,
};
use crate::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, WriteContext, defaulting, enums, field_cursor::FieldCursor,
    field_validation::text as text_of, generic_kind::GenericKind, pod::warn_claim, selector, text,
};
use api::quantity::Amount;
use serde_json::{Map, Value, json};

pub(crate) static PERSISTENT_VOLUME_CLAIM: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("Status", Cell::Computed(|c, _| json!(status_cell(c)))),
        text("Volume", Cell::Pointer("/spec/volumeName")),
        text(
            "Capacity",
            Cell::Computed(|c, _| if is_bound(c) { c["status"]["capacity"]["storage"].clone() } else { json!("") }),
        ),
        text(
            "Access Modes",
            Cell::Computed(|c, _| {
                json!(if is_bound(c) { format_access_modes(&c["status"]["accessModes"]) } else { String::new() })
            }),
        ),
        text("StorageClass", Cell::Computed(|c, _| json!(storage_class(c)))),
        text("VolumeAttributesClass", Cell::Computed(|c, _| json!(attributes_class_cell(c)))),
        AGE,
        text("VolumeMode", Cell::Computed(|c, _| json!(c["spec"]["volumeMode"].as_str().unwrap_or("<unset>")))).wide(),
    ],
    default: set_claim_defaults,
    prepare,
    validate,
    validate_change,
    validate_status,
    warnings: |object, _| warnings(object),
    ..GenericKind::new(&KindInfo {
        short_names: &["pvc"],
        status: true,
        ..KindInfo::core("PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim")
    })
};

/// Returns the warnings of a claim (`pkg/api/persistentvolumeclaim/util.go`).
fn warnings(object: &Value) -> Vec<String> {
    let mut all = deprecated_annotation_warnings(object, STORAGE_CLASS_ANNOTATION, STORAGE_CLASS_ANNOTATION_WARNING);
    warn_claim(&object["spec"], &FieldPath::new("spec"), &mut all);
    all
}

/// Mutable fields of bound claims.
const MUTABLE_FIELDS: [&str; 2] = ["resources", "volumeAttributesClassName"];

fn is_bound(claim: &Value) -> bool {
    !text_of(&claim["spec"], "volumeName").is_empty()
}

fn status_cell(claim: &Value) -> &str {
    if claim["metadata"]["deletionTimestamp"].is_null() { text_of(&claim["status"], "phase") } else { "Terminating" }
}

/// Sets the defaults of a claim or a StatefulSet's claim template (`SetDefaults_PersistentVolumeClaim`).
pub(crate) fn set_claim_defaults(claim: &mut Value) {
    defaulting::set_defaults_at(claim, "/spec", &[("volumeMode", json!("Filesystem"))]);
    defaulting::set_defaults_at(claim, "/status", &[("phase", json!("Pending"))]);
}

fn prepare(object: &mut Value, old: Option<&Value>, _ctx: &WriteContext) {
    if old.is_none() {
        object["status"] = json!({"phase": "Pending"});
    }
    let in_use = old.is_some_and(|old| DATA_SOURCE_FIELDS.iter().any(|field| !old["spec"][*field].is_null()));
    if let Some(spec) = object["spec"].as_object_mut().filter(|_| !in_use) {
        normalize_data_sources(spec);
    }
}

/// Fields of the data source.
const DATA_SOURCE_FIELDS: [&str; 2] = ["dataSource", "dataSourceRef"];

/// Syncs `dataSource` with `dataSourceRef`, and drops a `dataSource` that is neither a claim nor a snapshot
/// (`EnforceDataSourceBackwardsCompatibility`, `NormalizeDataSources`).
fn normalize_data_sources(spec: &mut Map<String, Value>) {
    let is_known = |source: &Value| {
        let (group, kind) = (text_of(source, "apiGroup"), text_of(source, "kind"));
        matches!((group, kind), ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot"))
    };
    let present = |spec: &Map<String, Value>, field: &str| spec.get(field).filter(|s| !s.is_null()).cloned();
    // The feature gate `CrossNamespaceVolumeDataSource` is disabled.
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
    validate_claim_spec(&FieldCursor::object(object).at("spec"), errors);
}

/// Validates the spec of a claim or a StatefulSet's claim template (`ValidatePersistentVolumeClaimSpec`).
pub(crate) fn validate_claim_spec(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    validate_access_modes(&spec.at("accessModes"), "at least 1 access mode is required", errors);
    selector::validate(&spec.at("selector"), errors);
    // Upstream's path lacks `requests`.
    let resources = spec.at("resources");
    let requests = resources.with_value(resources.at("requests").value());
    let size = requests.key("storage");
    if size.is_null() {
        size.required("", errors);
    } else {
        validate_positive_quantity(&size, errors);
    }
    for class in [spec.at("storageClassName"), spec.at("volumeAttributesClassName")] {
        if !class.text().is_empty() {
            class.validate_text(api::names::dns1123_subdomain, errors);
        }
    }
    let [old, new] = DATA_SOURCE_FIELDS.map(|field| spec.at(field));
    for source in [old, new].iter().filter(|source| source.is_set()) {
        validate_data_source(source, errors);
    }
    let same = |field: &str| old.at(field).text() == new.at(field).text();
    if old.is_set() && new.is_set() && !["apiGroup", "kind", "name"].into_iter().all(same) {
        errors.invalid(&spec.path(), &json!("spec.dataSource"), "must match dataSourceRef");
    }
    spec.at("volumeMode").supported(enums::VOLUME_MODES, errors);
}

/// Validates an update (`ValidatePersistentVolumeClaimUpdate`).
fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (path, mut new, before) = (FieldPath::new("spec"), object["spec"].clone(), &old["spec"]);
    let new_class = text_of(&object["spec"], "storageClassName");
    let Some(fields) = new.as_object_mut() else { return };
    // The controller binds a claim by setting its volume name; until then, a missing class may be set.
    let unbound = text_of(before, "volumeName").is_empty();
    let classless = unbound && before["storageClassName"].is_null() && !new_class.is_empty();
    let bound = [&object["status"], &old["status"]].iter().all(|status| status["phase"] == "Bound");
    let unbound_fields = [("volumeName", unbound), ("storageClassName", classless)];
    let updatable =
        MUTABLE_FIELDS.into_iter().filter(|_| bound).chain(unbound_fields.into_iter().filter(|m| m.1).map(|m| m.0));
    for field in updatable {
        match before.get(field) {
            Some(value) => drop(fields.insert(field.to_owned(), value.clone())),
            None => drop(fields.remove(field)),
        }
    }
    if &new != before {
        let detail =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.forbidden(&path, detail);
    }
    // A request may be decreased to more than the current capacity, to recover from a failed expansion.
    let size = |v: &Value| v["storage"].as_str().and_then(|q| Amount::parse(q).ok()).unwrap_or_default();
    let requested = |object: &Value| size(&object["spec"]["resources"]["requests"]);
    if requested(object) < requested(old) && requested(object) <= size(&old["status"]["capacity"]) {
        let at = path.child("resources").child("requests").child("storage");
        errors.forbidden(&at, "field can not be less than status.capacity");
    }
}

/// Validates an update of the status (`ValidatePersistentVolumeClaimStatusUpdate`).
fn validate_status(object: &Value, _: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let status = object.at("status");
    for list in [status.at("capacity"), status.at("allocatedResources")] {
        for (_, quantity) in list.entries() {
            if Amount::parse(quantity.text()).is_ok_and(Amount::is_negative) {
                quantity.invalid("must be a valid resource quantity", errors);
            }
        }
    }
    for (_, resizing) in status.at("allocatedResourceStatuses").entries() {
        resizing.supported(enums::RESIZE_STATUSES, errors);
    }
}

/// Validates a data source (`validateDataSource`).
fn validate_data_source(source: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (group, kind) = (source.at("apiGroup"), source.at("kind"));
    for field in [source.at("name"), kind] {
        if field.text().is_empty() {
            field.required("", errors);
        }
    }
    if group.text().is_empty() {
        if kind.text() != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            source.with_value(kind.value()).invalid(detail, errors);
        }
    } else {
        group.validate_text(api::names::dns1123_subdomain, errors);
    }
}
