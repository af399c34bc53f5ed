//! PersistentVolume.

use super::{
    STORAGE_CLASS_ANNOTATION, STORAGE_CLASS_ANNOTATION_WARNING, deprecated_annotation_warnings, format_access_modes,
    storage_class, validate_access_modes, validate_positive_quantity,
};
use crate::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, WriteContext, WriteTarget, defaulting, enums,
    field_cursor::FieldCursor,
    field_validation::{items, text as text_of, validate_csi_driver_name},
    generic_kind::GenericKind,
    node_labels,
    pod::{set_volume_source_defaults, validate_node_selector, warn_removed_plugins},
    text,
    volume_source::{self, Owner},
};
use api::persistent_volume_claim::NON_SOURCE_FIELDS;
use serde_json::{Value, json};

pub(crate) static PERSISTENT_VOLUME: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("Capacity", Cell::Pointer("/spec/capacity/storage")),
        text("Access Modes", Cell::Computed(|v, _| json!(format_access_modes(&v["spec"]["accessModes"])))),
        text("Reclaim Policy", Cell::Pointer("/spec/persistentVolumeReclaimPolicy")),
        text("Status", Cell::Computed(|v, _| json!(status_cell(v)))),
        text("Claim", Cell::Computed(|v, _| json!(claim_cell(&v["spec"]["claimRef"])))),
        text("StorageClass", Cell::Computed(|v, _| json!(storage_class(v)))),
        text("VolumeAttributesClass", Cell::Computed(|v, _| json!(attributes_class_cell(v)))),
        text("Reason", Cell::Pointer("/status/reason")),
        AGE,
        text("VolumeMode", Cell::Computed(|v, _| json!(v["spec"]["volumeMode"].as_str().unwrap_or("<unset>")))).wide(),
    ],
    default: |object| {
        let values = [("persistentVolumeReclaimPolicy", json!("Retain")), ("volumeMode", json!("Filesystem"))];
        defaulting::set_defaults_at(object, "/spec", &values);
        defaulting::set_defaults_at(object, "/spec/hostPath", &[("type", json!(""))]);
        object.get_mut("spec").and_then(Value::as_object_mut).into_iter().for_each(set_volume_source_defaults);
    },
    prepare,
    validate,
    validate_change,
    warnings: |object, _| warnings(object),
    ..GenericKind::new(&KindInfo {
        short_names: &["pv"],
        namespaced: false,
        status: true,
        ..KindInfo::core("PersistentVolume", "persistentvolumes", "persistentvolume")
    })
};

/// Returns the warnings of a PersistentVolume (`pkg/api/persistentvolume/util.go`).
fn warnings(object: &Value) -> Vec<String> {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let mut all = deprecated_annotation_warnings(object, STORAGE_CLASS_ANNOTATION, STORAGE_CLASS_ANNOTATION_WARNING);
    let options = "deprecated since v1.31; use \"mountOptions\" attribute instead";
    all.extend(deprecated_annotation_warnings(object, "volume.beta.kubernetes.io/mount-options", options));
    if spec["persistentVolumeReclaimPolicy"] == "Recycle" {
        let detail = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
        all.push(format!("spec.persistentVolumeReclaimPolicy: {detail}"));
    }
    let at = path.child("nodeAffinity").child("required").child("nodeSelectorTerms");
    for (i, term) in items(&spec["nodeAffinity"]["required"], "nodeSelectorTerms").enumerate() {
        node_labels::warn_node_selector_term(term, false, &at.index(i), &mut all);
    }
    warn_removed_plugins(spec, &path, &mut all);
    all
}

pub(super) fn attributes_class_cell(object: &Value) -> &str {
    object["spec"]["volumeAttributesClassName"].as_str().unwrap_or("<unset>")
}

fn status_cell(object: &Value) -> &str {
    if object["metadata"]["deletionTimestamp"].is_null() { text_of(&object["status"], "phase") } else { "Terminating" }
}

