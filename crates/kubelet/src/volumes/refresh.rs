//! Refresh of volume files when ConfigMaps, Secrets, labels, annotations or resources change.
//!
//! An object is watched while a Pod of this node mounts it, as upstream's kubelet does.

use super::{
    atomic_writer,
    files_plugin::ObjectReference,
    fs_group,
    mount_error::{MountError, MountErrors},
    plugin::MountContext,
    plugins::find_files_plugin,
    tokens,
};
use crate::{Shared, blocking, pods::spec};
use futures::StreamExt;
use informer::{WatchEvent, watch};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Pod as ApiPod, PodSpec, Secret, Volume},
};
use kube::{Api, Resource, runtime::watcher::Config};
use lifecycle::Pod;
use serde::de::DeserializeOwned;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::task::AbortOnDropHandle;

/// Maximum number of attempts of a refresh, with exponential backoff; the next change of the object starts again.
const MAX_ATTEMPTS: u32 = 6;
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Retry interval of an overdue token refresh.
const TOKEN_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// ConfigMap or Secret that volumes refer to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ObjectSource {
    secret: bool,
    namespace: String,
    name: String,
}

/// Watches of objects, and the Pods that mount them.
struct VolumeRefresher {
    shared: Arc<Shared>,
    changed: UnboundedSender<ObjectSource>,
    /// Sends the UIDs of Pods whose tokens must be refreshed now.
    due: UnboundedSender<String>,
    /// Timers of token refreshes by Pod UID.
    timers: HashMap<String, AbortOnDropHandle<()>>,
    watches: HashMap<ObjectSource, (HashSet<String>, AbortOnDropHandle<()>)>,
    /// Last state of each Pod: objects that it mounts, and its own fields that volumes may contain.
    pods: HashMap<String, (BTreeSet<ObjectSource>, String)>,
}

/// Refreshes volumes of all Pods until stopped.
pub(crate) async fn run(shared: &Arc<Shared>) {
    let (changed, mut changes) = unbounded_channel();
    let (due, mut due_tokens) = unbounded_channel();
    let (watches, pods, timers) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut refresher = VolumeRefresher { shared: Arc::clone(shared), changed, due, timers, watches, pods };
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            uids = shared.pods.changed() => uids.into_iter().for_each(|uid| refresher.handle_pod_change(uid)),
            Some(uid) = due_tokens.recv() => refresher.refresh(uid),
            Some(source) = changes.recv() => {
                let users = refresher.watches.get(&source).map(|(users, _)| users.clone()).unwrap_or_default();
                users.into_iter().for_each(|uid| refresher.refresh(uid));
            }
        }
    }
}

impl VolumeRefresher {
    /// Handles an added, changed or removed Pod.
    fn handle_pod_change(&mut self, uid: String) {
        let pod = self.shared.pods.by_uid(&uid).map(|h| Arc::clone(h.state.borrow().object()));
        let pod = pod.filter(|p| !api::pod::is_terminal(p));
        let (referenced, pod_fields) = match &pod {
            Some(pod) => {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                (pod.spec.as_ref().map(|s| referenced_objects(s, namespace)).unwrap_or_default(), pod_fields(pod))
            }
            None => (BTreeSet::new(), String::new()),
        };
        self.schedule_token_refresh(&uid, pod.as_ref().and_then(|p| p.spec.as_ref()));
        let known = self.pods.remove(&uid).unwrap_or_default();
        for source in known.0.difference(&referenced) {
            if let Some((users, _)) = self.watches.get_mut(source) {
                users.remove(&uid);
                if users.is_empty() {
                    self.watches.remove(source);
                }
            }
        }
        for source in referenced.difference(&known.0) {
            let (mut users, task) = match self.watches.remove(source) {
                Some(known) => known,
                None => (HashSet::new(), AbortOnDropHandle::new(self.watch(source.clone()))),
            };
            users.insert(uid.clone());
            self.watches.insert(source.clone(), (users, task));
        }
        if pod.is_some() {
            let changed = !known.1.is_empty() && known.1 != pod_fields;
            self.pods.insert(uid.clone(), (referenced, pod_fields));
            if changed {
                self.refresh(uid);
            }
        }
    }

    /// Schedules the next refresh of the Pod's tokens.
    fn schedule_token_refresh(&mut self, uid: &str, spec: Option<&PodSpec>) {
        self.timers.remove(uid);
        let Some(spec) = spec.filter(|s| tokens::has_tokens(s)) else { return self.shared.tokens.forget(uid) };
        let set_up = |v: &Volume| atomic_writer::is_set_up(&self.shared.paths.volume(uid, &v.name));
        let at = match self.shared.tokens.due(uid) {
            Some(at) => at,
            // Tokens of an earlier kubelet are in the files; their age is unknown.
            None if spec.volumes.iter().flatten().any(set_up) => self.shared.now(),
            None => return,
        };
        let (due, pod_uid, mut delay) = (self.due.clone(), uid.to_owned(), self.shared.options.clock.until(at));
        let timer = tokio::spawn(async move {
            loop {
                tokio::time::sleep(delay).await;
                let _ = due.send(pod_uid.clone());
                delay = TOKEN_RETRY_INTERVAL;
            }
        });
        self.timers.insert(uid.to_owned(), AbortOnDropHandle::new(timer));
    }

