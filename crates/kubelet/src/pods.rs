//! Pod manager: the workers of all Pods of the node, and the watch of the API that starts them.
//!
//! There is no single sync loop as upstream's `syncLoopIteration`: each source sends its events to the Pod's worker
//! ([`crate::pod_worker`]).

use crate::{
    Shared, checkpoint,
    pod_worker::{self, Handle, PodMessage},
    relist, runtime_events,
    sources::Sources,
    static_pods,
};
use api::{
    object_key::object_key,
    static_pod::{CONFIG_SOURCE, is_mirror, is_static},
};
use futures::StreamExt;
use informer::{WatchEvent, watch_lean};
use k8s_openapi::api::core::v1::{Pod as ApiPod, PodSpec};
use kube::{Api, runtime::watcher::Config};
use lifecycle::{Admission, AdmissionDecision, Pod, PodLifecycleEvent, ResizeDecision};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};
use tokio::sync::Notify;

/// Workers of all Pods, by UID.
#[derive(Default)]
pub(crate) struct Pods {
    workers: Mutex<HashMap<String, Handle>>,
    /// Admission and resize decisions. The lock serializes them, so that resources are granted once.
    decisions: Mutex<Decisions>,
    /// UIDs of Pods that were added, changed or removed since the last [`Pods::changed`].
    changed: Mutex<HashSet<String>>,
    changed_notify: Notify,
    pub(crate) sources: Sources,
    /// Notified when a relist of the runtime is requested.
    pub(crate) relist_requested: Notify,
    /// Notified when a Pod was removed and its name is free.
    pub(crate) removed: Notify,
}

/// Positive decisions by Pod UID; the published state of the Pods may not have them yet.
#[derive(Default)]
struct Decisions {
    /// Pods that were admitted since the kubelet started.
    admitted: HashSet<String>,
    /// Pods whose resize was accepted.
    resized: HashSet<String>,
}

/// Returns the spec of a Pod. Validation rejects Pods without one.
pub(crate) fn spec(pod: &Pod) -> &PodSpec {
    static EMPTY: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
    pod.object().spec.as_ref().unwrap_or(&EMPTY)
}

impl Pods {
    /// Requests a relist of the runtime.
    pub(crate) fn request_relist(&self) {
        self.relist_requested.notify_one();
    }

    /// Adds the worker that `spawn` starts.
    fn add(&self, uid: String, spawn: impl FnOnce() -> Handle) {
        // The lock is held until the handle is inserted: the new worker looks itself up here.
        self.workers.lock().insert(uid, spawn());
    }

    /// Whether any Pod has not been in a relist yet.
    pub(crate) fn awaits_relist(&self) -> bool {
        self.all().iter().any(|handle| handle.state.borrow().awaits_relist())
    }

    /// Waits until all Pods have been in a relist. Pods that ended while no kubelet ran must not count as active.
    pub(crate) async fn wait_relisted(&self) {
        for mut handle in self.all() {
            // An error means that the worker has ended: that Pod is not active either.
            let _ = handle.state.wait_for(|pod| !pod.awaits_relist()).await;
        }
    }

    /// Admits a Pod by `decide`, which gets the other active Pods. A Pod that preempts others holds their resources
    /// from now
    /// on.
    pub(crate) fn admit(
        &self,
        uid: &str,
        decide: impl FnOnce(&[Arc<ApiPod>]) -> AdmissionDecision,
    ) -> AdmissionDecision {
        let mut decisions = self.decisions.lock();
        let verdict = decide(&self.other_active_pods(uid, &decisions));
        if !matches!(verdict, AdmissionDecision::Decided(Admission::Rejected { .. })) {
            decisions.admitted.insert(uid.to_owned());
        }
        verdict
    }

    /// Accepts or defers a resize by `decide`, which gets the other active Pods.
    pub(crate) fn resize(&self, uid: &str, decide: impl FnOnce(&[Arc<ApiPod>]) -> ResizeDecision) -> ResizeDecision {
        let mut decisions = self.decisions.lock();
        let verdict = decide(&self.other_active_pods(uid, &decisions));
        if verdict == ResizeDecision::Fits {
            decisions.resized.insert(uid.to_owned());
        }
        verdict
    }

