//! PersistentVolume. The controllers bind it to a claim.

use super::{
    CLASS_IS_FIELD, OLD_CLASS, access_modes, check_access_modes, check_positive, old_annotation, storage_class,
};
use crate::kinds::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, WriteContext, WriteTarget,
    checks::{csi_driver_name, immutable, items, required_label, required_subdomain, subdomain, text as text_of},
    fill, node_labels,
    plain::Plain,
    pod::{default_source, gone_plugins, node_selector},
    text,
    volume_source::{self, Owner},
};
use api::claim::BESIDE_SOURCE;
use serde_json::{Value, json};

pub(in crate::kinds) static PERSISTENT_VOLUME: Plain = Plain {
    columns: &[
        NAME,
        text("Capacity", Cell::At("/spec/capacity/storage")),
        text("Access Modes", Cell::Of(|v, _| json!(access_modes(&v["spec"]["accessModes"])))),
        text("Reclaim Policy", Cell::At("/spec/persistentVolumeReclaimPolicy")),
        text("Status", Cell::Of(|v, _| json!(status(v)))),
        text("Claim", Cell::Of(|v, _| json!(claim(&v["spec"]["claimRef"])))),
        text("StorageClass", Cell::Of(|v, _| json!(storage_class(v)))),
        text("VolumeAttributesClass", Cell::Of(|v, _| json!(attributes_class(v)))),
        text("Reason", Cell::At("/status/reason")),
        AGE,
        text("VolumeMode", Cell::Of(|v, _| json!(v["spec"]["volumeMode"].as_str().unwrap_or("<unset>")))).wide(),
    ],
    default: |object| {
        let values = [("persistentVolumeReclaimPolicy", json!("Retain")), ("volumeMode", json!("Filesystem"))];
        fill::at(object, "/spec", &values);
        fill::at(object, "/spec/hostPath", &[("type", json!(""))]);
        object.get_mut("spec").and_then(Value::as_object_mut).into_iter().for_each(default_source);
    },
    prepare,
    validate,
    validate_change,
    warnings: |object, _| warnings(object),
    ..Plain::of(&KindInfo {
        short_names: &["pv"],
        namespaced: false,
        status: true,
        ..KindInfo::core("PersistentVolume", "persistentvolumes", "persistentvolume")
    })
};

/// What upstream warns of, though it takes it (`pkg/api/persistentvolume/util.go`).
fn warnings(object: &Value) -> Vec<String> {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let mut all = old_annotation(object, OLD_CLASS, CLASS_IS_FIELD);
    let options = "deprecated since v1.31; use \"mountOptions\" attribute instead";
    all.extend(old_annotation(object, "volume.beta.kubernetes.io/mount-options", options));
    if spec["persistentVolumeReclaimPolicy"] == "Recycle" {
        let why = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
        all.push(format!("spec.persistentVolumeReclaimPolicy: {why}"));
    }
    let at = path.child("nodeAffinity").child("required").child("nodeSelectorTerms");
    for (i, term) in items(&spec["nodeAffinity"]["required"], "nodeSelectorTerms").enumerate() {
        node_labels::of_term(term, false, &at.index(i), &mut all);
    }
    gone_plugins(spec, &path, &mut all);
    all
}

pub(super) fn attributes_class(object: &Value) -> &str {
    object["spec"]["volumeAttributesClassName"].as_str().unwrap_or("<unset>")
}

fn status(object: &Value) -> &str {
    if object["metadata"]["deletionTimestamp"].is_null() { text_of(&object["status"], "phase") } else { "Terminating" }
}

fn claim(reference: &Value) -> String {
    match text_of(reference, "name") {
        "" => String::new(),
        name => format!("{}/{name}", text_of(reference, "namespace")),
    }
}

fn prepare(object: &mut Value, old: Option<&Value>, ctx: &WriteContext) {
    const SINCE: &str = "lastPhaseTransitionTime";
    let Some(old) = old else {
        object["status"]["phase"] = json!("Pending");
        object["status"][SINCE] = json!(ctx.now);
        return;
    };
    let (new, before) = (&object["status"], &old["status"]);
    if ctx.target == WriteTarget::Status && new["phase"] != before["phase"] && new[SINCE] == before[SINCE] {
        object["status"][SINCE] = json!(ctx.now);
    }
}

/// `ValidatePersistentVolumeSpec`.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    check_access_modes(spec, &path, "", errors);
    capacity(spec, &path.child("capacity"), errors);
    let policies = ["Delete", "Recycle", "Retain"];
    if !policies.contains(&text_of(spec, "persistentVolumeReclaimPolicy")) {
        let at = path.child("persistentVolumeReclaimPolicy");
        errors.not_supported(&at, &spec["persistentVolumeReclaimPolicy"], &policies);
    }
    affinity(&spec["nodeAffinity"], &path.child("nodeAffinity"), errors);
    source(spec, text_of(&object["metadata"], "name"), &path, errors);
    if !text_of(spec, "storageClassName").is_empty() {
        subdomain(&spec["storageClassName"], &path.child("storageClassName"), errors);
    }
    if !matches!(text_of(spec, "volumeMode"), "Block" | "Filesystem") {
        errors.not_supported(&path.child("volumeMode"), &spec["volumeMode"], &["Block", "Filesystem"]);
    }
    attributes(spec, &path, errors);
}

