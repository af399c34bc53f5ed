//! Migration from client-side to server-side apply of `kubectl` (`LastAppliedUpdater`, `LastAppliedManager`).

use crate::{compare::compare, field_set::field_set, schema::TypeRef, set::Set};
use serde_json::Value;

/// Annotation with the last configuration of client-side apply (`LastAppliedConfigAnnotation`).
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Default field manager of `kubectl apply`; the annotation is only used for it.
pub(crate) const KUBECTL: &str = "kubectl";
/// Maximum size of all annotations, in bytes (`TotalAnnotationSizeLimitB`); the annotation is dropped if it would exceed it.
const MAX_ANNOTATION_BYTES: usize = 256 << 10;

const ANNOTATIONS: &str = "/metadata/annotations";

fn annotation(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION].as_str().filter(|a| !a.is_empty())
}

/// Returns the fields that still have the values of the last client-side apply; kubectl takes them without a conflict.
pub(crate) fn fields(type_ref: TypeRef<'_>, live: &Value, api_version: &str) -> Option<Set> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last["apiVersion"] != api_version {
        return None;
    }
    let changed = compare(type_ref, Some(&last), Some(live));
    let fields = field_set(type_ref, &last);
    Some(fields.difference(&changed.modified).difference(&changed.added).difference(&changed.removed))
}

/// Updates the annotation, if present, to the configuration that is applied.
pub(crate) fn refresh(object: &mut Value, mut config: Value) {
    if annotation(object).is_none() {
        return;
    }
    if let Some(Value::Object(annotations)) = config.pointer_mut(ANNOTATIONS) {
        annotations.remove(ANNOTATION);
    } else if let Some(Value::Object(metadata)) = config.pointer_mut("/metadata") {
        metadata.remove("annotations");
    }
    let Some(Value::Object(annotations)) = object.pointer_mut(ANNOTATIONS) else { return };
    // Go's JSON encoder ends with a newline.
    annotations.insert(ANNOTATION.to_owned(), format!("{config}\n").into());
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATION_BYTES {
        annotations.remove(ANNOTATION);
    }
}
