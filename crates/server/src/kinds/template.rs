//! Templates of Pods: their defaults and rules are those of Pods, wherever they stand.

use super::{
    Cell, Column, FieldErrors, FieldPath,
    checks::{items, text as text_of},
    or_none, pod, selector, text,
};
use crate::object_meta;
use serde_json::{Value, json};

/// The template of most kinds.
pub(in crate::kinds) const SPEC: &str = "/spec/template";
/// The same as a path.
pub(in crate::kinds) const SPEC_PATH: &[&str] = &["spec", "template"];

/// Columns that tell of the Pods that are made, for `-o wide`.
pub(in crate::kinds) const CONTAINERS: Column =
    text("Containers", Cell::Of(|object, _| joined(&object["spec"]["template"], "name"))).wide();
pub(in crate::kinds) const IMAGES: Column =
    text("Images", Cell::Of(|object, _| joined(&object["spec"]["template"], "image"))).wide();
pub(in crate::kinds) const SELECTOR: Column =
    text("Selector", Cell::Of(|object, _| selector::shown(&object["spec"]["selector"]))).wide();

/// What the containers of a template say of themselves.
pub(in crate::kinds) fn joined(template: &Value, field: &str) -> Value {
    let all: Vec<&str> = items(&template["spec"], "containers").map(|c| text_of(c, field)).collect();
    json!(all.join(","))
}

/// Fills in the defaults of the template at this JSON pointer.
pub(in crate::kinds) fn default(object: &mut Value, pointer: &str) {
    let Some(template) = object.pointer_mut(pointer).filter(|t| t.is_object()) else { return };
    if template["spec"].is_null() {
        template["spec"] = json!({});
    }
    template["spec"].as_object_mut().into_iter().for_each(pod::default_spec);
}

/// Checks a template (`ValidatePodTemplateSpec`).
pub(in crate::kinds) fn validate(template: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let at = path.child("metadata");
    object_meta::labels(&template["metadata"]["labels"], &at.child("labels"), errors);
    object_meta::annotations(&template["metadata"]["annotations"], &at.child("annotations"), errors);
    let (spec, path) = (&template["spec"], path.child("spec"));
    pod::validate_spec(spec, &path, errors);
    if items(spec, "ephemeralContainers").next().is_some() {
        errors.forbidden(&path.child("ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}

/// Checks the template of a kind that keeps its Pods running, and that its selector selects them; `kind` is in the message.
pub(in crate::kinds) fn validate_lasting(template: &Value, path: &FieldPath, kind: &str, errors: &mut FieldErrors) {
    validate(template, path, errors);
    let (spec, path) = (&template["spec"], path.child("spec"));
    if text_of(spec, "restartPolicy") != "Always" {
        errors.not_supported(&path.child("restartPolicy"), &spec["restartPolicy"], &["Always"]);
    }
    if !spec["activeDeadlineSeconds"].is_null() {
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(&path.child("activeDeadlineSeconds"), &why);
    }
}

/// Checks that what the template makes is selected.
pub(in crate::kinds) fn validate_selected(
    template: &Value,
    selected: bool,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if !selected {
        let why = "`selector` does not match template `labels`";
        errors.invalid(&path.child("metadata").child("labels"), &template["metadata"]["labels"], why);
    }
}

/// What is odd in a kind's template, whenever what is wanted has changed.
pub(in crate::kinds) fn warnings(object: &Value, old: Option<&Value>, path: &[&str]) -> Vec<String> {
    let generation = |object: &Value| object["metadata"]["generation"].clone();
    if old.is_some_and(|old| generation(old) == generation(object)) {
        return Vec::new();
    }
    let template = path.iter().fold(object, |value, part| &value[*part]);
    pod::template_warnings(template, &path.iter().fold(FieldPath::default(), |at, part| at.child(part)))
}

/// The same, and what is odd in the name, of kinds whose names become those of their Pods.
pub(in crate::kinds) fn warnings_with_name(object: &Value, old: Option<&Value>, path: &[&str]) -> Vec<String> {
    let wrong = api::names::dns1123_label(text_of(&object["metadata"], "name"));
    let name = (old.is_none() && !wrong.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            wrong.join(" ")
        )
    });
    name.into_iter().chain(warnings(object, old, path)).collect()
}

/// Labels of a template, as tables show them.
pub(in crate::kinds) fn labels(template: &Value) -> Value {
    or_none(&selector::labels_as_text(&template["metadata"]["labels"]))
}
