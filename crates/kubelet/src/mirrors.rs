//! Mirror Pods: what the API shows of static Pods. They are made, made again when somebody deletes them, and removed, as
//! the API comes and goes; the static Pods run on whatever becomes of them (upstream's `pkg/kubelet/pod/mirror_client.go`).

use crate::{Shared, deadline::within_deadline, status};
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

/// When a request that failed is made again: an API that just starts is there soon, a namespace that is missing may come.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Namespace and name.
type Name = (String, String);

/// All mirror Pods of the node.
#[derive(Default)]
pub(crate) struct Mirrors {
    desk: Mutex<BTreeMap<Name, Mirror>>,
    bell: Notify,
    /// Rung when it is known which static Pods there are.
    begin: Notify,
}

/// A static Pod, a mirror Pod, or both, of one name.
#[derive(Debug, Clone, Default)]
struct Mirror {
    /// The static Pod, while there is one.
    wanted: Option<Arc<ApiPod>>,
    /// Its newest status.
    status: Option<PodStatus>,
    /// What the API has.
    seen: Option<Arc<ApiPod>>,
    /// The status that this one was given.
    written: Option<(String, PodStatus)>,
    /// One has just gone. The next one comes after a pause: `kubectl delete` would not see that there was none, and wait.
    just_gone: bool,
}

/// What is to be done next about one name.
#[derive(Debug, PartialEq)]
enum Step {
    Create(Box<ApiPod>),
    Write(Box<ApiPod>, Box<PodStatus>),
    /// The UID of what is to go.
    Delete(String),
    Nothing,
}

