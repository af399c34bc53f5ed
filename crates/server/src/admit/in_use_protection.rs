//! The `StorageObjectInUseProtection` admission: what stores data is held until nobody uses it any more. Who lets go of it
//! are the controllers.

use serde_json::{Value, json};

/// The finalizer of a kind whose objects are protected.
pub(super) fn finalizer(group: &str, kind: &str) -> Option<&'static str> {
    match (group, kind) {
        ("", "PersistentVolumeClaim") => Some("kubernetes.io/pvc-protection"),
        ("", "PersistentVolume") => Some("kubernetes.io/pv-protection"),
        ("storage.k8s.io", "VolumeAttributesClass") => Some("kubernetes.io/vac-protection"),
        _ => None,
    }
}

pub(super) fn admit(object: &mut Value, finalizer: &str) {
    let finalizers = &mut object["metadata"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(all) if all.iter().any(|f| f == finalizer) => {}
        Some(all) => all.push(json!(finalizer)),
        None => *finalizers = json!([finalizer]),
    }
}
