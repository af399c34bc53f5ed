//! Mirror Pods: the API objects of static Pods. They are created, recreated after deletion, and removed with retries;
//! the
//! static Pods do not depend on them (upstream's `pkg/kubelet/pod/mirror_client.go`).

use crate::{Shared, deadline::within_deadline, status_manager};
use api::static_pod::{CONFIG_HASH, CONFIG_MIRROR, annotation};
use k8s_openapi::{
    api::core::v1::{Node, Pod as ApiPod, PodStatus},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams, Preconditions},
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// Initial delay before a failed request is retried.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Namespace and name.
type Name = (String, String);

/// Mirror Pods of the node.
#[derive(Default)]
pub(crate) struct MirrorPods {
    mirrors: Mutex<BTreeMap<Name, Mirror>>,
    changed: Notify,
    /// Notified when the static Pods have been read.
    started: Notify,
}

/// Static Pod and mirror Pod of one name; either may be missing.
#[derive(Debug, Clone, Default)]
struct Mirror {
    /// Static Pod, if it exists.
    static_pod: Option<Arc<ApiPod>>,
    /// Latest status of the static Pod.
    status: Option<PodStatus>,
    /// Mirror Pod in the API.
    observed: Option<Arc<ApiPod>>,
    /// UID of the mirror Pod and the status that was written to it last.
    written: Option<(String, PodStatus)>,
    /// Whether the mirror Pod was just deleted. It is recreated after a delay, so that `kubectl delete` sees the
    /// deletion.
    just_deleted: bool,
}

/// Next step of the reconciliation of one name.
#[derive(Debug, PartialEq)]
enum Step {
    Create(Box<ApiPod>),
    Write(Box<ApiPod>, Box<PodStatus>),
    /// UID of the mirror Pod to delete.
    Delete(String),
    Nothing,
}