fn name_of(pod: &ApiPod) -> Name {
    (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}

fn uid_of(pod: &ApiPod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

impl Mirrors {
    /// From now on a mirror without its static Pod is an orphan.
    pub(crate) fn begin(&self) {
        self.begin.notify_one();
    }

    fn change(&self, name: Name, change: impl FnOnce(&mut Mirror)) {
        change(self.desk.lock().entry(name).or_default());
        self.bell.notify_one();
    }

    /// A static Pod is there.
    pub(crate) fn want(&self, pod: &Arc<ApiPod>) {
        self.change(name_of(pod), |mirror| {
            if mirror.wanted.as_ref().is_none_or(|known| uid_of(known) != uid_of(pod)) {
                mirror.status = None;
            }
            mirror.wanted = Some(Arc::clone(pod));
        });
    }

    /// What the API is to show of it, for as long as it is there.
    pub(crate) fn show(&self, pod: &ApiPod, status: PodStatus) {
        self.change(name_of(pod), |mirror| {
            if mirror.wanted.as_ref().is_some_and(|known| uid_of(known) == uid_of(pod)) {
                mirror.status = Some(status);
            }
        });
    }

    /// How many there are, of both.
    pub(crate) fn count(&self) -> usize {
        self.desk.lock().len()
    }

    /// A static Pod is gone; what it was last is still shown.
    pub(crate) fn remove(&self, pod: &ApiPod) {
        self.change(name_of(pod), |mirror| {
            if mirror.wanted.as_ref().is_some_and(|known| uid_of(known) == uid_of(pod)) {
                mirror.wanted = None;
            }
        });
    }

    /// The API has this one.
    pub(crate) fn seen(&self, pod: ApiPod) {
        self.change(name_of(&pod), |mirror| mirror.seen = Some(Arc::new(pod)));
    }

    /// The API has it no more.
    pub(crate) fn gone(&self, pod: &ApiPod) {
        let uid = uid_of(pod);
        self.change(name_of(pod), |mirror| forget(mirror, |seen| *seen == uid));
    }

    /// The API has none but these.
    pub(crate) fn listed(&self, uids: &HashSet<String>) {
        self.desk.lock().values_mut().for_each(|mirror| forget(mirror, |seen| !uids.contains(seen)));
        self.bell.notify_one();
    }
}

fn forget(mirror: &mut Mirror, gone: impl Fn(&String) -> bool) {
    if mirror.seen.as_ref().is_some_and(|seen| gone(&uid_of(seen))) {
        mirror.seen = None;
        mirror.just_gone = true;
    }
}

impl Mirror {
    /// What is next. First what is there must be right, then there must be one, then it shows the status.
    fn next(&self, node: impl FnOnce() -> Option<OwnerReference>) -> Step {
        let Some(seen) = &self.seen else {
            let object = self.wanted.as_ref().and_then(|pod| Some(reflection(pod, node()?)));
            return object.map_or(Step::Nothing, |object| Step::Create(Box::new(object)));
        };
        let hash = annotation(seen, CONFIG_MIRROR);
        let own = self.wanted.as_ref().is_some_and(|pod| annotation(pod, CONFIG_HASH) == hash);
        let going = seen.metadata.deletion_timestamp.is_some();
        if let Some(status) = self.status.as_ref().filter(|_| (own || self.wanted.is_none()) && !going)
            && self.written.as_ref().is_none_or(|(uid, known)| *uid != uid_of(seen) || known != status)
        {
            return Step::Write(Box::new(seen.as_ref().clone()), Box::new(status.clone()));
        }
        if own && !going { Step::Nothing } else { Step::Delete(uid_of(seen)) }
    }
}

/// The object that shows a static Pod: the same, with its hash, and owned by the node.
fn reflection(pod: &ApiPod, node: OwnerReference) -> ApiPod {
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

/// Names that are tried again, when, and how long they waited for it. One that cannot be made concerns no other.
#[derive(Default)]
struct Waiting(BTreeMap<Name, (Instant, Duration)>);

impl Waiting {
    fn is_due(&self, name: &Name, now: Instant) -> bool {
        self.0.get(name).is_none_or(|(at, _)| *at <= now)
    }

    /// It was not as it should be: each time it waits for longer.
    fn fail(&mut self, name: Name, now: Instant) {
        let pause = self.0.get(&name).map_or(FIRST_PAUSE, |(_, last)| (*last * 2).min(LONGEST_PAUSE));
        self.0.insert(name, (now + pause, pause));
    }

    /// When the next one is due.
    fn next(&self) -> Option<Instant> {
        self.0.values().map(|(at, _)| *at).min()
    }
}

/// Keeps the API as it should be, until told to stop.
pub(crate) async fn run(shared: &Arc<Shared>) {
    let mut waiting = Waiting::default();
    shared.stop.run_until_cancelled(shared.mirrors.begin.notified()).await;
    while !shared.stop.is_cancelled() {
        shared.stop.run_until_cancelled(settle(shared, &mut waiting)).await;
        let due = async {
            match waiting.next() {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let change = async {
            tokio::select! { () = shared.mirrors.bell.notified() => {}, () = due => {} }
        };
        shared.stop.run_until_cancelled(change).await;
    }
}

/// Brings those that are due to what they should be.
async fn settle(shared: &Shared, waiting: &mut Waiting) {
    let names: BTreeSet<Name> = shared.mirrors.desk.lock().keys().cloned().collect();
    waiting.0.retain(|name, _| names.contains(name));
    for name in names {
        if !waiting.is_due(&name, Instant::now()) {
            continue;
        }
        match one(shared, &name).await {
            Ok(true) => drop(waiting.0.remove(&name)),
            Ok(false) => waiting.fail(name, Instant::now()),
            Err(error) => {
                tracing::debug!(%error, namespace = name.0, pod = name.1, "a mirror Pod is not as it should be");
                waiting.fail(name, Instant::now());
            }
        }
    }
}

/// Gives whether it is as it should be; else it will be after a pause.
async fn one(shared: &Shared, name: &Name) -> Result<bool, kube::Error> {
    let api: Api<ApiPod> = Api::namespaced(shared.client.clone(), &name.0);
    loop {
        let Some(mirror) = shared.mirrors.desk.lock().get(name).cloned() else { return Ok(true) };
        let node = match mirror.seen.is_none() && mirror.wanted.is_some() {
            true => Some(owner(shared).await?),
            false => None,
        };
        match mirror.next(|| node) {
            Step::Create(_) if mirror.just_gone => {
                shared.mirrors.desk.lock().entry(name.clone()).or_default().just_gone = false;
                return Ok(false);
            }
            Step::Create(object) => match within_deadline(api.create(&PostParams::default(), &object)).await {
                Ok(created) => shared.mirrors.seen(created),
                // One of an earlier kubelet, or of somebody else who made one by hand.
                Err(kube::Error::Api(e)) if e.code == 409 && e.reason == "AlreadyExists" => {
                    shared.mirrors.seen(within_deadline(api.get(&name.1)).await?);
                }
                Err(error) => return Err(error),
            },
            Step::Write(object, status) => {
                let there = status::write(shared, &object, &status).await;
                let uid = uid_of(&object);
                shared.mirrors.change(name.clone(), |mirror| {
                    mirror.written = Some((uid.clone(), *status));
                    if !there {
                        forget(mirror, |seen| *seen == uid);
                    }
                });
            }
            Step::Delete(uid) => {
                delete(&api, &name.1, &uid).await?;
                shared.mirrors.change(name.clone(), |mirror| forget(mirror, |seen| *seen == uid));
            }
            Step::Nothing => {
                let mut desk = shared.mirrors.desk.lock();
                if desk.get(name).is_some_and(|mirror| mirror.wanted.is_none() && mirror.seen.is_none()) {
                    desk.remove(name);
                }
                return Ok(true);
            }
        }
    }
}

/// At once, and this one only.
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

/// The node, as the owner of what it shows: with the node its mirrors go.
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
    fn there_is_one_mirror_for_each_static_pod_and_it_shows_the_newest_status() {
        let mut state = Mirror { wanted: Some(statics("h1")), status: Some(running()), ..Mirror::default() };
        check(&state, "create h1");
        state.seen = Some(mirror("h1", "u1", false));
        check(&state, "write u1 Running");
        state.written = Some(("u1".to_owned(), running()));
        check(&state, "nothing");
        // Somebody deletes it, and it is made again.
        state.seen = Some(mirror("h1", "u1", true));
        check(&state, "delete u1");
        state.seen = None;
        check(&state, "create h1");
        state.seen = Some(mirror("h1", "u2", false));
        check(&state, "write u2 Running");
        // The manifest says something else: the mirror of the old one goes.
        state.wanted = Some(statics("h2"));
        state.status = None;
        check(&state, "delete u2");
        // No manifest at all: its end is shown, and then it goes.
        state = Mirror { status: Some(running()), seen: Some(mirror("h1", "u1", false)), ..Mirror::default() };
        check(&state, "write u1 Running");
        state.status = None;
        check(&state, "delete u1");
        state.seen = None;
        check(&state, "nothing");
    }

    #[test]
    fn a_mirror_is_the_nodes_and_has_no_uid_of_its_own() {
        let owner = OwnerReference { kind: "Node".to_owned(), name: "n".to_owned(), ..OwnerReference::default() };
        let object = reflection(&statics("h"), owner.clone());
        assert_eq!((object.metadata.uid, object.metadata.owner_references), (None, Some(vec![owner])));
        let annotations = object.metadata.annotations.unwrap();
        assert_eq!((annotations[CONFIG_HASH].as_str(), annotations[CONFIG_MIRROR].as_str()), ("h", "h"));
    }
}
