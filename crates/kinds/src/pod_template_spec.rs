//! Defaults, validation, warnings and table columns of Pod templates (`PodTemplateSpec`).

use super::{
    Cell, Column, FieldErrors, FieldPath,
    field_cursor::FieldCursor,
    field_validation::{items, text as text_of},
    or_none, pod, selector, text,
};
use crate::object_meta;
use serde_json::{Value, json};

/// JSON pointer of the template in most kinds.
pub(crate) const SPEC: &str = "/spec/template";
/// Path of the template in most kinds.
pub(crate) const SPEC_PATH: &[&str] = &["spec", "template"];

/// Columns of the template's containers, shown with `-o wide`.
pub(crate) const CONTAINERS: Column =
    text("Containers", Cell::Computed(|object, _| container_field_list(&object["spec"]["template"], "name"))).wide();
pub(crate) const IMAGES: Column =
    text("Images", Cell::Computed(|object, _| container_field_list(&object["spec"]["template"], "image"))).wide();
pub(crate) const SELECTOR: Column =
    text("Selector", Cell::Computed(|object, _| selector::table_cell(&object["spec"]["selector"]))).wide();

/// Returns a field of all containers, comma-separated.
pub(crate) fn container_field_list(template: &Value, field: &str) -> Value {
    let all: Vec<&str> = items(&template["spec"], "containers").map(|c| text_of(c, field)).collect();
    json!(all.join(","))
}

/// Sets the defaults of the template at a JSON pointer.
pub(crate) fn set_pod_template_defaults(object: &mut Value, pointer: &str) {
    let Some(template) = object.pointer_mut(pointer).filter(|t| t.is_object()) else { return };
    if template["spec"].is_null() {
        template["spec"] = json!({});
    }
    template["spec"].as_object_mut().into_iter().for_each(pod::set_pod_spec_defaults);
}

/// Validates a template (`ValidatePodTemplateSpec`).
pub(crate) fn validate(template: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (metadata, spec) = (template.at("metadata"), template.at("spec"));
    object_meta::labels(&metadata.at("labels"), errors);
    object_meta::annotations(&metadata.at("annotations"), errors);
    pod::validate_pod_spec(&spec, errors);
    let ephemeral = spec.at("ephemeralContainers");
    if ephemeral.count() > 0 {
        ephemeral.forbidden("ephemeral containers not allowed in pod template", errors);
    }
}

/// Validates the template of a controller that restarts its Pods: `restartPolicy` must be `Always`. `kind` appears in the
/// message.
pub(crate) fn validate_for_controller(template: &FieldCursor<'_, '_>, kind: &str, errors: &mut FieldErrors) {
    validate(template, errors);
    let spec = template.at("spec");
    spec.at("restartPolicy").supported(&["Always"], errors);
    let deadline = spec.at("activeDeadlineSeconds");
    if deadline.is_set() {
        deadline.forbidden(&format!("activeDeadlineSeconds in {kind} is not Supported"), errors);
    }
}

/// Validates that the selector matches the labels of the template.
pub(crate) fn validate_selector_matches(template: &FieldCursor<'_, '_>, selected: bool, errors: &mut FieldErrors) {
    if !selected {
        let metadata = template.at("metadata");
        metadata.at("labels").invalid("`selector` does not match template `labels`", errors);
    }
}

/// Returns the warnings of a template on a create and when the generation changes.
pub(crate) fn warnings(object: &Value, old: Option<&Value>, path: &[&str]) -> Vec<String> {
    let generation = |object: &Value| object["metadata"]["generation"].clone();
    if old.is_some_and(|old| generation(old) == generation(object)) {
        return Vec::new();
    }
    let template = path.iter().fold(object, |value, part| &value[*part]);
    pod::template_warnings(template, &path.iter().fold(FieldPath::default(), |at, part| at.child(part)))
}

/// Returns the warnings of a template, and of a name that is unsuitable for Pod names.
pub(crate) fn warnings_with_name(object: &Value, old: Option<&Value>, path: &[&str]) -> Vec<String> {
    let errors = api::names::dns1123_label(text_of(&object["metadata"], "name"));
    let name = (old.is_none() && !errors.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            errors.join(" ")
        )
    });
    name.into_iter().chain(warnings(object, old, path)).collect()
}

/// Returns the labels of a template as a table cell.
pub(crate) fn labels(template: &Value) -> Value {
    or_none(&selector::format_labels(&template["metadata"]["labels"]))
}
