//! All Pods of the node, and where they come from.

use crate::{
    Shared,
    actor::{self, Handle, Mail},
    checkpoint, relist, runtime_events, static_pods,
};
use api::{
    lean::Lean,
    static_pod::{CONFIG_SOURCE, is_mirror, is_static},
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod as ApiPod, PodSpec};
use kube::{Api, runtime::watcher};
use lifecycle::{Admission, Event, Pod, ResizeVerdict, Verdict};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};
use tokio::sync::Notify;

/// The tasks of all Pods, by UID.
#[derive(Default)]
pub(crate) struct Pods {
    tasks: Mutex<HashMap<String, Handle>>,
    /// The lock makes decisions one at a time: what was given to one Pod is not given to another.
    granted: Mutex<Granted>,
    /// Pods that came, changed or went since somebody asked.
    touched: Mutex<HashSet<String>>,
    bell: Notify,
    /// Rung when the runtime is to be listed.
    pub(crate) lists: Notify,
    /// Rung when a Pod was forgotten: its name is free.
    pub(crate) forgotten: Notify,
}

/// What Pods were given, by UID; their tasks may not know of it yet.
#[derive(Default)]
struct Granted {
    /// Pods that the node has taken since it started.
    admitted: HashSet<String>,
    /// Pods that get the resources that they ask for.
    resized: HashSet<String>,
}

/// The spec of a Pod; validation refuses Pods without one.
pub(crate) fn spec(pod: &Pod) -> &PodSpec {
    static EMPTY: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
    pod.object().spec.as_ref().unwrap_or(&EMPTY)
}

impl Pods {
    /// Asks for a list of all that the runtime has.
    pub(crate) fn want_list(&self) {
        self.lists.notify_one();
    }

    fn add(&self, uid: String, make: impl FnOnce() -> Handle) {
        // Its task finds it here: the lock is held until it is.
        self.tasks.lock().insert(uid, make());
    }

    /// Whether there are Pods of which the runtime has not told yet.
    pub(crate) fn await_list(&self) -> bool {
        self.all().iter().any(|handle| handle.known.borrow().awaits_list())
    }

    /// Waits until the runtime has told of all Pods that there are: what ended while no kubelet was there takes nothing.
    pub(crate) async fn listed(&self) {
        for mut handle in self.all() {
            // Nobody who might tell is there any more: it takes nothing, either.
            let _ = handle.known.wait_for(|pod| !pod.awaits_list()).await;
        }
    }

    /// Decides whether the node takes a Pod, seeing the others that it has taken and that have not ended. One that others
    /// go for has their room from now on.
    pub(crate) fn admit(&self, uid: &str, decide: impl FnOnce(&[Arc<ApiPod>]) -> Verdict) -> Verdict {
        let mut granted = self.granted.lock();
        let verdict = decide(&self.others(uid, &granted));
        if !matches!(verdict, Verdict::Settled(Admission::Rejected { .. })) {
            granted.admitted.insert(uid.to_owned());
        }
        verdict
    }

    /// Decides whether the node takes a Pod with the resources that it asks for.
    pub(crate) fn resize(&self, uid: &str, decide: impl FnOnce(&[Arc<ApiPod>]) -> ResizeVerdict) -> ResizeVerdict {
        let mut granted = self.granted.lock();
        let verdict = decide(&self.others(uid, &granted));
        if verdict == ResizeVerdict::Fits {
            granted.resized.insert(uid.to_owned());
        }
        verdict
    }

    /// The Pods that the node has taken; those that it is deciding about are decided first.
    pub(crate) fn taken(&self) -> Vec<Handle> {
        let granted = self.granted.lock();
        let taken = |known: &Pod| known.is_admitted() || granted.admitted.contains(known.uid());
        self.all().into_iter().filter(|handle| taken(&handle.known.borrow())).collect()
    }

    /// The other Pods of the node that have not ended and that the API still has, as upstream counts them, with the most
    /// that each may take of it.
    fn others(&self, uid: &str, granted: &Granted) -> Vec<Arc<ApiPod>> {
        let pods = self.all().into_iter().map(|h| h.known.borrow().clone());
        let active = pods.filter(|p| p.uid() != uid && !p.is_gone() && !p.has_ended());
        let here = active.filter(|p| p.is_admitted() || granted.admitted.contains(p.uid()));
        let taking = here.map(|p| p.in_use(granted.resized.contains(p.uid())));
        taking.filter(|object| !api::pod::is_terminal(object)).collect()
    }

    /// What a Pod was granted by a resize shows in what is known of it.
    pub(crate) fn shows_resize(&self, uid: &str) {
        self.granted.lock().resized.remove(uid);
    }

    pub(crate) fn forget(&self, uid: &str) {
        self.tasks.lock().remove(uid);
        let mut granted = self.granted.lock();
        granted.admitted.remove(uid);
        granted.resized.remove(uid);
        drop(granted);
        self.forgotten.notify_one();
        self.touch(uid.to_owned());
    }

    /// Tells those that wait for room that there may be some, the most important ones first.
    pub(crate) fn room_was_made(&self) {
        let mut waiting: Vec<_> = self.all().into_iter().filter(|h| h.known.borrow().waits_for_room()).collect();
        waiting.sort_by_key(|h| std::cmp::Reverse(spec(&h.known.borrow()).priority.unwrap_or(0)));
        for handle in waiting {
            let _ = handle.mail.send(Mail::Fact(Event::RoomMade));
        }
    }

