//! PersistentVolume.

use super::{
    STORAGE_CLASS_ANNOTATION, STORAGE_CLASS_ANNOTATION_WARNING, deprecated_annotation_warnings, format_access_modes,
    storage_class, validate_access_modes, validate_positive_quantity,
};
use crate::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, WriteContext, WriteTarget, defaulting, enums,
    field_validation::{
        items, text as text_of, validate_csi_driver_name, validate_dns_subdomain, validate_immutable,
        validate_required_dns_label, validate_required_dns_subdomain,
    },
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
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    validate_access_modes(spec, &path, "", errors);
    validate_capacity(spec, &path.child("capacity"), errors);
    if !enums::RECLAIM_POLICIES.contains(&text_of(spec, "persistentVolumeReclaimPolicy")) {
        let at = path.child("persistentVolumeReclaimPolicy");
        errors.not_supported(&at, &spec["persistentVolumeReclaimPolicy"], enums::RECLAIM_POLICIES);
    }
    validate_node_affinity(&spec["nodeAffinity"], &path.child("nodeAffinity"), errors);
    validate_source(spec, text_of(&object["metadata"], "name"), &path, errors);
    if !text_of(spec, "storageClassName").is_empty() {
        validate_dns_subdomain(&spec["storageClassName"], &path.child("storageClassName"), errors);
    }
    if !enums::VOLUME_MODES.contains(&text_of(spec, "volumeMode")) {
        errors.not_supported(&path.child("volumeMode"), &spec["volumeMode"], enums::VOLUME_MODES);
    }
    validate_attributes_class(spec, &path, errors);
}

/// Validates the inline volume spec of a VolumeAttachment (`ValidatePersistentVolumeSpec` with `isInlineSpec`).
pub(crate) fn validate_inline(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const INLINE: &str = "in the context of inline volumes";
    let forbidden = |field: &str, unset: Value, errors: &mut FieldErrors| {
        if !spec[field].is_null() && spec[field] != unset {
            errors.forbidden(&path.child(field), &format!("may not be specified {INLINE}"));
        }
    };
    forbidden("claimRef", Value::Null, errors);
    forbidden("capacity", json!({}), errors);
    if spec["csi"].is_null() {
        errors.required(&path.child("csi"), &format!("has to be specified {INLINE}"));
    }
    validate_access_modes(spec, path, "", errors);
    if !matches!(text_of(spec, "persistentVolumeReclaimPolicy"), "" | "Retain") {
        errors.forbidden(&path.child("persistentVolumeReclaimPolicy"), &format!("may only be Retain {INLINE}"));
    }
    forbidden("nodeAffinity", Value::Null, errors);
    validate_source(spec, "", path, errors);
    forbidden("storageClassName", json!(""), errors);
    if !matches!(spec["volumeMode"].as_str(), None | Some("Filesystem")) {
        let detail = format!("may not specify volumeMode other than Filesystem {INLINE}");
        errors.forbidden(&path.child("volumeMode"), &detail);
    }
}

fn validate_capacity(spec: &Value, at: &FieldPath, errors: &mut FieldErrors) {
    let capacity = spec["capacity"].as_object().cloned().unwrap_or_default();
    if capacity.is_empty() {
        errors.required(at, "");
    }
    if !capacity.contains_key("storage") || capacity.len() > 1 {
        errors.not_supported(at, &spec["capacity"], &["storage"]);
    }
    for (name, quantity) in &capacity {
        validate_positive_quantity(quantity, &at.key(name), errors);
    }
}

/// Validates the volume source.
fn validate_source(spec: &Value, name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let owner = Owner::PersistentVolume(name);
    let kind = volume_source::single_source(spec, owner, path, errors).map_or("", |(kind, source)| {
        volume_source::validate_source(kind, source, owner, path, errors);
        kind
    });
    if kind == "csi" {
        validate_csi(&spec["csi"], &path.child("csi"), errors);
    }
    if kind == "local" && spec["nodeAffinity"].is_null() {
        // Upstream's path, from when node affinity was an annotation.
        let at = FieldPath::new("metadata").child("annotations");
        errors.required(&at, "Local volume requires node affinity");
    }
    let is_root =
        |directory: &str| !directory.is_empty() && directory.split('/').all(|part| part.is_empty() || part == ".");
    if is_root(text_of(&spec["hostPath"], "path")) && spec["persistentVolumeReclaimPolicy"] == "Recycle" {
        let at = path.child("persistentVolumeReclaimPolicy");
        errors.forbidden(&at, "may not be 'recycle' for a hostPath mount of '/'");
    }
}

/// Validates a CSI source (`validateCSIPersistentVolumeSource`).
fn validate_csi(csi: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_csi_driver_name(&csi["driver"], &path.child("driver"), errors);
    if text_of(csi, "volumeHandle").is_empty() {
        errors.required(&path.child("volumeHandle"), "");
    }
    let secrets = ["controllerPublishSecretRef", EXPAND_SECRET, "nodePublishSecretRef", "nodeExpandSecretRef"];
    for field in secrets.into_iter().filter(|field| !csi[*field].is_null()) {
        let (path, secret) = (path.child(field), &csi[field]);
        validate_required_dns_subdomain(&secret["name"], &path.child("name"), errors);
        validate_required_dns_label(&secret["namespace"], &path.child("namespace"), errors);
    }
}

/// Validates the volume attributes class, which only CSI volumes can have.
fn validate_attributes_class(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (at, attributes) = (path.child("volumeAttributesClassName"), &spec["volumeAttributesClassName"]);
    if attributes.is_null() {
        return;
    }
    match attributes.as_str().unwrap_or("") {
        "" => errors.required(&at, "an empty string is disallowed"),
        _ => validate_dns_subdomain(attributes, &at, errors),
    }
    if spec["csi"].is_null() {
        errors.required(&path.child("csi"), "has to be specified when using volumeAttributesClassName");
    }
}

/// Validates the node affinity (`validateVolumeNodeAffinity`).
fn validate_node_affinity(affinity: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match (affinity, &affinity["required"]) {
        (Value::Null, _) => {}
        (_, Value::Null) => errors.required(&path.child("required"), "must specify required node constraints"),
        (_, required) => validate_node_selector(required, &path.child("required"), errors),
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
    validate_immutable(&spec["volumeMode"], &before["volumeMode"], &FieldPath::new("volumeMode"), errors);
    if !before["nodeAffinity"].is_null() {
        validate_immutable(&spec["nodeAffinity"], &before["nodeAffinity"], &FieldPath::new("nodeAffinity"), errors);
    }
    if !before["volumeAttributesClassName"].is_null() && spec["volumeAttributesClassName"].is_null() {
        errors.forbidden(&path.child("volumeAttributesClassName"), "update from non-nil value to nil is forbidden");
    }
}
