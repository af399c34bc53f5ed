//! All Pods of the node: where they come from, and how what happens in the runtime reaches them.

use crate::{
    Shared,
    actor::{self, Handle, Mail},
    checkpoint,
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod as ApiPod, PodSpec};
use kube::{Api, runtime::watcher};
use lifecycle::{ContainerExit, ContainerView, ContainerViewState, Event, Pod, RuntimeView, SandboxFact, SandboxView};
use parking_lot::Mutex;
use runtime::{ContainerId, ContainerState, ContainerStatus, RuntimeError, RuntimeEvent, SandboxId};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tokio::sync::Notify;

/// How often everything is listed again, to repair what events lost.
const RELIST: Duration = Duration::from_secs(60);

/// The least time between two lists.
const SPACING: Duration = Duration::from_millis(100);
/// When everything is listed again after events may have been lost.
const SOON: Duration = Duration::from_millis(500);
/// How long the runtime may take to show an exit that it told of.
const NOTED: Duration = Duration::from_secs(30);
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The tasks of all Pods, by UID.
#[derive(Default)]
pub(crate) struct Pods {
    tasks: Mutex<HashMap<String, Handle>>,
    /// Pods that came, changed or went since somebody asked.
    touched: Mutex<HashSet<String>>,
    bell: Notify,
    /// Rung when the runtime is to be listed.
    lists: Notify,
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

    pub(crate) fn forget(&self, uid: &str) {
        self.tasks.lock().remove(uid);
        self.touch(uid.to_owned());
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
        self.tasks.lock().values().find(found).cloned()
    }

    fn owner(&self, id: &str) -> Option<Handle> {
        self.tasks.lock().values().find(|h| h.known.borrow().owns(id)).cloned()
    }
}

pub(crate) async fn run(shared: &Arc<Shared>) {
    let dir = shared.paths.checkpoints();
    match checkpoint::load(&dir) {
        Ok(pods) => {
            for pod in pods {
                let uid = pod.uid().to_owned();
                shared.pods.add(uid, || actor::spawn(Arc::clone(shared), pod));
            }
        }
        Err(error) => tracing::error!(%error, "checkpoints cannot be read"),
    }
    tokio::join!(follow_api(shared), follow_runtime(shared));
}

async fn follow_api(shared: &Arc<Shared>) {
    let api: Api<ApiPod> = Api::all(shared.client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", shared.options.node_name));
    let mut events = watcher(api, config).boxed();
    let mut listed: HashSet<String> = HashSet::new();
    while let Some(Some(event)) = shared.stop.run_until_cancelled(events.next()).await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(pod)) => {
                listed.insert(pod.metadata.uid.clone().unwrap_or_default());
                updated(shared, pod);
            }
            Ok(watcher::Event::InitDone) => {
                // What an earlier kubelet knew and the API no longer has was deleted by force.
                for handle in shared.pods.all() {
                    if !listed.contains(handle.known.borrow().uid()) {
                        let _ = handle.mail.send(Mail::Fact(Event::Gone));
                    }
                }
            }
            Ok(watcher::Event::Apply(pod)) => updated(shared, pod),
            Ok(watcher::Event::Delete(pod)) => {
                if let Some(handle) = shared.pods.by_uid(pod.metadata.uid.as_deref().unwrap_or("")) {
                    let _ = handle.mail.send(Mail::Fact(Event::Gone));
                }
            }
            Err(error) => tracing::warn!(%error, "the watch of Pods broke; it starts again"),
        }
    }
}

fn updated(shared: &Arc<Shared>, object: ApiPod) {
    let (uid, object) = (object.metadata.uid.clone().unwrap_or_default(), Arc::new(object));
    let known = shared.pods.by_uid(&uid);
    match known {
        Some(handle) => {
            let _ = handle.mail.send(Mail::Fact(Event::Updated(object)));
        }
        None => {
            let pod = Pod::new(object, shared.now());
            shared.pods.add(uid, || actor::spawn(Arc::clone(shared), pod));
        }
    }
}

async fn follow_runtime(shared: &Arc<Shared>) {
    let work = async { tokio::join!(follow_events(shared), relist_when(shared)) };
    shared.stop.run_until_cancelled(work).await;
}

async fn follow_events(shared: &Arc<Shared>) {
    let mut events = shared.runtime.events();
    while let Some(event) = events.next().await {
        match event {
            RuntimeEvent::ContainerExited(id) => {
                let shared = Arc::clone(shared);
                tokio::spawn(async move { exited(&shared, id).await });
            }
            RuntimeEvent::SandboxExited(id) => sandbox_exited(shared, &id),
            RuntimeEvent::Resync => shared.pods.want_list(),
        }
    }
}

