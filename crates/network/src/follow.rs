//! Objects as the API has them; Services and EndpointSlices are watched once, for traffic and for names.

use api::lean::Lean;
use futures::TryStreamExt;
use futures::stream::{self, Stream, StreamExt};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::reflector::{Lookup, Store, reflector, store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// No watch is trusted for longer: a new list repairs what it lost.
const RELIST: Duration = Duration::from_secs(600);

/// What is known of Services, and the word that it has changed.
#[derive(Clone)]
pub(crate) struct Followed {
    services: Store<Service>,
    slices: Store<EndpointSlice>,
    changed: Changed,
}

impl Followed {
    /// Watches until it is told to stop.
    pub(crate) fn start(client: &Client, stop: &CancellationToken) -> Self {
        let (services, of_services) = follow(Api::all(client.clone()), |_| {});
        let (slices, of_slices) = follow(Api::all(client.clone()), |_| {});
        let changed = Changed::by(stream::select(of_services, of_slices), stop);
        Self { services, slices, changed }
    }

    /// Waits until everything that is there was seen once.
    pub(crate) async fn listed(&self) {
        let _ = tokio::join!(self.services.wait_until_ready(), self.slices.wait_until_ready());
    }

    /// Waits for a change since it was last asked.
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

/// The word that something has changed.
#[derive(Clone)]
pub(crate) struct Changed(watch::Receiver<()>);

impl Changed {
    /// Goes through changes until it is told to stop.
    pub(crate) fn by(changes: impl Stream<Item = ()> + Send + 'static, stop: &CancellationToken) -> Self {
        let (tell, changed) = watch::channel(());
        let watching = changes.for_each(move |()| {
            let _ = tell.send(());
            std::future::ready(())
        });
        tokio::spawn(stop.clone().run_until_cancelled_owned(watching));
        Self(changed)
    }

    /// Waits for a change since it was last asked.
    pub(crate) async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody watches any more: it has ended, and so does who waits here.
            std::future::pending::<()>().await;
        }
    }
}

/// A copy of all objects of a kind, of which `trim` keeps what is needed, and a stream of its changes.
pub(crate) fn follow<K>(api: Api<Lean<K>>, trim: fn(&mut K)) -> (Store<K>, impl Stream<Item = ()> + Send)
where
    K: k8s_openapi::Metadata<Ty = ObjectMeta> + Lookup + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    <K as Lookup>::DynamicType: Eq + Hash + Clone + Default + Send + Sync,
{
    let (reader, writer) = store();
    let once = move || {
        let events = watcher(api.clone(), watcher::Config::default()).default_backoff();
        events.take_until(tokio::time::sleep(RELIST))
    };
    let events = stream::repeat_with(once).flatten().map_ok(move |event| bare(event, trim));
    let changes = reflector(writer, events).filter_map(async |event| match event {
        // While a list is read, nothing has changed yet.
        Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => None,
        Ok(_) => Some(()),
        Err(e) => {
            tracing::warn!("the watch of {} is interrupted: {e}", K::KIND);
            None
        }
    });
    (reader, changes)
}

fn bare<K>(event: watcher::Event<Lean<K>>, trim: fn(&mut K)) -> watcher::Event<K> {
    use watcher::Event;
    let trimmed = |Lean(mut object)| {
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
