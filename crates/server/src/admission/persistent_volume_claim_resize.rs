//! The `PersistentVolumeClaimResize` admission plugin (`plugin/pkg/admission/storage/persistentvolume/resize`).

use super::plugin::{AdmittedWrite, Plugin};
use api::quantity::Amount;
use auth::stored_object;
use errors::ApiError;
use kinds::storage_class;
use serde_json::Value;
use store::Store;

/// Denies the expansion of claims that cannot be expanded.
pub(super) struct PersistentVolumeClaimResize;

impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn validate(&self, write: &AdmittedWrite<'_>, object: &Value) -> Result<Vec<String>, ApiError> {
        if write.is_of("", "PersistentVolumeClaim") && write.is_main() {
            let validated = validate(&write.control.store, object, write.old);
            validated.map_err(|error| write.forbidden(object, &error))?;
        }
        Ok(Vec::new())
    }
}

/// Denial of an expansion.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResizeError {
    #[error("only bound persistent volume claims can be expanded")]
    NotBound,
    #[error(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
    )]
    NotExpandable,
}

/// Denies the expansion of a claim whose StorageClass does not allow it.
pub(super) fn validate(store: &Store, claim: &Value, old: Option<&Value>) -> Result<(), ResizeError> {
    let size = |claim: &Value| {
        let text = claim["spec"]["resources"]["requests"]["storage"].as_str().unwrap_or("");
        Amount::parse(text).unwrap_or_default()
    };
    let Some(old) = old.filter(|old| size(claim) > size(old)) else { return Ok(()) };
    if old["status"]["phase"] != "Bound" {
        return Err(ResizeError::NotBound);
    }
    let class = stored_object::get(store, "storageclasses", "", &storage_class(claim)).unwrap_or_default();
    if class["allowVolumeExpansion"] == true {
        return Ok(());
    }
    Err(ResizeError::NotExpandable)
}
