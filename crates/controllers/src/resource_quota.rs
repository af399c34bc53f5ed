//! Resource quota controller: keeps the status of ResourceQuotas (`pkg/controller/resourcequota`).
//!
//! The API server enforces quotas with its own counts. Only kinds that a quota of the namespace counts are watched,
//! by metadata only.

use crate::{
    clients::Clients,
    names,
    worker::{self, Controller, ignore_not_found_or_conflict},
};
use admission::quota::{self, Kind, Object};
use futures::stream::{self, StreamExt};
use informer::{WatchEvent, watch, watch_while_served};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ResourceQuota, ResourceQuotaStatus},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    discovery,
    runtime::watcher::Config,
};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{Mutex as AsyncMutex, mpsc},
    time::Instant,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Minimum interval of counts in a namespace.
const MIN_COUNT_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of full counts (upstream's `resyncPeriod`): a Pod that exceeds its grace period stops counting without an
/// event.
const RESYNC_PERIOD: Duration = Duration::from_secs(300);
/// Interval of discovery while a counted kind is not served.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);

/// Group and plural name of a kind.
type Name = (String, String);

enum Event {
    Quota(WatchEvent<ResourceQuota>),
    /// A counted object of this namespace has changed.
    CountedObjectChanged(String),
}

type Quotas = BTreeMap<String, Arc<ResourceQuota>>;

/// The counted kinds of a namespace.
#[derive(Default)]
struct Monitors {
    /// Watched kinds; dropping the guard ends the watch.
    watched: HashMap<Name, (ApiResource, DropGuard)>,
    counted: Option<Instant>,
}

struct ResourceQuotaController {
    client: Client,
    /// Quotas by namespace and name.
    quotas: Mutex<HashMap<String, Quotas>>,
    /// By namespace. A reconcile locks its namespace's; they are kept if it is abandoned.
    monitors: Mutex<HashMap<String, Arc<AsyncMutex<Monitors>>>>,
    changed: mpsc::UnboundedSender<String>,
}

impl Controller for ResourceQuotaController {
    type Event = Event;

    const NAME: &'static str = names::RESOURCE_QUOTA;

    fn observe(&self, event: Event, _: Instant) -> Vec<String> {
        let namespaced_name =
            |meta: &ObjectMeta| (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        match event {
            Event::Quota(WatchEvent::Applied(quota)) => {
                let (namespace, name) = namespaced_name(&quota.metadata);
                let mut quota = *quota;
                quota.metadata.managed_fields = None;
                self.quotas.lock().entry(namespace.clone()).or_default().insert(name, Arc::new(quota));
                vec![namespace]
            }
            Event::Quota(WatchEvent::Deleted(quota)) => {
                let (namespace, name) = namespaced_name(&quota.metadata);
                if let Some(known) = self.quotas.lock().get_mut(&namespace) {
                    known.remove(&name);
                }
                vec![namespace]
            }
            Event::Quota(WatchEvent::Listed(keys)) => {
                let mut quotas = self.quotas.lock();
                for (namespace, known) in quotas.iter_mut() {
                    known.retain(|name, _| keys.contains(&format!("{namespace}/{name}")));
                }
                quotas.keys().cloned().collect()
            }
            Event::CountedObjectChanged(namespace) => vec![namespace],
        }
    }

    async fn reconcile(&self, namespace: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(quotas) = self.quotas_of(namespace) else {
            self.monitors.lock().remove(namespace);
            return Ok(None);
        };
        let monitors = Arc::clone(self.monitors.lock().entry(namespace.to_owned()).or_default());
        let mut monitors = monitors.lock().await;
        if let Some(left) = monitors.counted.and_then(|at| MIN_COUNT_INTERVAL.checked_sub(now.duration_since(at))) {
            return Ok(Some(left));
        }
        self.count_all(namespace, &quotas, &mut monitors, now).await.map(Some)
    }
}

impl ResourceQuotaController {
    /// Returns the quotas of a namespace, if it has any.
    fn quotas_of(&self, namespace: &str) -> Option<Quotas> {
        let mut quotas = self.quotas.lock();
        if quotas.get(namespace)?.is_empty() {
            quotas.remove(namespace);
            return None;
        }
        quotas.get(namespace).cloned()
    }

    /// Counts the objects and writes the quotas' status. Returns the delay until the next count.
    async fn count_all(
        &self,
        namespace: &str,
        quotas: &Quotas,
        monitors: &mut Monitors,
        now: Instant,
    ) -> Result<Duration, kube::Error> {
        let kinds = counted_kinds(quotas);
        monitors.sync_watches(&self.client, namespace, &kinds, &self.changed).await?;
        let mut objects = Vec::new();
        let mut unserved = Vec::new();
        for (name, (resource, _)) in &monitors.watched {
            let kind = Kind { group: &name.0, resource: &name.1 };
            match count(&self.client, namespace, kind, resource).await {
                Ok(found) => objects.extend(found),
                Err(kube::Error::Api(status)) if status.is_not_found() => unserved.push(name.clone()),
                Err(error) => return Err(error),
            }
        }
        monitors.watched.retain(|name, _| !unserved.contains(name));
        for quota in quotas.values() {
            update_status(&self.client, namespace, quota, &objects).await?;
        }
        // A failed count is retried with back-off instead.
        monitors.counted = Some(now);
        let all_are_served = monitors.watched.len() == kinds.len();
        Ok(if all_are_served { RESYNC_PERIOD } else { DISCOVERY_INTERVAL })
    }
}

/// Returns the kinds that the quotas count.
fn counted_kinds(quotas: &Quotas) -> BTreeSet<Name> {
    let limited: BTreeSet<String> = quotas.values().flat_map(|q| quota::hard(q).into_keys()).collect();
    let kinds = limited.iter().filter_map(|name| Kind::of(name));
    kinds.map(|kind| (kind.group.to_owned(), kind.resource.to_owned())).collect()
}

impl Monitors {
    /// Starts watches of newly counted kinds, and ends those of others.
    async fn sync_watches(
        &mut self,
        client: &Client,
        namespace: &str,
        kinds: &BTreeSet<Name>,
        changed: &mpsc::UnboundedSender<String>,
    ) -> Result<(), kube::Error> {
        self.watched.retain(|name, _| kinds.contains(name));
        for name in kinds {
            if self.watched.contains_key(name) {
                continue;
            }
            let Some(resource) = find(client, name).await? else { continue };
            let ended = CancellationToken::new();
            let api: Api<PartialObjectMeta<DynamicObject>> = Api::namespaced_with(client.clone(), namespace, &resource);
            let mut changes = watch_while_served(api, Config::default());
            let (notify, namespace) = (changed.clone(), namespace.to_owned());
            let guard = ended.clone().drop_guard();
            tokio::spawn(ended.run_until_cancelled_owned(async move {
                while changes.next().await.is_some() && notify.send(namespace.clone()).is_ok() {}
                // The kind is no longer served: enqueue a count, which removes it.
                let _ = notify.send(namespace);
            }));
            self.watched.insert(name.clone(), (resource, guard));
        }
        Ok(())
    }
}

async fn find(client: &Client, (group, plural): &Name) -> Result<Option<ApiResource>, kube::Error> {
    let served = match discovery::group(client, group).await {
        Ok(group) => group.recommended_resources(),
        Err(kube::Error::Discovery(_)) => return Ok(None),
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(served.into_iter().map(|(resource, _)| resource).find(|resource| resource.plural == *plural))
}

/// Returns the objects of a kind; of kinds that are only counted, without content.
async fn count(
    client: &Client,
    namespace: &str,
    kind: Kind<'_>,
    resource: &ApiResource,
) -> Result<Vec<Object>, kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let now = Timestamp::now();
    if kind.depends_on_content() {
        let all = api.list(&ListParams::default()).await?;
        return Ok(all.items.iter().map(|object| Object::new(kind, &json!(object), now)).collect());
    }
    let all = api.list_metadata(&ListParams::default()).await?;
    Ok(all.items.iter().map(|_| Object::new(kind, &json!({}), now)).collect())
}

/// Writes the status of a quota if it has changed.
async fn update_status(
    client: &Client,
    namespace: &str,
    quota: &ResourceQuota,
    objects: &[Object],
) -> Result<(), kube::Error> {
    let hard = quota.spec.as_ref().and_then(|s| s.hard.clone()).unwrap_or_default();
    let used = quota::resource_list(&quota::used(quota, objects));
    let equals = |list: Option<&BTreeMap<_, _>>, expected| list.cloned().unwrap_or_default() == expected;
    let status = quota.status.as_ref();
    let known = equals(status.and_then(|s| s.hard.as_ref()), hard.clone());
    if known && status.is_some() && equals(status.and_then(|s| s.used.as_ref()), used.clone()) {
        return Ok(());
    }
    let api: Api<ResourceQuota> = Api::namespaced(client.clone(), namespace);
    let name = quota.metadata.name.as_deref().unwrap_or_default();
    // Resources that are no longer limited are removed from the status.
    let status = Some(ResourceQuotaStatus { hard: Some(hard), used: Some(used) });
    let updated = ResourceQuota { status, ..quota.clone() };
    // If the object has changed or is gone, the watch enqueues it again.
    ignore_not_found_or_conflict(api.replace_status(name, &PostParams::default(), &updated).await)
}

pub(crate) async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.for_service_account("resourcequota-controller");
    let (changed, counted) = mpsc::unbounded_channel();
    let counted = stream::unfold(counted, |mut counted| async move { Some((counted.recv().await?, counted)) });
    let quotas = watch(Api::<ResourceQuota>::all(clients.shared()), Config::default()).map(Event::Quota);
    let events = stream::select(quotas, counted.map(Event::CountedObjectChanged)).boxed();
    let controller = ResourceQuotaController { client, quotas: Mutex::default(), monitors: Mutex::default(), changed };
    worker::run(controller, events, stop).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_api::FakeApi;
    use k8s_openapi::api::core::v1::Pod;

    const PODS: &str = "GET api/v1/namespaces/x/pods";

    /// Returns a controller with a quota of the namespace `x` that counts Pods, which are already watched.
    fn controller(api: &FakeApi) -> ResourceQuotaController {
        let quota = json!({"metadata": {"name": "q", "namespace": "x"}, "spec": {"hard": {"pods": "1"}}});
        let quota = Arc::new(serde_json::from_value(quota).unwrap());
        let quotas = [("x".to_owned(), [("q".to_owned(), quota)].into())];
        let pods = (ApiResource::erase::<Pod>(&()), CancellationToken::new().drop_guard());
        let watched = [((String::new(), "pods".to_owned()), pods)].into();
        let monitors = [("x".to_owned(), Arc::new(AsyncMutex::new(Monitors { watched, counted: None })))];
        ResourceQuotaController {
            client: api.client(),
            quotas: Mutex::new(quotas.into()),
            monitors: Mutex::new(monitors.into()),
            changed: mpsc::unbounded_channel().0,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_count_keeps_its_watches() {
        let (api, now) = (FakeApi::new(), Instant::now());
        api.hang_next(PODS);
        let controller = controller(&api);
        let abandoned = tokio::time::timeout(Duration::from_secs(1), controller.reconcile("x", now)).await;
        assert!(abandoned.is_err());
        let monitors = Arc::clone(&controller.monitors.lock()["x"]);
        assert_eq!(monitors.try_lock().unwrap().watched.len(), 1);
        assert_eq!(controller.reconcile("x", now).await.unwrap(), Some(RESYNC_PERIOD));
    }

    #[tokio::test(start_paused = true)]
    async fn failed_count_is_retried_with_growing_delays() {
        let api = FakeApi::new();
        (0..8).for_each(|_| api.refuse_next(PODS, 500));
        let events = stream::iter([Event::CountedObjectChanged("x".into())]).chain(stream::pending()).boxed();
        tokio::spawn(worker::run(controller(&api), events, CancellationToken::new()));
        let began = Instant::now();
        let mut times = Vec::new();
        for left in (0..8).rev() {
            api.wait_until("the count fails", |api| api.refusals(PODS) == left).await;
            times.push(began.elapsed().as_millis());
        }
        assert_eq!(times, [0, 5, 15, 35, 75, 155, 315, 635]);
    }
}