fn claim_cell(reference: &Value) -> String {
    match text_of(reference, "name") {
        "" => String::new(),
        name => format!("{}/{name}", text_of(reference, "namespace")),
    }
}

fn prepare(object: &mut Value, old: Option<&Value>, ctx: &WriteContext) {
    const LAST_TRANSITION: &str = "lastPhaseTransitionTime";
    let Some(old) = old else {
        object["status"]["phase"] = json!("Pending");
        object["status"][LAST_TRANSITION] = json!(ctx.now);
        return;
    };
    let (new, before) = (&object["status"], &old["status"]);
    if ctx.target == WriteTarget::Status
        && new["phase"] != before["phase"]
        && new[LAST_TRANSITION] == before[LAST_TRANSITION]
    {
        object["status"][LAST_TRANSITION] = json!(ctx.now);
    }
}

/// Validates a PersistentVolume (`ValidatePersistentVolumeSpec`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let (metadata, spec) = (object.at("metadata"), object.at("spec"));
    validate_access_modes(&spec.at("accessModes"), "", errors);
    validate_capacity(&spec.at("capacity"), errors);
    spec.at("persistentVolumeReclaimPolicy").supported(enums::RECLAIM_POLICIES, errors);
    validate_node_affinity(&spec.at("nodeAffinity"), errors);
    validate_source(&spec, metadata.at("name").text(), errors);
    let class = spec.at("storageClassName");
    if !class.text().is_empty() {
        class.validate_text(api::names::dns1123_subdomain, errors);
    }
    spec.at("volumeMode").supported(enums::VOLUME_MODES, errors);
    validate_attributes_class(&spec, errors);
}

/// Validates the inline volume spec of a VolumeAttachment (`ValidatePersistentVolumeSpec` with `isInlineSpec`).
pub(crate) fn validate_inline(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    const INLINE: &str = "in the context of inline volumes";
    let forbidden = |field: &FieldCursor<'_, '_>, unset: Value, errors: &mut FieldErrors| {
        if field.is_set() && *field.value() != unset {
            field.forbidden(&format!("may not be specified {INLINE}"), errors);
        }
    };
    forbidden(&spec.at("claimRef"), Value::Null, errors);
    forbidden(&spec.at("capacity"), json!({}), errors);
    if spec.at("csi").is_null() {
        spec.at("csi").required(&format!("has to be specified {INLINE}"), errors);
    }
    validate_access_modes(&spec.at("accessModes"), "", errors);
    let (policy, mode) = (spec.at("persistentVolumeReclaimPolicy"), spec.at("volumeMode"));
    if !matches!(policy.text(), "" | "Retain") {
        policy.forbidden(&format!("may only be Retain {INLINE}"), errors);
    }
    forbidden(&spec.at("nodeAffinity"), Value::Null, errors);
    validate_source(spec, "", errors);
    forbidden(&spec.at("storageClassName"), json!(""), errors);
    if mode.is_set() && mode.text() != "Filesystem" {
        mode.forbidden(&format!("may not specify volumeMode other than Filesystem {INLINE}"), errors);
    }
}

fn validate_capacity(capacity: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let count = capacity.entries().count();
    if count == 0 {
        capacity.required("", errors);
    }
    if capacity.key("storage").is_null() || count > 1 {
        capacity.not_supported(&["storage"], errors);
    }
    capacity.entries().for_each(|(_, quantity)| validate_positive_quantity(&quantity, errors));
}

