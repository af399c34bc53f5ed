//! ConfigMaps, Secrets, labels, annotations and resources change while Pods run: the files that show them follow.
//!
//! Each object that a Pod of this node mounts is watched for as long as one does, as upstream's kubelet watches them.

use super::{atomic_writer, failed, files, fs_group, is_projected, tokens};
use crate::{Shared, blocking, objects::Objects, pods::spec};
use futures::StreamExt;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Pod as ApiPod, PodSpec, Secret, Volume},
};
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, watcher},
};
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

/// How often a refresh is tried, with a pause that doubles; the next change of the object tries anew.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How soon a token is asked for again that was to be exchanged and was not.
const OVERDUE: Duration = Duration::from_secs(60);

/// An object that volumes show.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Source {
    secret: bool,
    namespace: String,
    name: String,
}

/// Which Pods show which objects.
struct Desk {
    shared: Arc<Shared>,
    changed: UnboundedSender<Source>,
    /// Pods whose tokens are to be exchanged now.
    due: UnboundedSender<String>,
    /// Wait until they are.
    timers: HashMap<String, AbortOnDropHandle<()>>,
    watches: HashMap<Source, (HashSet<String>, AbortOnDropHandle<()>)>,
    /// What is known of each Pod: the objects it shows, and what it may show of itself.
    pods: HashMap<String, (BTreeSet<Source>, String)>,
}

/// Follows all Pods of the node, until told to stop.
pub(crate) async fn run(shared: &Arc<Shared>) {
    let (changed, mut changes) = unbounded_channel();
    let (due, mut dues) = unbounded_channel();
    let (watches, pods, timers) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut desk = Desk { shared: Arc::clone(shared), changed, due, timers, watches, pods };
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            uids = shared.pods.changed() => uids.into_iter().for_each(|uid| desk.touch(uid)),
            Some(uid) = dues.recv() => desk.refresh(uid),
            Some(source) = changes.recv() => {
                let users = desk.watches.get(&source).map(|(users, _)| users.clone()).unwrap_or_default();
                users.into_iter().for_each(|uid| desk.refresh(uid));
            }
        }
    }
}

impl Desk {
    /// A Pod came, changed or went.
    fn touch(&mut self, uid: String) {
        let pod = self.shared.pods.by_uid(&uid).map(|h| Arc::clone(h.state.borrow().object()));
        let pod = pod.filter(|p| !api::pod::is_terminal(p));
        let (wanted, own) = match &pod {
            Some(pod) => {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                (pod.spec.as_ref().map(|s| sources(s, namespace)).unwrap_or_default(), own(pod))
            }
            None => (BTreeSet::new(), String::new()),
        };
        self.rotate(&uid, pod.as_ref().and_then(|p| p.spec.as_ref()));
        let known = self.pods.remove(&uid).unwrap_or_default();
        for source in known.0.difference(&wanted) {
            if let Some((users, _)) = self.watches.get_mut(source) {
                users.remove(&uid);
                if users.is_empty() {
                    self.watches.remove(source);
                }
            }
        }
        for source in wanted.difference(&known.0) {
            let (mut users, task) = match self.watches.remove(source) {
                Some(known) => known,
                None => (HashSet::new(), AbortOnDropHandle::new(self.watch(source.clone()))),
            };
            users.insert(uid.clone());
            self.watches.insert(source.clone(), (users, task));
        }
        if pod.is_some() {
            let changed = !known.1.is_empty() && known.1 != own;
            self.pods.insert(uid.clone(), (wanted, own));
            if changed {
                self.refresh(uid);
            }
        }
    }

    /// Waits for the moment at which the Pod's tokens are to be exchanged, as it is known now.
    fn rotate(&mut self, uid: &str, spec: Option<&PodSpec>) {
        self.timers.remove(uid);
        let Some(spec) = spec.filter(|s| tokens::wanted(s)) else { return self.shared.tokens.forget(uid) };
        let set_up = |v: &Volume| atomic_writer::is_set_up(&self.shared.paths.volume(uid, &v.name));
        let at = match self.shared.tokens.due(uid) {
            Some(at) => at,
            // Those of an earlier kubelet are in the files, and how old they are is not known.
            None if spec.volumes.iter().flatten().any(set_up) => self.shared.now(),
            None => return,
        };
        let (due, whose, mut pause) = (self.due.clone(), uid.to_owned(), self.shared.options.clock.until(at));
        let timer = tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let _ = due.send(whose.clone());
                pause = OVERDUE;
            }
        });
        self.timers.insert(uid.to_owned(), AbortOnDropHandle::new(timer));
    }

    fn watch(&self, source: Source) -> tokio::task::JoinHandle<()> {
        let (client, changed) = (self.shared.client.clone(), self.changed.clone());
        tokio::spawn(async move {
            if source.secret {
                follow::<Secret>(Api::namespaced(client, &source.namespace), &source, &changed).await;
            } else {
                follow::<ConfigMap>(Api::namespaced(client, &source.namespace), &source, &changed).await;
            }
        })
    }

    fn refresh(&self, uid: String) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let mut pause = FIRST_PAUSE;
            for _ in 0..TRIES {
                match refresh(&shared, &uid).await {
                    Ok(()) => return,
                    Err(error) => tracing::debug!(%error, uid, "volumes do not show the newest objects yet"),
                }
                if shared.stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                    return;
                }
                pause *= 2;
            }
        });
    }
}