fn name_of(pod: &ApiPod) -> Name {
    (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}

fn uid_of(pod: &ApiPod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

impl MirrorPods {
    /// Starts the reconciliation: from now on a mirror Pod without a static Pod is an orphan.
    pub(crate) fn start(&self) {
        self.started.notify_one();
    }

    fn change(&self, name: Name, change: impl FnOnce(&mut Mirror)) {
        change(self.mirrors.lock().entry(name).or_default());
        self.changed.notify_one();
    }

    /// Adds or replaces a static Pod.
    pub(crate) fn set_static_pod(&self, pod: &Arc<ApiPod>) {
        self.change(name_of(pod), |mirror| {
            if mirror.static_pod.as_ref().is_none_or(|known| uid_of(known) != uid_of(pod)) {
                mirror.status = None;
            }
            mirror.static_pod = Some(Arc::clone(pod));
        });
    }

    /// Sets the status to report for a static Pod.
    pub(crate) fn set_status(&self, pod: &ApiPod, status: PodStatus) {
        self.change(name_of(pod), |mirror| {
            if mirror.static_pod.as_ref().is_some_and(|known| uid_of(known) == uid_of(pod)) {
                mirror.status = Some(status);
            }
        });
    }

    /// Returns the number of tracked names.
    pub(crate) fn count(&self) -> usize {
        self.mirrors.lock().len()
    }

    /// Removes a static Pod. Its last status is still written.
    pub(crate) fn remove(&self, pod: &ApiPod) {
        self.change(name_of(pod), |mirror| {
            if mirror.static_pod.as_ref().is_some_and(|known| uid_of(known) == uid_of(pod)) {
                mirror.static_pod = None;
            }
        });
    }

    /// Records a mirror Pod from the API.
    pub(crate) fn observe(&self, pod: ApiPod) {
        self.change(name_of(&pod), |mirror| mirror.observed = Some(Arc::new(pod)));
    }

    /// Records the deletion of a mirror Pod from the API.
    pub(crate) fn observe_deleted(&self, pod: &ApiPod) {
        let uid = uid_of(pod);
        self.change(name_of(pod), |mirror| clear_if_deleted(mirror, |observed| *observed == uid));
    }

    /// Records the UIDs of a complete list; other mirror Pods were deleted.
    pub(crate) fn observe_list(&self, uids: &HashSet<String>) {
        self.mirrors
            .lock()
            .values_mut()
            .for_each(|mirror| clear_if_deleted(mirror, |observed| !uids.contains(observed)));
        self.changed.notify_one();
    }
}

fn clear_if_deleted(mirror: &mut Mirror, gone: impl Fn(&String) -> bool) {
    if mirror.observed.as_ref().is_some_and(|observed| gone(&uid_of(observed))) {
        mirror.observed = None;
        mirror.just_deleted = true;
    }
}

impl Mirror {
    /// Returns the next step: delete an outdated mirror Pod, create a missing one, or write the status.
    fn next(&self, node: impl FnOnce() -> Option<OwnerReference>) -> Step {
        let Some(observed) = &self.observed else {
            let object = self.static_pod.as_ref().and_then(|pod| Some(build_mirror_pod(pod, node()?)));
            return object.map_or(Step::Nothing, |object| Step::Create(Box::new(object)));
        };
        let hash = annotation(observed, CONFIG_MIRROR);
        let has_same_hash = self.static_pod.as_ref().is_some_and(|pod| annotation(pod, CONFIG_HASH) == hash);
        let going = observed.metadata.deletion_timestamp.is_some();
        if let Some(status) = self.status.as_ref().filter(|_| (has_same_hash || self.static_pod.is_none()) && !going)
            && self.written.as_ref().is_none_or(|(uid, known)| *uid != uid_of(observed) || known != status)
        {
            return Step::Write(Box::new(observed.as_ref().clone()), Box::new(status.clone()));
        }
        if has_same_hash && !going { Step::Nothing } else { Step::Delete(uid_of(observed)) }
    }
}

/// Builds the mirror Pod of a static Pod, with its hash and the node as owner.
fn build_mirror_pod(pod: &ApiPod, node: OwnerReference) -> ApiPod {
    let mut mirror = pod.clone();
    let hash = annotation(pod, CONFIG_HASH).unwrap_or_default().to_owned();
    let metadata = &mut mirror.metadata;
    metadata.uid = None;
    metadata.creation_timestamp = None;
    metadata.deletion_timestamp = None;
    metadata.deletion_grace_period_seconds = None;
    metadata.annotations.get_or_insert_default().insert(CONFIG_MIRROR.to_owned(), hash);
    metadata.owner_references = Some(vec![node]);
    mirror
}

/// Retry times and back-off delays by name.
#[derive(Default)]
struct Backoff(BTreeMap<Name, (Instant, Duration)>);

impl Backoff {
    fn is_due(&self, name: &Name, now: Instant) -> bool {
        self.0.get(name).is_none_or(|(at, _)| *at <= now)
    }

    /// Records a failure and doubles the delay.
    fn fail(&mut self, name: Name, now: Instant) {
        let pause = self.0.get(&name).map_or(INITIAL_BACKOFF, |(_, last)| (*last * 2).min(MAX_BACKOFF));
        self.0.insert(name, (now + pause, pause));
    }

    /// Returns the earliest retry time.
    fn next(&self) -> Option<Instant> {
        self.0.values().map(|(at, _)| *at).min()
    }
}

/// Reconciles the mirror Pods until cancelled.
pub(crate) async fn run(shared: &Arc<Shared>) {
    let mut backoff = Backoff::default();
    shared.stop.run_until_cancelled(shared.mirror_pods.started.notified()).await;
    while !shared.stop.is_cancelled() {
        shared.stop.run_until_cancelled(reconcile_due(shared, &mut backoff)).await;
        let due = async {
            match backoff.next() {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let change = async {
            tokio::select! { () = shared.mirror_pods.changed.notified() => {}, () = due => {} }
        };
        shared.stop.run_until_cancelled(change).await;
    }
}

/// Reconciles all names that are due.
async fn reconcile_due(shared: &Shared, backoff: &mut Backoff) {
    let names: BTreeSet<Name> = shared.mirror_pods.mirrors.lock().keys().cloned().collect();
    backoff.0.retain(|name, _| names.contains(name));
    for name in names {
        if !backoff.is_due(&name, Instant::now()) {
            continue;
        }
        match reconcile(shared, &name).await {
            Ok(true) => drop(backoff.0.remove(&name)),
            Ok(false) => backoff.fail(name, Instant::now()),
            Err(error) => {
                tracing::debug!(%error, namespace = name.0, pod = name.1, "failed to reconcile a mirror Pod, retrying");
                backoff.fail(name, Instant::now());
            }
        }
    }
}

/// Reconciles one name. Returns false if it must be retried after a delay.
async fn reconcile(shared: &Shared, name: &Name) -> Result<bool, kube::Error> {
    let api: Api<ApiPod> = Api::namespaced(shared.client.clone(), &name.0);
    loop {
        let Some(mirror) = shared.mirror_pods.mirrors.lock().get(name).cloned() else { return Ok(true) };
        let node = match mirror.observed.is_none() && mirror.static_pod.is_some() {
            true => Some(owner(shared).await?),
            false => None,
        };
        match mirror.next(|| node) {
            Step::Create(_) if mirror.just_deleted => {
                shared.mirror_pods.mirrors.lock().entry(name.clone()).or_default().just_deleted = false;
                return Ok(false);
            }
            Step::Create(object) => match within_deadline(api.create(&PostParams::default(), &object)).await {
                Ok(created) => shared.mirror_pods.observe(created),
                // Created by an earlier kubelet or by another client.
                Err(kube::Error::Api(e)) if e.code == 409 && e.reason == "AlreadyExists" => {
                    shared.mirror_pods.observe(within_deadline(api.get(&name.1)).await?);
                }
                Err(error) => return Err(error),
            },
            Step::Write(object, status) => {
                let there = status_manager::write(shared, &object, &status).await;
                let uid = uid_of(&object);
                shared.mirror_pods.change(name.clone(), |mirror| {
                    mirror.written = Some((uid.clone(), *status));
                    if !there {
                        clear_if_deleted(mirror, |observed| *observed == uid);
                    }
                });
            }
            Step::Delete(uid) => {
                delete(&api, &name.1, &uid).await?;
                shared.mirror_pods.change(name.clone(), |mirror| clear_if_deleted(mirror, |observed| *observed == uid));
            }
            Step::Nothing => {
                let mut mirrors = shared.mirror_pods.mirrors.lock();
                if mirrors.get(name).is_some_and(|mirror| mirror.static_pod.is_none() && mirror.observed.is_none()) {
                    mirrors.remove(name);
                }
                return Ok(true);
            }
        }
    }
}

/// Deletes a mirror Pod with grace period 0 and a UID precondition.
async fn delete(api: &Api<ApiPod>, name: &str, uid: &str) -> Result<(), kube::Error> {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params =
        DeleteParams { grace_period_seconds: Some(0), preconditions: Some(preconditions), ..DeleteParams::default() };
    match within_deadline(api.delete(name, &params)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(e)) if e.code == 404 || e.code == 409 => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the owner reference to the node, so that mirror Pods are garbage-collected with it.
async fn owner(shared: &Shared) -> Result<OwnerReference, kube::Error> {
    let api: Api<Node> = Api::all(shared.client.clone());
    let node = within_deadline(api.get(&shared.options.node_name)).await?;
    Ok(OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: shared.options.node_name.clone(),
        uid: node.metadata.uid.unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(fields: Value) -> Arc<ApiPod> {
        Arc::new(serde_json::from_value(fields).unwrap())
    }

    fn statics(hash: &str) -> Arc<ApiPod> {
        pod(json!({"metadata": {"name": "p-n", "namespace": "x", "uid": hash, "annotations": {CONFIG_HASH: hash}}}))
    }

    fn mirror(hash: &str, uid: &str, deleted: bool) -> Arc<ApiPod> {
        let mut object = json!({"metadata": {"name": "p-n", "namespace": "x", "uid": uid, "generation": 3,
            "annotations": {CONFIG_HASH: hash, CONFIG_MIRROR: hash}}});
        if deleted {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        pod(object)
    }

    fn running() -> PodStatus {
        PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() }
    }

    #[track_caller]
    fn check(mirror: &Mirror, expected: &str) {
        let step = match mirror.next(|| Some(OwnerReference::default())) {
            Step::Create(object) => format!("create {}", annotation(&object, CONFIG_MIRROR).unwrap()),
            Step::Write(object, status) => format!("write {} {}", uid_of(&object), status.phase.unwrap()),
            Step::Delete(uid) => format!("delete {uid}"),
            Step::Nothing => "nothing".to_owned(),
        };
        assert_eq!(step, expected);
    }

    #[test]
    fn static_pod_has_one_mirror_pod_with_its_latest_status() {
        let mut state = Mirror { static_pod: Some(statics("h1")), status: Some(running()), ..Mirror::default() };
        check(&state, "create h1");
        state.observed = Some(mirror("h1", "u1", false));
        check(&state, "write u1 Running");
        state.written = Some(("u1".to_owned(), running()));
        check(&state, "nothing");
        // Another client deletes it, and it is created again.
        state.observed = Some(mirror("h1", "u1", true));
        check(&state, "delete u1");
        state.observed = None;
        check(&state, "create h1");
        state.observed = Some(mirror("h1", "u2", false));
        check(&state, "write u2 Running");
        // The manifest has changed: the outdated mirror Pod is deleted.
        state.static_pod = Some(statics("h2"));
        state.status = None;
        check(&state, "delete u2");
        // The manifest was removed: the final status is written, then the mirror Pod is deleted.
        state = Mirror { status: Some(running()), observed: Some(mirror("h1", "u1", false)), ..Mirror::default() };
        check(&state, "write u1 Running");
        state.status = None;
        check(&state, "delete u1");
        state.observed = None;
        check(&state, "nothing");
    }

    #[test]
    fn mirror_pod_is_owned_by_the_node_without_a_uid() {
        let owner = OwnerReference { kind: "Node".to_owned(), name: "n".to_owned(), ..OwnerReference::default() };
        let object = build_mirror_pod(&statics("h"), owner.clone());
        assert_eq!((object.metadata.uid, object.metadata.owner_references), (None, Some(vec![owner])));
        let annotations = object.metadata.annotations.unwrap();
        assert_eq!((annotations[CONFIG_HASH].as_str(), annotations[CONFIG_MIRROR].as_str()), ("h", "h"));
    }
}