    /// Returns the admitted Pods. Decisions in progress complete first.
    pub(crate) fn admitted(&self) -> Vec<Handle> {
        let decisions = self.decisions.lock();
        let admitted = |pod: &Pod| pod.is_admitted() || decisions.admitted.contains(pod.uid());
        self.all().into_iter().filter(|handle| admitted(&handle.state.borrow())).collect()
    }

    /// Returns the other active Pods (upstream's `GetActivePods`), each with the maximum of its allocated and actual
    /// resources.
    fn other_active_pods(&self, uid: &str, decisions: &Decisions) -> Vec<Arc<ApiPod>> {
        let pods = self.all().into_iter().map(|h| h.state.borrow().clone());
        let active = pods.filter(|p| p.uid() != uid && !p.is_gone() && !p.has_ended());
        let admitted = active.filter(|p| p.is_admitted() || decisions.admitted.contains(p.uid()));
        let objects = admitted.map(|p| p.with_max_resources(decisions.resized.contains(p.uid())));
        objects.filter(|object| !api::pod::is_terminal(object)).collect()
    }

    /// Drops an accepted resize that the Pod's published state includes.
    pub(crate) fn clear_accepted_resize(&self, uid: &str) {
        self.decisions.lock().resized.remove(uid);
    }

    /// Removes a Pod whose worker has ended.
    pub(crate) fn remove(&self, uid: &str) {
        self.workers.lock().remove(uid);
        let mut decisions = self.decisions.lock();
        decisions.admitted.remove(uid);
        decisions.resized.remove(uid);
        drop(decisions);
        self.removed.notify_one();
        self.mark_changed(uid.to_owned());
    }

    /// Retries deferred resizes, in order of Pod priority.
    pub(crate) fn retry_deferred_resizes(&self) {
        let mut deferred: Vec<_> = self.all().into_iter().filter(|h| h.state.borrow().has_deferred_resize()).collect();
        deferred.sort_by_key(|h| std::cmp::Reverse(spec(&h.state.borrow()).priority.unwrap_or(0)));
        for handle in deferred {
            let _ = handle.messages.send(PodMessage::Event(PodLifecycleEvent::ResourcesReleased));
        }
    }

    /// Marks a Pod as added, changed or removed.
    pub(crate) fn mark_changed(&self, uid: String) {
        self.changed.lock().insert(uid);
        self.changed_notify.notify_one();
    }

    /// Waits for added, changed or removed Pods and returns their UIDs. Supports one caller.
    pub(crate) async fn changed(&self) -> HashSet<String> {
        loop {
            let changed = std::mem::take(&mut *self.changed.lock());
            if !changed.is_empty() {
                return changed;
            }
            self.changed_notify.notified().await;
        }
    }

    /// Returns the sizes of the internal maps, by name.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, usize> {
        let decisions = self.decisions.lock();
        BTreeMap::from([
            ("pods", self.workers.lock().len()),
            ("admitted pods", decisions.admitted.len()),
            ("resized pods", decisions.resized.len()),
            ("changed pods", self.changed.lock().len()),
        ])
    }

    pub(crate) fn by_uid(&self, uid: &str) -> Option<Handle> {
        self.workers.lock().get(uid).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Handle> {
        self.workers.lock().values().cloned().collect()
    }

    pub(crate) fn by_name(&self, namespace: &str, name: &str) -> Option<Handle> {
        let matches = |h: &&Handle| {
            let pod = h.state.borrow();
            pod.namespace() == namespace && pod.name() == name
        };
        // A force-deleted Pod may still be terminating when a new Pod has its name.
        self.workers.lock().values().filter(matches).min_by_key(|h| h.state.borrow().is_gone()).cloned()
    }

    /// Returns the Pod that owns a container or sandbox.
    pub(crate) fn by_container_or_sandbox_id(&self, id: &str) -> Option<Handle> {
        self.workers.lock().values().find(|h| h.state.borrow().owns(id)).cloned()
    }
}

/// Restores the Pods from checkpoints, then watches the API, static Pod manifests and the runtime until cancelled.
pub(crate) async fn run(shared: &Arc<Shared>) {
    let dir = shared.paths.checkpoints();
    match checkpoint::load(&dir) {
        Ok(pods) => {
            for pod in pods {
                let uid = pod.uid().to_owned();
                if is_static(pod.object()) {
                    shared.mirror_pods.set_static_pod(pod.object());
                }
                shared.pods.add(uid, || pod_worker::spawn(Arc::clone(shared), pod));
            }
        }
        Err(error) => tracing::error!(%error, "failed to load checkpoints"),
    }
    let runtime = async { tokio::join!(runtime_events::run(shared), relist::run(shared)) };
    tokio::join!(watch_api(shared), Box::pin(static_pods::run(shared)), shared.stop.run_until_cancelled(runtime));
}

