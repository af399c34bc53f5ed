//! Cache keys of objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Returns `namespace/name`, or `name` for a cluster-scoped object (`MetaNamespaceKeyFunc`).
#[must_use]
pub fn object_key(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    match meta.namespace.as_deref() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}