    fn watch(&self, source: ObjectSource) -> tokio::task::JoinHandle<()> {
        let (client, changed) = (self.shared.client.clone(), self.changed.clone());
        tokio::spawn(async move {
            if source.secret {
                watch_object::<Secret>(Api::namespaced(client, &source.namespace), &source, &changed).await;
            } else {
                watch_object::<ConfigMap>(Api::namespaced(client, &source.namespace), &source, &changed).await;
            }
        })
    }

    fn refresh(&self, uid: String) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let mut delay = INITIAL_BACKOFF;
            for _ in 0..MAX_ATTEMPTS {
                match refresh(&shared, &uid).await {
                    Ok(()) => return,
                    Err(error) => tracing::debug!(%error, uid, "failed to refresh volumes, retrying"),
                }
                if shared.stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_none() {
                    return;
                }
                delay *= 2;
            }
        });
    }
}

/// Sends a notification for every change of one object, and for each list that contains it.
async fn watch_object<K>(api: Api<K>, source: &ObjectSource, changed: &UnboundedSender<ObjectSource>)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = Config::default().fields(&format!("metadata.name={}", source.name));
    let key = format!("{}/{}", source.namespace, source.name);
    let is_source = |object: &K| object.meta().name.as_deref() == Some(&source.name);
    let (mut changes, mut exists) = (watch(api, config), false);
    while let Some(change) = changes.next().await {
        let now_exists = match change {
            WatchEvent::Applied(object) => is_source(&object).then_some(true),
            WatchEvent::Deleted(object) => is_source(&object).then_some(false),
            // It was deleted while the watch was interrupted.
            WatchEvent::Listed(keys) => (exists && !keys.contains(&key)).then_some(false),
        };
        // A relist shows an unchanged object again, which repairs files whose refresh has failed.
        if let Some(now_exists) = now_exists {
            exists = now_exists;
            let _ = changed.send(source.clone());
        }
    }
}

/// Writes the current files of all mounted volumes of a Pod.
async fn refresh(shared: &Shared, uid: &str) -> Result<(), MountErrors> {
    let Some(handle) = shared.pods.by_uid(uid) else { return Ok(()) };
    let _guard = handle.volumes.lock().await;
    let pod: Arc<Pod> = handle.state.borrow().clone();
    let mut context = MountContext::new(shared, &pod);
    let mut failures = Vec::new();
    for volume in spec(&pod).volumes.iter().flatten() {
        // A failing volume does not block the others: tokens must be refreshed even if a Secret is missing.
        failures.extend(refresh_volume(volume, &mut context).await.err());
    }
    MountErrors::check(failures)
}

async fn refresh_volume(volume: &Volume, context: &mut MountContext<'_>) -> Result<(), MountError> {
    let Some(plugin) = find_files_plugin(volume) else { return Ok(()) };
    let dir = context.shared.paths.volume(context.pod.uid(), &volume.name);
    // Volumes that are not mounted yet, or not any more, are skipped.
    if !atomic_writer::is_set_up(&dir) {
        return Ok(());
    }
    let payload = plugin.payload(volume, context).await;
    let payload = payload.map_err(|error| MountError::set_up(&volume.name, error))?;
    let (group, name) = (fs_group(context.pod), volume.name.clone());
    blocking::run(move || atomic_writer::write(&dir, &payload, group).map_err(|error| MountError::set_up(&name, error)))
        .await
}

/// Returns the Pod's own fields that its volumes may contain: labels, annotations and allocated resources.
fn pod_fields(pod: &ApiPod) -> String {
    let resources: Vec<_> = pod.spec.iter().flat_map(api::pod::containers).map(|(_, c)| &c.resources).collect();
    format!("{:?}{:?}{resources:?}", pod.metadata.labels, pod.metadata.annotations)
}

/// Returns the objects that a Pod's volumes refer to.
fn referenced_objects(spec: &PodSpec, namespace: &str) -> BTreeSet<ObjectSource> {
    let source =
        |secret: bool, name: &str| ObjectSource { secret, namespace: namespace.to_owned(), name: name.to_owned() };
    let references = |volume| find_files_plugin(volume).map(|p| p.referenced_objects(volume)).unwrap_or_default();
    let object = |reference| match reference {
        ObjectReference::ConfigMap(name) => source(false, name),
        ObjectReference::Secret(name) => source(true, name),
    };
    spec.volumes.iter().flatten().flat_map(references).map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_referenced_object_is_watched_once() {
        let spec = json!({"containers": [], "volumes": [
            {"name": "a", "configMap": {"name": "cm"}}, {"name": "b", "secret": {"secretName": "s"}},
            {"name": "c", "projected": {"sources": [{"configMap": {"name": "cm"}}, {"secret": {"name": "t"}}]}},
            {"name": "d", "emptyDir": {}},
        ]});
        let found = referenced_objects(&serde_json::from_value(spec).unwrap(), "x");
        let names: Vec<(bool, &str)> = found.iter().map(|s| (s.secret, s.name.as_str())).collect();
        assert_eq!(names, [(false, "cm"), (true, "s"), (true, "t")]);
    }
}
