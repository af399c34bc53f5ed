//! VolumeAttributesClass protection: classes are kept while a volume or a claim uses them.

use super::{Event, Protected, ProtectionController};
use crate::{clients::Clients, names, worker};
use futures::stream::{self, StreamExt};
use informer::watch;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::VolumeAttributesClass,
};
use kube::{Api, Client, api::ListParams, runtime::watcher::Config};
use tokio_util::sync::CancellationToken;

struct VacProtection;

fn has_class(volume: &PersistentVolume, class: &str) -> bool {
    volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()) == Some(class)
}

/// Returns whether the claim requests the class, has it, or is being modified to it.
fn uses_class(claim: &PersistentVolumeClaim, class: &str) -> bool {
    let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
    let requested = spec.and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let has = status.and_then(|status| status.current_volume_attributes_class_name.as_deref());
    let modified = status.and_then(|status| status.modify_volume_status.as_ref());
    let target = modified.and_then(|modified| modified.target_volume_attributes_class_name.as_deref());
    [requested, has, target].contains(&Some(class))
}

impl Protected for VacProtection {
    type Object = VolumeAttributesClass;

    const CONTROLLER: &'static str = names::VOLUME_ATTRIBUTES_CLASS_PROTECTION;

    const FINALIZER: &'static str = "kubernetes.io/vac-protection";

    fn api(client: Client, _: &str) -> Api<VolumeAttributesClass> {
        Api::all(client)
    }

    async fn is_used(&self, client: &Client, class: &VolumeAttributesClass) -> Result<bool, kube::Error> {
        let (name, all) = (class.metadata.name.as_deref().unwrap_or_default(), ListParams::default());
        let volumes = Api::<PersistentVolume>::all(client.clone()).list(&all).await?;
        if volumes.items.iter().any(|volume| has_class(volume, name)) {
            return Ok(true);
        }
        let claims = Api::<PersistentVolumeClaim>::all(client.clone()).list(&all).await?;
        Ok(claims.items.iter().any(|claim| uses_class(claim, name)))
    }
}

pub(crate) async fn run(clients: Clients, stop: CancellationToken) {
    let classes = watch(Api::all(clients.shared()), Config::default()).map(Event::Object);
    // These events have no effect unless a class is pending deletion.
    let volumes = watch::<PersistentVolume>(Api::all(clients.shared()), Config::default()).map(|_| Event::All);
    let claims = watch::<PersistentVolumeClaim>(Api::all(clients.shared()), Config::default()).map(|_| Event::All);
    let events = stream::select(classes, stream::select(volumes, claims)).boxed();
    worker::run(
        ProtectionController::new(
            clients.for_service_account("volumeattributesclass-protection-controller"),
            VacProtection,
        ),
        events,
        stop,
    )
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(claim: Value, expected: bool) {
        assert_eq!(uses_class(&serde_json::from_value(claim).unwrap(), "fast"), expected);
    }

    #[test]
    fn claim_uses_current_requested_and_target_classes() {
        check(json!({"metadata": {}}), false);
        check(json!({"metadata": {}, "spec": {"volumeAttributesClassName": "slow"}}), false);
        check(json!({"metadata": {}, "spec": {"volumeAttributesClassName": "fast"}}), true);
        check(json!({"metadata": {}, "status": {"currentVolumeAttributesClassName": "fast"}}), true);
        let modify_status = json!({"status": "Pending", "targetVolumeAttributesClassName": "fast"});
        check(json!({"metadata": {}, "status": {"modifyVolumeStatus": modify_status}}), true);
    }
}