/// Validates the volume source.
fn validate_source(spec: &FieldCursor<'_, '_>, name: &str, errors: &mut FieldErrors) {
    let owner = Owner::PersistentVolume(name);
    let kind = volume_source::single_source(spec, owner, errors).map_or("", |(kind, source)| {
        volume_source::validate_source(kind, &source, owner, spec, errors);
        kind
    });
    if kind == "csi" {
        validate_csi(&spec.at("csi"), errors);
    }
    if kind == "local" && spec.at("nodeAffinity").is_null() {
        // Upstream's path, from when node affinity was an annotation.
        let at = FieldPath::new("metadata").child("annotations");
        errors.required(&at, "Local volume requires node affinity");
    }
    let is_root =
        |directory: &str| !directory.is_empty() && directory.split('/').all(|part| part.is_empty() || part == ".");
    let policy = spec.at("persistentVolumeReclaimPolicy");
    if is_root(spec.at("hostPath").at("path").text()) && policy.text() == "Recycle" {
        policy.forbidden("may not be 'recycle' for a hostPath mount of '/'", errors);
    }
}

/// Validates a CSI source (`validateCSIPersistentVolumeSource`).
fn validate_csi(csi: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    validate_csi_driver_name(&csi.at("driver"), errors);
    let handle = csi.at("volumeHandle");
    if handle.text().is_empty() {
        handle.required("", errors);
    }
    for name in ["controllerPublishSecretRef", EXPAND_SECRET, "nodePublishSecretRef", "nodeExpandSecretRef"] {
        let secret = csi.at(name);
        if secret.is_set() {
            secret.at("name").validate_required_text(api::names::dns1123_subdomain, errors);
            secret.at("namespace").validate_required_text(api::names::dns1123_label, errors);
        }
    }
}

/// Validates the volume attributes class, which only CSI volumes can have.
fn validate_attributes_class(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (class, csi) = (spec.at("volumeAttributesClassName"), spec.at("csi"));
    if class.is_null() {
        return;
    }
    if class.text().is_empty() {
        class.required("an empty string is disallowed", errors);
    } else {
        class.validate_text(api::names::dns1123_subdomain, errors);
    }
    if csi.is_null() {
        csi.required("has to be specified when using volumeAttributesClassName", errors);
    }
}

/// Validates the node affinity (`validateVolumeNodeAffinity`).
fn validate_node_affinity(affinity: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let required = affinity.at("required");
    match (affinity.is_set(), required.is_set()) {
        (false, _) => {}
        (true, false) => required.required("must specify required node constraints", errors),
        (true, true) => validate_node_selector(&required, errors),
    }
}

/// Secret reference for expansion, which may be added to an existing volume.
const EXPAND_SECRET: &str = "controllerExpandSecretRef";

/// Validates an update: the source is immutable (`ValidatePersistentVolumeUpdate`).
fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (spec, before) = (&object["spec"], &old["spec"]);
    let may_add_expand_secret = before["csi"].is_object() && before["csi"][EXPAND_SECRET].is_null();
    let sources = |spec: &Value| -> Vec<(String, Value)> {
        let all = spec.as_object().into_iter().flatten();
        let mut all: Vec<_> = all
            .filter(|(k, _)| !NON_SOURCE_FIELDS.contains(&k.as_str()))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        for (_, source) in all.iter_mut().filter(|(k, _)| k == "csi" && may_add_expand_secret) {
            source.as_object_mut().map(|csi| csi.remove(EXPAND_SECRET));
        }
        all
    };
    let path = FieldPath::new("spec");
    if sources(spec) != sources(before) {
        errors.forbidden(
            &path.child("persistentvolumesource"),
            "spec.persistentvolumesource is immutable after creation",
        );
    }
    // Upstream's paths lack `spec`.
    let (spec, before) = (FieldCursor::object(spec), FieldCursor::object(before));
    spec.at("volumeMode").validate_immutable(&before.at("volumeMode"), errors);
    let affinity = before.at("nodeAffinity");
    if affinity.is_set() {
        spec.at("nodeAffinity").validate_immutable(&affinity, errors);
    }
    if before.at("volumeAttributesClassName").is_set() && spec.at("volumeAttributesClassName").is_null() {
        errors.forbidden(&path.child("volumeAttributesClassName"), "update from non-nil value to nil is forbidden");
    }
}
