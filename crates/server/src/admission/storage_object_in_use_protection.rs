//! The `StorageObjectInUseProtection` admission plugin: adds a finalizer, which a controller removes when the object is no
//! longer in use.

use super::plugin::{AdmittedWrite, Plugin};
use errors::ApiError;
use serde_json::{Value, json};

/// Adds a finalizer to new volumes, claims and attributes classes.
pub(super) struct StorageObjectInUseProtection;

impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn admit(&self, write: &AdmittedWrite<'_>, object: &mut Value) -> Result<(), ApiError> {
        let info = write.resource.kind.info();
        if let Some(finalizer) = finalizer(info.group, info.kind).filter(|_| write.old.is_none()) {
            admit(object, finalizer);
        }
        Ok(())
    }
}

/// Returns the finalizer of a protected kind.
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
