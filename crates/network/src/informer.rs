//! Informers of the node's network, with notifications of changes. Services and EndpointSlices are watched once, for the
//! proxy and for DNS.

use decode::Decode;
use futures::stream::{self, Stream, StreamExt};
use informer::{Cached, SharedInformer};
use k8s_openapi::{
    api::{core::v1::Service, discovery::v1::EndpointSlice},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client};
use std::{fmt::Debug, sync::Arc};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Informer of Services and EndpointSlices.
#[derive(Clone)]
pub(crate) struct ServiceInformer {
    services: SharedInformer<Service>,
    slices: SharedInformer<EndpointSlice>,
    changed: ChangeNotifier,
}

impl ServiceInformer {
    /// Starts the watches, which run until `stop` is cancelled.
    pub(crate) fn start(client: &Client, stop: &CancellationToken) -> Self {
        let services = start_informer(Api::all(client.clone()), |service: Service| service, stop);
        let slices = start_informer(Api::all(client.clone()), |slice: EndpointSlice| slice, stop);
        let changed = ChangeNotifier::spawn(stream::select(changes(&services), changes(&slices)), stop);
        Self { services, slices, changed }
    }

    /// Waits until the initial lists are complete (`WaitForCacheSync`).
    pub(crate) async fn wait_until_synced(&self) {
        tokio::join!(self.services.wait_until_synced(), self.slices.wait_until_synced());
    }

    /// Waits for a change since the last call.
    pub(crate) async fn changed(&mut self) {
        self.changed.wait().await;
    }

    pub(crate) fn services(&self) -> Vec<Arc<Service>> {
        self.services.all()
    }

    pub(crate) fn slices(&self) -> Vec<Arc<EndpointSlice>> {
        self.slices.all()
    }
}

/// Notification of changes.
#[derive(Clone)]
pub(crate) struct ChangeNotifier(watch::Receiver<()>);

impl ChangeNotifier {
    /// Spawns a task that forwards changes until `stop` is cancelled.
    pub(crate) fn spawn(changes: impl Stream<Item = ()> + Send + 'static, stop: &CancellationToken) -> Self {
        let (sender, changed) = watch::channel(());
        let forwarding = changes.for_each(move |()| {
            let _ = sender.send(());
            std::future::ready(())
        });
        tokio::spawn(stop.clone().run_until_cancelled_owned(forwarding));
        Self(changed)
    }

    /// Waits for a change since the last call.
    pub(crate) async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            // The sender was dropped on shutdown; this task is cancelled, too.
            std::future::pending::<()>().await;
        }
    }
}

/// Starts an informer, which caches what `transform` makes of each object until `stop` is cancelled.
pub(crate) fn start_informer<K, T>(api: Api<K>, transform: fn(K) -> T, stop: &CancellationToken) -> SharedInformer<T>
where
    K: k8s_openapi::Resource + k8s_openapi::Metadata<Ty = ObjectMeta> + Clone + Decode + Debug + Send + 'static,
    T: Cached,
{
    let informer = SharedInformer::new();
    tokio::spawn(informer.clone().run(api, transform, stop.clone()));
    informer
}

/// Returns a stream of the changes of an informer.
pub(crate) fn changes<T: Cached>(informer: &SharedInformer<T>) -> impl Stream<Item = ()> + Send + use<T> {
    informer.subscribe().map(drop)
}
