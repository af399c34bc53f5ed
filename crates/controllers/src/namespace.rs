//! Namespace controller: deletes the content of terminating namespaces, Pods first, then removes the finalizer
//! (`pkg/controller/namespace/deletion`, with the order of KEP-5080).

mod discovery_cache;

use crate::{
    clients::Clients,
    names,
    worker::{self, Controller, is_code},
};
use api::object_key::object_key;
use discovery_cache::DiscoveryCache;
use informer::{WatchEvent, watch};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Namespace, NamespaceCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
    discovery::ApiResource,
    runtime::watcher::Config,
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The finalizer in `spec.finalizers`.
const FINALIZER: &str = "kubernetes";

/// Poll interval while a namespace terminates: no single event tells that its content is gone.
const BASE_POLL_INTERVAL: Duration = Duration::from_millis(50);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Number of polls before remaining content is reported.
const UNREPORTED_POLLS: u32 = 3;

struct NamespaceController {
    client: Client,
    discovery_cache: DiscoveryCache,
    terminating: Mutex<HashMap<String, Terminating>>,
}

struct Terminating {
    namespace: Arc<Namespace>,
    polls: u32,
}

impl Controller for NamespaceController {
    type Event = WatchEvent<Namespace>;

    const NAME: &'static str = names::NAMESPACE;
    const WORKERS: usize = 10;

    fn observe(&self, event: Self::Event, _: Instant) -> Vec<String> {
        let mut terminating = self.terminating.lock();
        match event {
            WatchEvent::Applied(namespace) => {
                let name = object_key(&namespace.metadata);
                if namespace.metadata.deletion_timestamp.is_none() || !has_finalizer(&namespace) {
                    terminating.remove(&name);
                    return vec![];
                }
                let polls = terminating.get(&name).map_or(0, |t| t.polls);
                terminating.insert(name.clone(), Terminating { namespace: Arc::new(*namespace), polls });
                vec![name]
            }
            WatchEvent::Deleted(namespace) => {
                terminating.remove(&object_key(&namespace.metadata));
                vec![]
            }
            WatchEvent::Listed(names) => {
                terminating.retain(|name, _| names.contains(name));
                vec![]
            }
        }
    }