/// Lists when somebody wants it, and now and then. The runtime may be starting: a list that fails is tried again.
async fn relist_when(shared: &Shared) {
    let mut interval = RELIST;
    loop {
        interval = match tokio::time::timeout(interval, shared.pods.lists.notified()).await {
            // After a break in the events the runtime's own lists may be behind: look again soon, then less and less.
            Ok(()) => SOON,
            Err(_) => (interval * 2).min(RELIST),
        };
        let mut pause = Duration::from_millis(25);
        while let Err(error) = relist(shared).await {
            tracing::debug!(%error, "the runtime could not be listed; it is tried again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        // Who wants lists all the time gets them now and then.
        tokio::time::sleep(SPACING).await;
    }
}

/// The Pod of a container. One that ends right after its start may end before its Pod's task has heard that it was made.
async fn owner_of(shared: &Shared, id: &str) -> Option<Handle> {
    for _ in 0..200 {
        if let Some(handle) = shared.pods.owner(id) {
            return Some(handle);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    None
}

async fn exited(shared: &Shared, id: ContainerId) {
    let Some(handle) = owner_of(shared, &id.0).await else { return };
    // containerd sends the event a moment before its CRI plugin has taken note; after its own restart, long before.
    let mut pause = Duration::from_millis(5);
    let deadline = tokio::time::Instant::now() + NOTED;
    while tokio::time::Instant::now() < deadline {
        match shared.runtime.container(&id).await {
            Ok(status) if status.state == ContainerState::Exited => {
                let pod = handle.known.borrow().clone();
                let exit = crate::logs::exit(shared, &pod, &status);
                let fact = lifecycle::ContainerFact::Exited { id: id.0, exit };
                let _ = handle.mail.send(Mail::Fact(Event::Container { container: status.name, fact }));
                return;
            }
            // A sandbox, or gone: a relist tells.
            Err(RuntimeError::NotFound(_)) => return,
            Ok(_) | Err(_) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
    tracing::warn!(container = %id, "an exit was told that the runtime does not show; the next relist looks again");
}

fn sandbox_exited(shared: &Shared, id: &SandboxId) {
    if let Some(handle) = shared.pods.owner(&id.0).filter(|h| h.known.borrow().sandbox_id() == Some(&id.0)) {
        let _ = handle.mail.send(Mail::Fact(Event::Sandbox(SandboxFact::Lost { id: id.0.clone() })));
    }
}

/// What is gone since the list is none; what could not be asked for is not gone.
fn found<T>(answer: Result<T, RuntimeError>) -> Result<Option<T>, RuntimeError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(RuntimeError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lists everything and tells each Pod what the runtime has of it. What belongs to no Pod is removed.
async fn relist(shared: &Shared) -> Result<(), RuntimeError> {
    let before: HashMap<String, u64> = shared
        .pods
        .all()
        .iter()
        .map(|h| {
            let pod = h.known.borrow();
            (pod.uid().to_owned(), pod.durable_revision())
        })
        .collect();
    let (sandboxes, containers) = tokio::try_join!(shared.runtime.sandboxes(), shared.runtime.containers())?;
    let mut views: HashMap<String, RuntimeView> = HashMap::new();
    for s in sandboxes {
        let ips = match s.ready {
            true => found(shared.runtime.sandbox(&s.id).await)?.map(|s| s.ips).unwrap_or_default(),
            false => Vec::new(),
        };
        let view = SandboxView { id: s.id.0, attempt: s.attempt, ready: s.ready, ips };
        views.entry(s.uid).or_default().sandboxes.push(view);
    }
    for c in containers {
        let Some(status) = found(shared.runtime.container(&c.id).await)? else { continue };
        let uid = c.uid.clone();
        let sandbox = c.sandbox.map(|s| s.0).unwrap_or_default();
        let view = container_view(shared, status, sandbox);
        views.entry(uid).or_default().containers.push(view);
    }
    for handle in shared.pods.all() {
        let pod = handle.known.borrow().clone();
        let view = views.remove(pod.uid()).unwrap_or_default();
        // A Pod of which nothing was made yet has nothing to learn.
        if let Some(revision) = before.get(pod.uid()).filter(|_| pod.is_admitted()) {
            let _ = handle.mail.send(Mail::Relisted(view, *revision));
        }
    }
    shared.cgroups.remove_orphans(|uid| shared.pods.by_uid(uid).is_some());
    for sandbox in views.into_values().flat_map(|v| v.sandboxes) {
        tracing::warn!(sandbox = sandbox.id, "a sandbox belongs to no Pod and is removed");
        let id = SandboxId(sandbox.id);
        let _ = shared.runtime.stop_sandbox(&id).await;
        let _ = shared.runtime.remove_sandbox(&id).await;
    }
    Ok(())
}

fn container_view(shared: &Shared, status: ContainerStatus, sandbox: String) -> ContainerView {
    let pod = shared.pods.by_uid(&status.uid).map(|h| h.known.borrow().clone());
    let state = match status.state {
        ContainerState::Created => ContainerViewState::Created,
        ContainerState::Running => {
            ContainerViewState::Running { started_at: status.started_at.unwrap_or(status.created_at) }
        }
        ContainerState::Exited => ContainerViewState::Exited(match pod {
            Some(pod) => crate::logs::exit(shared, &pod, &status),
            None => ContainerExit {
                code: status.exit.as_ref().map_or(137, |e| e.code),
                reason: String::new(),
                message: String::new(),
                started_at: status.started_at,
                finished_at: status.created_at,
            },
        }),
        ContainerState::Unknown => ContainerViewState::Unknown,
    };
    ContainerView {
        id: status.id.0,
        name: status.name,
        attempt: status.attempt,
        sandbox,
        image_id: status.image_ref,
        state,
    }
}