/// The same for a volume that an attachment has within itself: only a driver can have made it, and nobody claims it.
pub(in crate::kinds) fn validate_inline(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
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
    check_access_modes(spec, path, "", errors);
    if !matches!(text_of(spec, "persistentVolumeReclaimPolicy"), "" | "Retain") {
        errors.forbidden(&path.child("persistentVolumeReclaimPolicy"), &format!("may only be Retain {INLINE}"));
    }
    forbidden("nodeAffinity", Value::Null, errors);
    source(spec, "", path, errors);
    forbidden("storageClassName", json!(""), errors);
    if !matches!(spec["volumeMode"].as_str(), None | Some("Filesystem")) {
        let why = format!("may not specify volumeMode other than Filesystem {INLINE}");
        errors.forbidden(&path.child("volumeMode"), &why);
    }
}

fn capacity(spec: &Value, at: &FieldPath, errors: &mut FieldErrors) {
    let capacity = spec["capacity"].as_object().cloned().unwrap_or_default();
    if capacity.is_empty() {
        errors.required(at, "");
    }
    if !capacity.contains_key("storage") || capacity.len() > 1 {
        errors.not_supported(at, &spec["capacity"], &["storage"]);
    }
    for (name, quantity) in &capacity {
        check_positive(quantity, &at.key(name), errors);
    }
}

/// The one source that there is.
fn source(spec: &Value, name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let owner = Owner::PersistentVolume(name);
    let kind = volume_source::only(spec, owner, path, errors).map_or("", |(kind, source)| {
        volume_source::check(kind, source, owner, path, errors);
        kind
    });
    if kind == "csi" {
        csi(&spec["csi"], &path.child("csi"), errors);
    }
    if kind == "local" && spec["nodeAffinity"].is_null() {
        // The path is upstream's, from when the affinity was an annotation.
        let at = FieldPath::new("metadata").child("annotations");
        errors.required(&at, "Local volume requires node affinity");
    }
    let root = |place: &str| !place.is_empty() && place.split('/').all(|part| part.is_empty() || part == ".");
    if root(text_of(&spec["hostPath"], "path")) && spec["persistentVolumeReclaimPolicy"] == "Recycle" {
        let at = path.child("persistentVolumeReclaimPolicy");
        errors.forbidden(&at, "may not be 'recycle' for a hostPath mount of '/'");
    }
}

/// `validateCSIPersistentVolumeSource`.
fn csi(csi: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    csi_driver_name(&csi["driver"], &path.child("driver"), errors);
    if text_of(csi, "volumeHandle").is_empty() {
        errors.required(&path.child("volumeHandle"), "");
    }
    let secrets = ["controllerPublishSecretRef", EXPAND_SECRET, "nodePublishSecretRef", "nodeExpandSecretRef"];
    for field in secrets.into_iter().filter(|field| !csi[*field].is_null()) {
        let (path, secret) = (path.child(field), &csi[field]);
        required_subdomain(&secret["name"], &path.child("name"), errors);
        required_label(&secret["namespace"], &path.child("namespace"), errors);
    }
}

/// Only CSI knows classes of attributes.
fn attributes(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (at, attributes) = (path.child("volumeAttributesClassName"), &spec["volumeAttributesClassName"]);
    if attributes.is_null() {
        return;
    }
    match attributes.as_str().unwrap_or("") {
        "" => errors.required(&at, "an empty string is disallowed"),
        _ => subdomain(attributes, &at, errors),
    }
    if spec["csi"].is_null() {
        errors.required(&path.child("csi"), "has to be specified when using volumeAttributesClassName");
    }
}

/// `validateVolumeNodeAffinity`.
fn affinity(affinity: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match (affinity, &affinity["required"]) {
        (Value::Null, _) => {}
        (_, Value::Null) => errors.required(&path.child("required"), "must specify required node constraints"),
        (_, required) => node_selector(required, &path.child("required"), errors),
    }
}

/// The secret with which a volume grows, which may be told when the volume is there already.
const EXPAND_SECRET: &str = "controllerExpandSecretRef";

/// `ValidatePersistentVolumeUpdate`: a volume stays where it is.
fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (spec, before) = (&object["spec"], &old["spec"]);
    let is_told_later = before["csi"].is_object() && before["csi"][EXPAND_SECRET].is_null();
    let sources = |spec: &Value| -> Vec<(String, Value)> {
        let all = spec.as_object().into_iter().flatten();
        let mut all: Vec<_> =
            all.filter(|(k, _)| !BESIDE_SOURCE.contains(&k.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect();
        for (_, source) in all.iter_mut().filter(|(k, _)| k == "csi" && is_told_later) {
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
    // These two are upstream's paths.
    immutable(&spec["volumeMode"], &before["volumeMode"], &FieldPath::new("volumeMode"), errors);
    if !before["nodeAffinity"].is_null() {
        immutable(&spec["nodeAffinity"], &before["nodeAffinity"], &FieldPath::new("nodeAffinity"), errors);
    }
    if !before["volumeAttributesClassName"].is_null() && spec["volumeAttributesClassName"].is_null() {
        errors.forbidden(&path.child("volumeAttributesClassName"), "update from non-nil value to nil is forbidden");
    }
}
