//! Writes the planned step of a volume, and reclaims released volumes.

use super::{
    PersistentVolumeController, RecordedEvent,
    binding::{SyncResult, ignore_stale},
    claim_key,
    provisioner::FINALIZER,
    volume,
};
use crate::worker::is_code;
use api::persistent_volume_claim::{PROVISIONED_BY, annotation, claim_ref, phase};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
};
use std::sync::Arc;

/// There is no recycler, which upstream has deprecated.
const NO_RECYCLER: &str = "No recycler plugin found for the volume!";

impl PersistentVolumeController {
    /// Syncs a volume.
    pub(super) async fn sync_volume(&self, volume: &Arc<PersistentVolume>) -> SyncResult {
        let claim = claim_key(volume).and_then(|key| self.claims.get_by_key(&key));
        let written = match volume::plan(volume, claim.as_deref()) {
            volume::Step::Phase(phase) => self.write_phase(volume.as_ref().clone(), phase, None).await.map(drop),
            volume::Step::Claim => match &claim {
                Some(claim) => return self.sync_claim(claim).await,
                None => Ok(()),
            },
            volume::Step::Unbind => {
                let unbound = volume::without_claim(volume);
                self.volumes().replace(&volume.name_any(), &PostParams::default(), &unbound).await.map(drop)
            }
            volume::Step::Release => Box::pin(self.release(volume)).await,
        };
        ignore_stale(written)
    }

    /// Reclaims a volume whose claim is gone or has another volume, after confirming that in the API.
    async fn release(&self, volume: &PersistentVolume) -> Result<(), kube::Error> {
        let name = volume.name_any();
        let claim = match claim_ref(volume) {
            Some(to) => self.claims_of(to.namespace.clone()).get_opt(to.name.as_deref().unwrap_or_default()).await?,
            None => None,
        };
        let Some(newest) = self.volumes().get_opt(&name).await? else { return Ok(()) };
        if newest.metadata.uid != volume.metadata.uid || volume::plan(&newest, claim.as_ref()) != volume::Step::Release
        {
            return Err(stale());
        }
        let newest = match phase(&newest) {
            // A failed volume stays failed while the deletion is retried.
            Some("Released" | "Failed") => newest,
            _ => self.write_phase(newest, "Released", None).await?,
        };
        match volume::policy(&newest) {
            "Delete" => Box::pin(self.delete(newest)).await,
            "Recycle" => Box::pin(self.fail(newest, "VolumeFailedRecycle", NO_RECYCLER)).await,
            _ => self.keep(newest).await,
        }
    }

    /// Removes the finalizer of a retained volume.
    async fn keep(&self, volume: PersistentVolume) -> Result<(), kube::Error> {
        if volume.finalizers().iter().any(|held| held == FINALIZER) {
            self.let_go(volume).await?;
        }
        Ok(())
    }

    async fn let_go(&self, mut volume: PersistentVolume) -> Result<PersistentVolume, kube::Error> {
        volume.finalizers_mut().retain(|held| held != FINALIZER);
        self.volumes().replace(&volume.name_any(), &PostParams::default(), &volume).await
    }

    /// Deletes a volume's data, then the volume.
    async fn delete(&self, volume: PersistentVolume) -> Result<(), kube::Error> {
        const FAILED: &str = "VolumeFailedDelete";
        let name = volume.name_any();
        let Some(provisioner) = self.provisioner.as_ref().filter(|p| p.provisioned(&volume)) else {
            if annotation(&volume.metadata, PROVISIONED_BY).is_some_and(|by| !by.starts_with("kubernetes.io/")) {
                // The external provisioner that created it deletes it.
                return Ok(());
            }
            let message =
                format!("Error getting deleter volume plugin for volume {name:?}: no deletable volume plugin matched");
            return Box::pin(self.fail(volume, FAILED, &message)).await;
        };
        if let Err(e) = provisioner.remove(&volume).await {
            let message = format!("failed to delete volume {name:?}: {e}");
            Box::pin(self.fail(volume, FAILED, &message)).await?;
            return Err(kube::Error::Service(message.into()));
        }
        let volume = match volume.finalizers().iter().any(|held| held == FINALIZER) {
            true => self.let_go(volume).await?,
            false => volume,
        };
        let preconditions = Preconditions { uid: volume.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.volumes().delete(&name, &params).await {
            Err(e) if is_code(&e, 404) => Ok(()),
            other => other.map(drop),
        }
    }

    async fn fail(&self, volume: PersistentVolume, reason: &'static str, message: &str) -> Result<(), kube::Error> {
        let was_failed = phase(&volume) == Some("Failed");
        let volume = self.write_phase(volume, "Failed", Some(message)).await?;
        if !was_failed {
            self.record_event(&volume, &RecordedEvent::warning(reason, message)).await;
        }
        Ok(())
    }
}

/// Returns a conflict, as if a write had failed.
fn stale() -> kube::Error {
    let status = kube::core::Status::failure("the claim or its volume has changed", "Conflict").with_code(409);
    kube::Error::Api(Box::new(status))
}
