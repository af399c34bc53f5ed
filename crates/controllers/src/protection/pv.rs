//! PersistentVolume protection: volumes are kept while they are bound to a claim.

use super::{Event, Protected, ProtectionController};
use crate::{clients::Clients, names, worker};
use futures::stream::StreamExt;
use informer::watch;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, Client, runtime::watcher::Config};
use tokio_util::sync::CancellationToken;

struct PvProtection;

impl Protected for PvProtection {
    type Object = PersistentVolume;

    const CONTROLLER: &'static str = names::PERSISTENT_VOLUME_PROTECTION;

    const FINALIZER: &'static str = "kubernetes.io/pv-protection";

    fn api(client: Client, _: &str) -> Api<PersistentVolume> {
        Api::all(client)
    }

    async fn is_used(&self, _: &Client, volume: &PersistentVolume) -> Result<bool, kube::Error> {
        Ok(volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound"))
    }
}

pub(crate) async fn run(clients: Clients, stop: CancellationToken) {
    let volumes = watch(Api::all(clients.shared()), Config::default()).map(Event::Object).boxed();
    worker::run(
        ProtectionController::new(clients.for_service_account("pv-protection-controller"), PvProtection),
        volumes,
        stop,
    )
    .await;
}