    /// Says that a Pod came, changed or went.
    pub(crate) fn touch(&self, uid: String) {
        self.touched.lock().insert(uid);
        self.bell.notify_one();
    }

    /// Waits until Pods came, changed or went, and names them. For one listener.
    pub(crate) async fn touched(&self) -> HashSet<String> {
        loop {
            let touched = std::mem::take(&mut *self.touched.lock());
            if !touched.is_empty() {
                return touched;
            }
            self.bell.notified().await;
        }
    }

    /// How many entries there are, by what they are.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, usize> {
        let granted = self.granted.lock();
        BTreeMap::from([
            ("pods", self.tasks.lock().len()),
            ("admitted pods", granted.admitted.len()),
            ("resized pods", granted.resized.len()),
            ("changed pods", self.touched.lock().len()),
        ])
    }

    pub(crate) fn by_uid(&self, uid: &str) -> Option<Handle> {
        self.tasks.lock().get(uid).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Handle> {
        self.tasks.lock().values().cloned().collect()
    }

    pub(crate) fn by_name(&self, namespace: &str, name: &str) -> Option<Handle> {
        let found = |h: &&Handle| {
            let pod = h.known.borrow();
            pod.namespace() == namespace && pod.name() == name
        };
        // One that was deleted by force may still be ending beside its namesake.
        self.tasks.lock().values().filter(found).min_by_key(|h| h.known.borrow().is_gone()).cloned()
    }

    pub(crate) fn owner(&self, id: &str) -> Option<Handle> {
        self.tasks.lock().values().find(|h| h.known.borrow().owns(id)).cloned()
    }
}

pub(crate) async fn run(shared: &Arc<Shared>) {
    let dir = shared.paths.checkpoints();
    match checkpoint::load(&dir) {
        Ok(pods) => {
            for pod in pods {
                let uid = pod.uid().to_owned();
                if is_static(pod.object()) {
                    shared.mirrors.want(pod.object());
                }
                shared.pods.add(uid, || actor::spawn(Arc::clone(shared), pod));
            }
        }
        Err(error) => tracing::error!(%error, "checkpoints cannot be read"),
    }
    let runtime = async { tokio::join!(runtime_events::follow(shared), relist::when_wanted(shared)) };
    tokio::join!(follow_api(shared), Box::pin(static_pods::run(shared)), shared.stop.run_until_cancelled(runtime));
}

async fn follow_api(shared: &Arc<Shared>) {
    let api: Api<Lean<ApiPod>> = Api::all(shared.client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", shared.options.node_name));
    let mut events = watcher(api, config).boxed();
    let mut listed: HashSet<String> = HashSet::new();
    while let Some(Some(event)) = shared.stop.run_until_cancelled(events.next()).await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(Lean(pod))) => {
                listed.insert(pod.metadata.uid.clone().unwrap_or_default());
                updated(shared, pod);
            }
            Ok(watcher::Event::InitDone) => {
                // What an earlier kubelet knew and the API no longer has was deleted by force.
                shared.mirrors.listed(&listed);
                for handle in shared.pods.all() {
                    let known = handle.known.borrow().clone();
                    if !listed.contains(known.uid()) && !is_static(known.object()) {
                        let _ = handle.mail.send(Mail::Fact(Event::Gone));
                    }
                }
            }
            Ok(watcher::Event::Apply(Lean(pod))) => updated(shared, pod),
            Ok(watcher::Event::Delete(Lean(pod))) if is_mirror(&pod) => shared.mirrors.gone(&pod),
            Ok(watcher::Event::Delete(Lean(pod))) => {
                if let Some(handle) = shared.pods.by_uid(pod.metadata.uid.as_deref().unwrap_or("")) {
                    let _ = handle.mail.send(Mail::Fact(Event::Gone));
                }
            }
            Err(error) => tracing::warn!(%error, "the watch of Pods broke; it starts again"),
        }
    }
}

fn updated(shared: &Arc<Shared>, object: ApiPod) {
    if is_mirror(&object) {
        return shared.mirrors.seen(object);
    }
    let object = of_the_api(object);
    let (uid, object) = (object.metadata.uid.clone().unwrap_or_default(), Arc::new(object));
    let known = shared.pods.by_uid(&uid);
    match known {
        Some(handle) => {
            let _ = handle.mail.send(Mail::Fact(Event::Updated(object)));
        }
        None => start(shared, object),
    }
}

/// What comes from the API is no static Pod, whatever its annotations say.
fn of_the_api(mut object: ApiPod) -> ApiPod {
    if is_static(&object) {
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_SOURCE.to_owned(), "api".to_owned());
    }
    object
}

/// A Pod comes to the node.
pub(crate) fn start(shared: &Arc<Shared>, object: Arc<ApiPod>) {
    let uid = object.metadata.uid.clone().unwrap_or_default();
    if is_static(&object) {
        shared.mirrors.want(&object);
    }
    let pod = Pod::new(object, shared.now());
    shared.pods.add(uid, || actor::spawn(Arc::clone(shared), pod));
}
