//! Objects that were managed by `kubectl apply` before it applied on the server.

use crate::{compare::compare, field_set::field_set, schema::TypeRef, set::Set};
use serde_json::Value;

/// Where client-side apply keeps what it applied.
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager of kubectl's own applies, unless its user says otherwise: only for it does this count.
pub(crate) const KUBECTL: &str = "kubectl";
/// Upstream's bound on all annotations, in bytes: an annotation that would pass it is dropped.
const MAX_ANNOTATIONS: usize = 256 << 10;

const ANNOTATIONS: &str = "/metadata/annotations";

fn annotation(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION].as_str().filter(|a| !a.is_empty())
}

/// Fields that still are as client-side apply once wrote them: kubectl may take these without a conflict.
pub(crate) fn fields(of: TypeRef<'_>, live: &Value, api_version: &str) -> Option<Set> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last["apiVersion"] != api_version {
        return None;
    }
    let changed = compare(of, Some(&last), Some(live));
    let fields = field_set(of, &last);
    Some(fields.difference(&changed.modified).difference(&changed.added).difference(&changed.removed))
}

/// Keeps the annotation, where there is one, in step with what is applied now.
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
    // With the newline that Go's encoder ends with.
    annotations.insert(ANNOTATION.to_owned(), format!("{config}\n").into());
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
}