/// Tells of every change of one object.
async fn follow<K>(api: Api<K>, source: &Source, changed: &UnboundedSender<Source>)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={}", source.name));
    let mut objects = watcher(api, config).default_backoff().touched_objects().boxed();
    while let Some(object) = objects.next().await {
        match object {
            Ok(object) if object.meta().name.as_deref() == Some(&source.name) => {
                let _ = changed.send(source.clone());
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, name = source.name, "the watch of an object broke; it starts again"),
        }
    }
}

/// Writes the newest files of all volumes that are set up.
async fn refresh(shared: &Shared, uid: &str) -> Result<(), String> {
    let Some(handle) = shared.pods.by_uid(uid) else { return Ok(()) };
    let _turn = handle.volumes.lock().await;
    let pod: Arc<Pod> = handle.state.borrow().clone();
    let mut objects = Objects::new(shared, pod.namespace());
    let mut failures = Vec::new();
    for volume in spec(&pod).volumes.iter().flatten().filter(|v| is_projected(v)) {
        // One that cannot be refreshed holds up no other: a token would expire because of a Secret that is gone.
        failures.extend(refresh_one(shared, &pod, volume, &mut objects).await.err());
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

async fn refresh_one(shared: &Shared, pod: &Pod, volume: &Volume, objects: &mut Objects<'_>) -> Result<(), String> {
    let dir = shared.paths.volume(pod.uid(), &volume.name);
    // What is not there yet will be set up with what is newest then; what is gone stays so.
    if !atomic_writer::is_set_up(&dir) {
        return Ok(());
    }
    let payload = files(shared, pod, volume, objects).await.map_err(|e| failed(&volume.name, &e))?;
    let (Some(payload), group) = (payload, fs_group(pod)) else { return Ok(()) };
    let name = volume.name.clone();
    blocking::run(move || atomic_writer::write(&dir, &payload, group).map_err(|e| failed(&name, &e))).await
}

/// What a Pod's volumes may show of itself: labels, annotations, and what is allocated to its containers.
fn own(pod: &ApiPod) -> String {
    let resources: Vec<_> = pod.spec.iter().flat_map(api::pod::containers).map(|(_, c)| &c.resources).collect();
    format!("{:?}{:?}{resources:?}", pod.metadata.labels, pod.metadata.annotations)
}

/// The objects that a Pod's volumes show.
fn sources(spec: &PodSpec, namespace: &str) -> BTreeSet<Source> {
    let source = |secret: bool, name: &str| Source { secret, namespace: namespace.to_owned(), name: name.to_owned() };
    let of_volume = |volume: &Volume| {
        let mut found: Vec<Source> = Vec::new();
        found.extend(volume.config_map.as_ref().map(|s| source(false, &s.name)));
        found.extend(volume.secret.as_ref().and_then(|s| s.secret_name.as_deref()).map(|n| source(true, n)));
        for projection in volume.projected.iter().flat_map(|p| p.sources.iter().flatten()) {
            found.extend(projection.config_map.as_ref().map(|s| source(false, &s.name)));
            found.extend(projection.secret.as_ref().map(|s| source(true, &s.name)));
        }
        found
    };
    spec.volumes.iter().flatten().flat_map(of_volume).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_object_that_a_volume_shows_is_watched_once() {
        let spec = json!({"containers": [], "volumes": [
            {"name": "a", "configMap": {"name": "cm"}}, {"name": "b", "secret": {"secretName": "s"}},
            {"name": "c", "projected": {"sources": [{"configMap": {"name": "cm"}}, {"secret": {"name": "t"}}]}},
            {"name": "d", "emptyDir": {}},
        ]});
        let found = sources(&serde_json::from_value(spec).unwrap(), "x");
        let names: Vec<(bool, &str)> = found.iter().map(|s| (s.secret, s.name.as_str())).collect();
        assert_eq!(names, [(false, "cm"), (true, "s"), (true, "t")]);
    }
}
