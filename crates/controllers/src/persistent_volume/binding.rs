//! Writes the planned step of a claim, its volume first.

use super::{
    PersistentVolumeController, RecordedEvent,
    claim::{self, ClaimContext},
    provisioner::{Provisioner, VolumeError},
    unscheduled_pod,
};
use crate::worker::is_code;
use api::persistent_volume_claim::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, NO_PROVISIONER, PROVISIONERS, SELECTED_NODE, annotation, bind_volume_to_claim,
    claim_storage_class, phase, volume_name,
};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus},
    storage::v1::StorageClass,
};
use kube::{Api, Resource, ResourceExt, api::PostParams};
use std::{sync::Arc, time::Duration};

/// Delay before a sync with stale input is repeated.
const SOON: Duration = Duration::from_millis(100);

pub(super) type SyncResult = Result<Option<Duration>, kube::Error>;

/// Requeues the key if a write met a concurrent change.
pub(super) fn ignore_stale(result: Result<(), kube::Error>) -> SyncResult {
    match result {
        Err(e) if is_code(&e, 404) || is_code(&e, 409) => Ok(Some(SOON)),
        other => other.map(|()| None),
    }
}

impl PersistentVolumeController {
    pub(super) fn claims_of(&self, namespace: Option<String>) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), namespace.as_deref().unwrap_or_default())
    }

    pub(super) fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    pub(super) async fn record_event<K: Resource<DynamicType = ()>>(&self, object: &K, event: &RecordedEvent) {
        self.recorder.record(&object.object_ref(&()), event.warning, event.reason, &event.message).await;
    }

    /// Syncs a claim.
    pub(super) async fn sync_claim(&self, claim: &Arc<PersistentVolumeClaim>) -> SyncResult {
        let (volumes, classes) = (self.volumes.all(), self.classes.all());
        let pod = unscheduled_pod(&self.pods, claim);
        let context =
            ClaimContext { volumes: &volumes, classes: &classes, pod: pod.as_ref().map(|pod| pod.name.as_str()) };
        let written = match claim::plan(claim, &context) {
            claim::Step::Wait(event) => self.mark_unbound(claim, "Pending", event).await,
            claim::Step::Lost(event) => self.mark_unbound(claim, "Lost", Some(event)).await,
            claim::Step::AssignDefaultClass(class) => self.assign_default_class(claim, class).await,
            claim::Step::Bind(volume) => self.bind(&volume, claim).await,
            claim::Step::Provision => self.provision(claim).await,
        };
        ignore_stale(written)
    }

    /// Sets the phase of an unbound claim. The loss of a volume is reported once.
    async fn mark_unbound(
        &self,
        claim: &PersistentVolumeClaim,
        phase: &str,
        event: Option<RecordedEvent>,
    ) -> Result<(), kube::Error> {
        let status = claim.status.clone().unwrap_or_default();
        let changed = status.phase.as_deref() != Some(phase);
        if let Some(event) = event.filter(|_| changed || phase == "Pending") {
            self.record_event(claim, &event).await;
        }
        if !changed && status.access_modes.is_none() && status.capacity.is_none() {
            return Ok(());
        }
        let status =
            PersistentVolumeClaimStatus { phase: Some(phase.to_owned()), access_modes: None, capacity: None, ..status };
        self.write_status(claim, status).await
    }

    async fn write_status(
        &self,
        claim: &PersistentVolumeClaim,
        status: PersistentVolumeClaimStatus,
    ) -> Result<(), kube::Error> {
        let written = PersistentVolumeClaim { status: Some(status), ..claim.clone() };
        let api = self.claims_of(claim.namespace());
        api.replace_status(&claim.name_any(), &PostParams::default(), &written).await.map(drop)
    }

    /// Assigns the default class to an older claim (KEP-3333).
    async fn assign_default_class(&self, claim: &PersistentVolumeClaim, class: String) -> Result<(), kube::Error> {
        let mut claim = claim.clone();
        claim.spec.get_or_insert_default().storage_class_name = Some(class);
        let api = self.claims_of(claim.namespace());
        api.replace(&claim.name_any(), &PostParams::default(), &claim).await.map(drop)
    }

    /// Writes the missing parts of a binding: references and phases of volume and claim.
    async fn bind(&self, volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), kube::Error> {
        let (name, params) = (volume.name_any(), PostParams::default());
        let volume = match bind_volume_to_claim(volume, claim) {
            Some(bound) => self.volumes().replace(&name, &params, &bound).await?,
            None => volume.clone(),
        };
        let volume = self.write_phase(volume, "Bound", None).await?;
        let claim = self.bind_claim(claim, &name).await?;
        let mut status = claim.status.clone().unwrap_or_default();
        let spec = volume.spec.unwrap_or_default();
        status.phase = Some("Bound".to_owned());
        status.access_modes = spec.access_modes;
        // The capacity is set once: a resize updates it later.
        status.capacity = status.capacity.or(spec.capacity);
        status.current_volume_attributes_class_name =
            status.current_volume_attributes_class_name.or(spec.volume_attributes_class_name);
        if claim.status.as_ref() == Some(&status) {
            return Ok(());
        }
        self.write_status(&claim, status).await
    }

    async fn bind_claim(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &str,
    ) -> Result<PersistentVolumeClaim, kube::Error> {
        let mut bound = claim.clone();
        let annotations = bound.metadata.annotations.get_or_insert_default();
        annotations.insert(BIND_COMPLETED.to_owned(), "yes".to_owned());
        if volume_name(claim) != Some(volume) {
            annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
            bound.spec.get_or_insert_default().volume_name = Some(volume.to_owned());
        }
        if &bound == claim {
            return Ok(bound);
        }
        self.claims_of(claim.namespace()).replace(&claim.name_any(), &PostParams::default(), &bound).await
    }

    pub(super) async fn write_phase(
        &self,
        volume: PersistentVolume,
        to: &str,
        message: Option<&str>,
    ) -> Result<PersistentVolume, kube::Error> {
        let mut status = volume.status.clone().unwrap_or_default();
        if phase(&volume) == Some(to) && status.message.as_deref() == message {
            return Ok(volume);
        }
        status.phase = Some(to.to_owned());
        status.message = message.map(str::to_owned);
        let written = PersistentVolume { status: Some(status), ..volume };
        self.volumes().replace_status(&written.name_any(), &PostParams::default(), &written).await
    }

    /// Provisions a volume by Podium's provisioner, or waits for an external one.
    async fn provision(&self, claim: &PersistentVolumeClaim) -> Result<(), kube::Error> {
        const FAILED: &str = "ProvisioningFailed";
        let name = claim_storage_class(claim);
        let Some(class) = self.classes.get("", name) else {
            let message = format!("storageclass.storage.k8s.io {name:?} not found");
            return self.mark_unbound(claim, "Pending", Some(RecordedEvent::warning(FAILED, message))).await;
        };
        let provisioner = class.provisioner.as_str();
        let own_provisioner = self.provisioner.as_ref().filter(|own_provisioner| own_provisioner.name() == provisioner);
        // Upstream's in-tree provisioners are not supported.
        if own_provisioner.is_none() && (provisioner == NO_PROVISIONER || provisioner.starts_with("kubernetes.io/")) {
            let message = format!("no volume plugin matched name: {provisioner}");
            return self.mark_unbound(claim, "Pending", Some(RecordedEvent::warning(FAILED, message))).await;
        }
        let claim = self.set_provisioner_annotations(claim, provisioner).await?;
        match own_provisioner {
            Some(provisioner) => match self.create_volume(provisioner, &claim, &class).await {
                Ok(()) => Ok(()),
                Err(ProvisionError::Volume(error)) => {
                    let message = format!("Failed to provision volume with StorageClass {name:?}: {error}");
                    self.mark_unbound(&claim, "Pending", Some(RecordedEvent::warning(FAILED, message))).await?;
                    self.reschedule_provisioning(&claim).await
                }
                Err(ProvisionError::Request(error)) => Err(error),
            },
            None => {
                let message = format!(
                    "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by \
                     the system administrator. If volume creation is delayed, please verify that the provisioner is \
                     running and correctly registered."
                );
                self.mark_unbound(&claim, "Pending", Some(RecordedEvent::normal("ExternalProvisioning", message))).await
            }
        }
    }

    /// Clears the selected node, so that the scheduler can choose another (`rescheduleProvisioning`).
    async fn reschedule_provisioning(&self, claim: &PersistentVolumeClaim) -> Result<(), kube::Error> {
        let mut claim = claim.clone();
        let selected = claim.metadata.annotations.as_mut().and_then(|all| all.remove(SELECTED_NODE));
        if selected.is_none() {
            return Ok(());
        }
        self.claims_of(claim.namespace()).replace(&claim.name_any(), &PostParams::default(), &claim).await.map(drop)
    }

    async fn set_provisioner_annotations(
        &self,
        claim: &PersistentVolumeClaim,
        provisioner: &str,
    ) -> Result<PersistentVolumeClaim, kube::Error> {
        if PROVISIONERS.iter().all(|key| annotation(&claim.metadata, key) == Some(provisioner)) {
            return Ok(claim.clone());
        }
        let mut claim = claim.clone();
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.extend(PROVISIONERS.map(|key| (key.to_owned(), provisioner.to_owned())));
        self.claims_of(claim.namespace()).replace(&claim.name_any(), &PostParams::default(), &claim).await
    }

    async fn create_volume(
        &self,
        provisioner: &Provisioner,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
    ) -> Result<(), ProvisionError> {
        let volume = provisioner.make(claim, class).await.map_err(ProvisionError::Volume)?;
        match self.volumes().create(&PostParams::default(), &volume).await {
            // Created by an interrupted sync.
            Err(e) if is_code(&e, 409) => return Ok(()),
            made => made.map_err(ProvisionError::Request)?,
        };
        let message = format!("Successfully provisioned volume {} using {}", volume.name_any(), provisioner.name());
        self.record_event(claim, &RecordedEvent::normal("ProvisioningSucceeded", message)).await;
        Ok(())
    }
}

/// Why provisioning failed.
enum ProvisionError {
    Volume(VolumeError),
    Request(kube::Error),
}