/// Version of a Pod that the API has shown.
#[derive(PartialEq)]
struct ObservedVersion {
    uid: String,
    resource_version: Option<String>,
}

impl ObservedVersion {
    fn of(pod: &ApiPod) -> Self {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        Self { uid, resource_version: pod.metadata.resource_version.clone() }
    }
}

/// Watches the Pods that are bound to this node. After each list, Pods that are gone from the API are terminated
/// (`HandlePodCleanups`). The workers keep the objects, so there is no cache of them here.
async fn watch_api(shared: &Arc<Shared>) {
    let config = Config::default().fields(&format!("spec.nodeName={}", shared.options.node_name));
    let mut events = watch_lean::<ApiPod>(Api::all(shared.client.clone()), config);
    let mut observed: HashMap<String, ObservedVersion> = HashMap::new();
    while let Some(Some(event)) = shared.stop.run_until_cancelled(events.next()).await {
        match event {
            WatchEvent::Applied(pod) => {
                let (key, version) = (object_key(&pod.metadata), ObservedVersion::of(&pod));
                // A relist shows unchanged Pods again.
                if observed.get(&key) != Some(&version) {
                    observed.insert(key, version);
                    add_or_update(shared, *pod);
                }
            }
            WatchEvent::Listed(keys) => {
                observed.retain(|key, _| keys.contains(key));
                let listed = observed.values().map(|version| version.uid.clone()).collect();
                handle_list(shared, &listed);
                if shared.pods.sources.api_is_read() {
                    shared.pods.request_relist();
                }
            }
            WatchEvent::Deleted(pod) => {
                observed.remove(&object_key(&pod.metadata));
                if is_mirror(&pod) {
                    shared.mirror_pods.observe_deleted(&pod);
                } else if let Some(handle) = shared.pods.by_uid(pod.metadata.uid.as_deref().unwrap_or("")) {
                    let _ = handle.messages.send(PodMessage::Event(PodLifecycleEvent::Removed));
                }
            }
        }
    }
}

/// Terminates the Pods that a list does not have.
fn handle_list(shared: &Shared, listed: &HashSet<String>) {
    // A Pod that has a checkpoint but is missing in the API was force-deleted.
    shared.mirror_pods.observe_list(listed);
    for handle in shared.pods.all() {
        let pod = handle.state.borrow().clone();
        if !listed.contains(pod.uid()) && !is_static(pod.object()) {
            let _ = handle.messages.send(PodMessage::Event(PodLifecycleEvent::Removed));
        }
    }
}

/// Passes a Pod from the API to its worker, or starts one (`HandlePodAdditions`, `HandlePodUpdates`,
/// `HandlePodReconcile`).
fn add_or_update(shared: &Arc<Shared>, object: ApiPod) {
    if is_mirror(&object) {
        return shared.mirror_pods.observe(object);
    }
    let object = mark_as_api_source(object);
    let (uid, object) = (object.metadata.uid.clone().unwrap_or_default(), Arc::new(object));
    let existing = shared.pods.by_uid(&uid);
    match existing {
        Some(handle) => {
            let _ = handle.messages.send(PodMessage::Event(PodLifecycleEvent::Updated(object)));
        }
        None => start(shared, object),
    }
}

/// Overwrites the config source annotation: a Pod from the API must not pass as a static Pod.
fn mark_as_api_source(mut object: ApiPod) -> ApiPod {
    if is_static(&object) {
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_SOURCE.to_owned(), "api".to_owned());
    }
    object
}

/// Starts the worker of a new Pod.
pub(crate) fn start(shared: &Arc<Shared>, object: Arc<ApiPod>) {
    let uid = object.metadata.uid.clone().unwrap_or_default();
    if is_static(&object) {
        shared.mirror_pods.set_static_pod(&object);
    }
    let pod = Pod::new(object, shared.now());
    shared.pods.add(uid, || pod_worker::spawn(Arc::clone(shared), pod));
}
