//! Informers: reflectors with change notifications. Services and EndpointSlices are watched once, for the proxy and
//! for DNS.

use api::without_managed_fields::WithoutManagedFields;
use futures::{
    TryStreamExt,
    stream::{self, Stream, StreamExt},
};
use k8s_openapi::{
    api::{core::v1::Service, discovery::v1::EndpointSlice},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt,
        reflector::{Lookup, Store, reflector, store},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use std::{fmt::Debug, hash::Hash, sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Interval between two lists: a new list repairs lost events.
const RELIST_INTERVAL: Duration = Duration::from_secs(600);

/// Informer of Services and EndpointSlices.
#[derive(Clone)]
pub(crate) struct ServiceInformer {
    services: Store<Service>,
    slices: Store<EndpointSlice>,
    changed: ChangeNotifier,
}

impl ServiceInformer {
    /// Starts the watches, which run until `stop` is cancelled.
    pub(crate) fn start(client: &Client, stop: &CancellationToken) -> Self {
        let (services, service_changes) = start_reflector(Api::all(client.clone()), |_| {});
        let (slices, slice_changes) = start_reflector(Api::all(client.clone()), |_| {});
        let changed = ChangeNotifier::spawn(stream::select(service_changes, slice_changes), stop);
        Self { services, slices, changed }
    }

    /// Waits until the initial lists are complete (`WaitForCacheSync`).
    pub(crate) async fn wait_until_synced(&self) {
        let _ = tokio::join!(self.services.wait_until_ready(), self.slices.wait_until_ready());
    }

    /// Waits for a change since the last call.
    pub(crate) async fn changed(&mut self) {
        self.changed.wait().await;
    }

    pub(crate) fn services(&self) -> Vec<Arc<Service>> {
        self.services.state()
    }

    pub(crate) fn slices(&self) -> Vec<Arc<EndpointSlice>> {
        self.slices.state()
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

/// Starts a reflector: returns a store of objects, reduced by `trim`, and a stream of changes.
pub(crate) fn start_reflector<K>(
    api: Api<WithoutManagedFields<K>>,
    trim: fn(&mut K),
) -> (Store<K>, impl Stream<Item = ()> + Send)
where
    K: k8s_openapi::Metadata<Ty = ObjectMeta> + Lookup + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    <K as Lookup>::DynamicType: Eq + Hash + Clone + Default + Send + Sync,
{
    let (reader, writer) = store();
    let new_watch = move || {
        let events = watcher(api.clone(), watcher::Config::default()).default_backoff();
        events.take_until(tokio::time::sleep(RELIST_INTERVAL))
    };
    let events = stream::repeat_with(new_watch).flatten().map_ok(move |event| trim_event(event, trim));
    let changes = reflector(writer, events).filter_map(async |event| match event {
        // The store is replaced only when the list is complete.
        Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => None,
        Ok(_) => Some(()),
        Err(e) => {
            tracing::warn!(kind = K::KIND, error = %e, "failed to watch objects");
            None
        }
    });
    (reader, changes)
}

fn trim_event<K>(event: watcher::Event<WithoutManagedFields<K>>, trim: fn(&mut K)) -> watcher::Event<K> {
    use watcher::Event;
    let trimmed = |WithoutManagedFields(mut object)| {
        trim(&mut object);
        object
    };
    match event {
        Event::Apply(object) => Event::Apply(trimmed(object)),
        Event::Delete(object) => Event::Delete(trimmed(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(trimmed(object)),
        Event::InitDone => Event::InitDone,
    }
}