    async fn reconcile(&self, name: &str, _: Instant) -> Result<Option<Duration>, kube::Error> {
        if !self.terminating.lock().contains_key(name) {
            return Ok(None);
        }
        let content = self.discovery_cache.kinds().await?;
        let mut remaining = delete_content(&self.client, name, &content.kinds).await?;
        remaining.unknown.extend(content.unknown.iter().cloned());
        let Some((namespace, polls)) = self.count_poll(name) else { return Ok(None) };
        if !remaining.is_empty() {
            let delay = (BASE_POLL_INTERVAL * 2_u32.pow(polls.min(6))).min(MAX_POLL_INTERVAL);
            if polls >= UNREPORTED_POLLS || remaining.is_blocked() {
                update_conditions(&self.client, &namespace, &remaining).await?;
            }
            return Ok(Some(delay));
        }
        let mut namespace = Namespace::clone(&namespace);
        if let Some(finalizers) = namespace.spec.as_mut().and_then(|s| s.finalizers.as_mut()) {
            finalizers.retain(|f| f != FINALIZER);
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        match api.replace_subresource("finalize", name, &PostParams::default(), &namespace).await {
            Ok(_) => Ok(None),
            // The namespace is deleted or has changed: the watch enqueues it again.
            Err(e) if is_code(&e, 404) || is_code(&e, 409) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl NamespaceController {
    /// Counts a poll. Returns the newest state of the namespace, and the number of polls before.
    fn count_poll(&self, name: &str) -> Option<(Arc<Namespace>, u32)> {
        let mut terminating = self.terminating.lock();
        let Terminating { namespace, polls } = terminating.get_mut(name)?;
        let before = *polls;
        *polls = before.saturating_add(1);
        Some((Arc::clone(namespace), before))
    }
}

fn has_finalizer(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.as_ref().and_then(|s| s.finalizers.as_ref());
    finalizers.is_some_and(|f| f.iter().any(|f| f == FINALIZER))
}

/// Number of remaining objects by resource, and by finalizer.
#[derive(Debug, Default, PartialEq, Eq)]
struct Remaining {
    resources: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
    /// Errors of failed deletions.
    failures: BTreeSet<String>,
    /// API versions whose discovery failed, so that their content is unknown.
    unknown: Vec<String>,
}

impl Remaining {
    fn is_empty(&self) -> bool {
        self.resources.is_empty() && !self.is_blocked()
    }

    /// Returns whether deletion or discovery failed.
    fn is_blocked(&self) -> bool {
        !self.failures.is_empty() || !self.unknown.is_empty()
    }

    fn add(&mut self, resource: &ApiResource, objects: &[DynamicObject]) {
        if objects.is_empty() {
            return;
        }
        self.resources.insert(format!("{}.{}", resource.plural, resource.group), objects.len());
        for finalizer in objects.iter().flat_map(|o| o.metadata.finalizers.iter().flatten()) {
            *self.finalizers.entry(finalizer.clone()).or_insert(0) += 1;
        }
    }

    /// Returns upstream's conditions (`namespace/deletion/status_condition_utils.go`).
    fn conditions(&self) -> [(&'static str, &'static str, &'static str, String); 5] {
        let list = |counts: &BTreeMap<String, usize>, verb: &str| {
            let counts: Vec<_> =
                counts.iter().map(|(resource, n)| format!("{resource} {verb} {n} resource instances")).collect();
            counts.join(", ")
        };
        let resources = format!("Some resources are remaining: {}", list(&self.resources, "has"));
        let finalizers = if self.finalizers.is_empty() {
            ("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished".into())
        } else {
            let list = list(&self.finalizers, "in");
            ("True", "SomeFinalizersRemain", format!("Some content in the namespace has finalizers remaining: {list}"))
        };
        let content = if self.failures.is_empty() {
            let words = "All content successfully deleted, may be waiting on finalization";
            ("False", "ContentDeleted", words.to_owned())
        } else {
            let (count, all) = (self.failures.len(), Vec::from_iter(self.failures.iter().cloned()).join(", "));
            let words = format!("Failed to delete all resource types, {count} remaining: {all}");
            ("True", "ContentDeletionFailed", words)
        };
        let discovery = if self.unknown.is_empty() {
            ("False", "ResourcesDiscovered", "All resources successfully discovered".to_owned())
        } else {
            let stale: Vec<_> =
                self.unknown.iter().map(|v| format!("{v}: stale GroupVersion discovery: {v}")).collect();
            let (count, all) = (stale.len(), stale.join(", "));
            let words = format!(
                "Discovery failed for some groups, {count} failing: unable to retrieve the complete list of server APIs: {all}"
            );
            ("True", "DiscoveryFailed", words)
        };
        let resources = if self.resources.is_empty() {
            ("False", "ContentRemoved", "All content successfully removed".to_owned())
        } else {
            ("True", "SomeResourcesRemain", resources)
        };
        [
            ("NamespaceDeletionDiscoveryFailure", discovery.0, discovery.1, discovery.2),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                "False",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed".into(),
            ),
            ("NamespaceDeletionContentFailure", content.0, content.1, content.2),
            ("NamespaceContentRemaining", resources.0, resources.1, resources.2),
            ("NamespaceFinalizersRemaining", finalizers.0, finalizers.1, finalizers.2),
        ]
    }
}

/// Writes the conditions that have changed.
async fn update_conditions(client: &Client, namespace: &Namespace, remaining: &Remaining) -> Result<(), kube::Error> {
    let known: Vec<&NamespaceCondition> = namespace.status.iter().flat_map(|s| s.conditions.iter().flatten()).collect();
    let now = Time(Timestamp::now());
    let changed: Vec<NamespaceCondition> = remaining
        .conditions()
        .into_iter()
        .filter(|(type_, _, _, message)| {
            !known.iter().any(|c| c.type_ == *type_ && c.message.as_deref() == Some(message))
        })
        .map(|(type_, status, reason, message)| NamespaceCondition {
            type_: type_.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message),
            last_transition_time: Some(now.clone()),
        })
        .collect();
    if changed.is_empty() {
        return Ok(());
    }
    let api: Api<Namespace> = Api::all(client.clone());
    let mut updated = namespace.clone();
    let conditions = updated.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.retain(|known| changed.iter().all(|new| new.type_ != known.type_));
    conditions.extend(changed);
    match api.replace_status(&object_key(&namespace.metadata), &PostParams::default(), &updated).await {
        Err(e) if !is_code(&e, 404) && !is_code(&e, 409) => Err(e),
        _ => Ok(()),
    }
}

/// Deletes the content and returns what remains. Other kinds are deleted after the last Pod is gone, because
/// terminating Pods may need their configuration.
///
/// As upstream's `deleteAllContent`.
///
/// # Errors
///
/// If the API does not answer. Rejected deletions are part of the result and do not stop others.
async fn delete_content(client: &Client, namespace: &str, kinds: &[ApiResource]) -> Result<Remaining, kube::Error> {
    let is_pod = |r: &&ApiResource| r.group.is_empty() && r.plural == "pods";
    let (pods, others): (Vec<_>, Vec<_>) = kinds.iter().partition(is_pod);
    let mut remaining = Remaining::default();
    for step in [pods, others] {
        for resource in step {
            match delete_all(client, namespace, resource).await {
                Ok(left) => remaining.add(resource, &left),
                Err(kube::Error::Api(status)) => drop(remaining.failures.insert(status.message.clone())),
                Err(error) => return Err(error),
            }
        }
        if !remaining.is_empty() {
            break;
        }
    }
    Ok(remaining)
}

/// Deletes all objects of a kind; returns some of those that remain.
async fn delete_all(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
) -> Result<Vec<DynamicObject>, kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let some = ListParams::default().limit(500);
    let left = match api.list(&some).await {
        Ok(list) => list,
        // Discovery still lists a resource that is no longer served.
        Err(e) if is_code(&e, 404) || is_code(&e, 405) => return Ok(vec![]),
        Err(e) => return Err(e),
    };
    if left.items.is_empty() {
        return Ok(vec![]);
    }
    let all_marked = left.metadata.continue_.as_deref().unwrap_or("").is_empty()
        && left.items.iter().all(|o| o.metadata.deletion_timestamp.is_some());
    if all_marked {
        return Ok(left.items);
    }
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(api.list(&some).await?.items)
}

pub(crate) async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.for_service_account("namespace-controller");
    let discovery_cache = DiscoveryCache::new(client.clone());
    let events = watch(Api::all(clients.shared()), Config::default());
    worker::run(NamespaceController { client, discovery_cache, terminating: Mutex::default() }, events, stop).await;
}
