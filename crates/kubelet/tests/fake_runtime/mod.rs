//! In-memory container runtime: containers run until a test ends them, and calls hang or fail on request.

pub(crate) mod commands;
mod container_exits;

use commands::Commands;
use futures::{FutureExt, StreamExt, future, stream::BoxStream};
use kubelet::Clock;
use parking_lot::Mutex;
use runtime::{
    Call, ContainerConfig, ContainerDisk, ContainerId, ContainerState, ContainerStatus, ExecOutput, Exit, Handler,
    Image, ImageSpec, LinuxResources, PortForward, RegistryAuth, Runtime, RuntimeError, RuntimeEvent, RuntimeStatus,
    SandboxConfig, SandboxId, SandboxStatus, Session, SessionIo, StopSignal, Version,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;

/// Fake runtime. Clones share their state.
#[derive(Clone)]
pub(crate) struct FakeRuntime {
    state: Arc<Mutex<State>>,
    commands: Arc<Commands>,
    events: broadcast::Sender<RuntimeEvent>,
    clock: Clock,
}

/// Call that is executed but whose response is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lost {
    Sandbox,
    Create,
    Start,
}

#[derive(Default)]
struct State {
    made: u32,
    sandboxes: BTreeMap<String, (SandboxStatus, SandboxConfig)>,
    containers: BTreeMap<String, (ContainerStatus, ContainerConfig)>,
    images: BTreeSet<String>,
    /// Names of containers whose creation hangs, and images whose pull hangs.
    hanging: BTreeSet<String>,
    /// Passwords of private images.
    private: BTreeMap<String, String>,
    /// Time and runtime handler of each pull.
    pulls: Vec<(jiff::Timestamp, String)>,
    reopened: Vec<String>,
    handlers: Vec<Handler>,
    /// Calls whose next response is lost.
    lost: BTreeSet<Lost>,
    /// Names of started containers, in order.
    started: Vec<String>,
    /// Exits of reaped containers that have not completed, by container name.
    reaped: BTreeMap<String, Exit>,
    /// Whether containers cannot be removed.
    keeps_all: bool,
    /// Duration of a container list.
    lists_take: Duration,
}

pub(crate) const IMAGE: &str = "busybox:1.28";

impl FakeRuntime {
    pub(crate) fn new(clock: Clock) -> Self {
        let state = State { images: BTreeSet::from([IMAGE.to_owned()]), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), commands: Arc::default(), events: broadcast::channel(64).0, clock }
    }

    pub(crate) fn hang(&self, name: &str) {
        self.state.lock().hanging.insert(name.to_owned());
    }

    pub(crate) fn hang_pull(&self, image: &str) {
        self.state.lock().hanging.insert(image.to_owned());
    }

    pub(crate) fn add_image(&self, image: &str) {
        self.state.lock().images.insert(image.to_owned());
    }

    /// Makes an image pullable with this password.
    pub(crate) fn make_private(&self, image: &str, password: &str) {
        self.state.lock().private.insert(image.to_owned(), password.to_owned());
    }

    /// Sets whether the default runtime handler supports user namespaces.
    pub(crate) fn default_handler(&self, user_namespaces: bool) {
        self.state.lock().handlers = vec![Handler { user_namespaces, ..Handler::default() }];
    }

    /// Loses the response of the next call of this kind.
    pub(crate) fn lose(&self, answer: Lost) {
        self.state.lock().lost.insert(answer);
    }

    /// Whether that response was lost.
    pub(crate) fn has_lost(&self, answer: Lost) -> bool {
        !self.state.lock().lost.contains(&answer)
    }

    /// Returns the names of started containers, in order.
    pub(crate) fn starts(&self) -> Vec<String> {
        self.state.lock().started.clone()
    }

    /// Returns the result of a call, or a pending future if its response is to be lost.
    fn unless_lost<T: Send + 'static>(
        &self,
        answer: Lost,
        work: impl FnOnce(&mut State) -> Result<T, RuntimeError>,
    ) -> Call<'static, T> {
        let mut state = self.state.lock();
        let result = work(&mut state);
        if state.lost.remove(&answer) { future::pending().boxed() } else { future::ready(result).boxed() }
    }

    pub(crate) fn pulled_for(&self) -> Vec<String> {
        self.state.lock().pulls.iter().map(|(_, handler)| handler.clone()).collect()
    }

    pub(crate) fn pulls(&self) -> Vec<jiff::Timestamp> {
        self.state.lock().pulls.iter().map(|(at, _)| *at).collect()
    }

    pub(crate) fn reopened(&self) -> Vec<String> {
        self.state.lock().reopened.clone()
    }

    /// Returns the configurations of containers of this name, ordered by attempt.
    pub(crate) fn made(&self, name: &str) -> Vec<ContainerConfig> {
        let state = self.state.lock();
        let mut all: Vec<_> = state.containers.values().map(|(_, c)| c).filter(|c| c.name == name).cloned().collect();
        all.sort_by_key(|c| c.attempt);
        all
    }

    /// Sets the duration of container lists.
    pub(crate) fn lists_take(&self, time: Duration) {
        self.state.lock().lists_take = time;
    }

    /// Returns the configurations of the existing sandboxes.
    pub(crate) fn sandbox_configs(&self) -> Vec<SandboxConfig> {
        self.state.lock().sandboxes.values().map(|(_, config)| config.clone()).collect()
    }

    fn ready<T: Send + 'static>(&self, work: impl FnOnce(&mut State) -> Result<T, RuntimeError>) -> Call<'static, T> {
        future::ready(work(&mut self.state.lock())).boxed()
    }
}

fn not_found(id: &str) -> RuntimeError {
    RuntimeError::NotFound(format!("{id} not found"))
}

fn no<T: Send + 'static>() -> Call<'static, T> {
    future::ready(Err(RuntimeError::Unimplemented("not here".to_owned()))).boxed()
}

impl Runtime for FakeRuntime {
    fn version(&self) -> Call<'_, Version> {
        self.ready(|_| Ok(Version { name: "containerd".to_owned(), version: "1".to_owned() }))
    }

    fn status(&self) -> Call<'_, RuntimeStatus> {
        self.ready(|state| {
            Ok(RuntimeStatus {
                runtime_not_ready: None,
                network_not_ready: None,
                handlers: state.handlers.clone(),
                supplemental_groups_policy: false,
            })
        })
    }

    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig) -> Call<'a, SandboxId> {
        let created_at = self.clock.now();
        self.unless_lost(Lost::Sandbox, |state| {
            let same = |s: &SandboxStatus| s.uid == config.uid && s.attempt == config.attempt;
            if state.sandboxes.values().any(|(s, _)| same(s)) {
                return Err(RuntimeError::AlreadyExists(config.name.clone()));
            }
            state.made += 1;
            let id = SandboxId(format!("sandbox-{}", state.made));
            let status = SandboxStatus {
                id: id.clone(),
                uid: config.uid.clone(),
                name: config.name.clone(),
                namespace: config.namespace.clone(),
                attempt: config.attempt,
                ready: true,
                created_at,
                ips: vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7))],
            };
            state.sandboxes.insert(id.0.clone(), (status, config.clone()));
            Ok(id)
        })
    }

    fn stop_sandbox<'a>(&'a self, id: &'a SandboxId) -> Call<'a, ()> {
        self.ready(|state| {
            if let Some((sandbox, _)) = state.sandboxes.get_mut(&id.0) {
                sandbox.ready = false;
            }
            Ok(())
        })
    }

    fn remove_sandbox<'a>(&'a self, id: &'a SandboxId) -> Call<'a, ()> {
        self.ready(|state| {
            state.sandboxes.remove(&id.0);
            state.containers.retain(|_, (c, _)| c.sandbox.as_ref() != Some(id));
            Ok(())
        })
    }

    fn sandbox<'a>(&'a self, id: &'a SandboxId) -> Call<'a, SandboxStatus> {
        self.ready(|state| state.sandboxes.get(&id.0).map(|(s, _)| s.clone()).ok_or_else(|| not_found(&id.0)))
    }

    fn sandboxes(&self) -> Call<'_, Vec<SandboxStatus>> {
        self.ready(|state| Ok(state.sandboxes.values().map(|(s, _)| s.clone()).collect()))
    }

    fn create_container<'a>(
        &'a self,
        sandbox: &'a SandboxId,
        config: &'a ContainerConfig,
        sandbox_config: &'a SandboxConfig,
    ) -> Call<'a, ContainerId> {
        if self.state.lock().hanging.contains(&config.name) {
            return future::pending().boxed();
        }
        let created_at = self.clock.now();
        self.unless_lost(Lost::Create, |state| {
            let same = |c: &ContainerStatus| {
                c.uid == sandbox_config.uid && c.name == config.name && c.attempt == config.attempt
            };
            if state.containers.values().any(|(c, _)| same(c)) {
                return Err(RuntimeError::AlreadyExists(config.name.clone()));
            }
            state.made += 1;
            let id = ContainerId(format!("container-{}", state.made));
            let status = ContainerStatus {
                id: id.clone(),
                sandbox: Some(sandbox.clone()),
                uid: sandbox_config.uid.clone(),
                name: config.name.clone(),
                attempt: config.attempt,
                state: ContainerState::Created,
                created_at,
                started_at: None,
                exit: None,
                image: config.image.clone(),
                image_ref: config.image_ref.clone(),
                spec_image: Some(config.image.clone()),
                stop_signal: None,
            };
            state.containers.insert(id.0.clone(), (status, config.clone()));
            Ok(id)
        })
    }

    fn start_container<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ()> {
        let now = self.clock.now();
        self.unless_lost(Lost::Start, |state| {
            let (status, _) = state.containers.get_mut(&id.0).ok_or_else(|| not_found(&id.0))?;
            if status.state != ContainerState::Created {
                return Err(RuntimeError::Failed(format!("container is in {:?} state", status.state)));
            }
            state.started.push(status.name.clone());
            (status.state, status.started_at) = (ContainerState::Running, Some(now));
            Ok(())
        })
    }

    fn stop_container<'a>(
        &'a self,
        id: &'a ContainerId,
        _grace: Duration,
        _signal: Option<StopSignal>,
    ) -> Call<'a, ()> {
        let name = self.state.lock().containers.get(&id.0).map(|(c, _)| c.name.clone());
        if let Some(name) = name {
            self.exit(&name, 143, true);
        }
        self.ready(|_| Ok(()))
    }

    fn remove_container<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ()> {
        self.ready(|state| {
            if state.keeps_all {
                return Err(RuntimeError::Failed("it stays".to_owned()));
            }
            state.containers.remove(&id.0);
            Ok(())
        })
    }

    fn container<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ContainerStatus> {
        self.ready(|state| state.containers.get(&id.0).map(|(c, _)| c.clone()).ok_or_else(|| not_found(&id.0)))
    }

    fn containers(&self) -> Call<'_, Vec<ContainerStatus>> {
        let time = self.state.lock().lists_take;
        let answer = self.ready(|state| {
            let short = |(c, _): &(ContainerStatus, ContainerConfig)| ContainerStatus { exit: None, ..c.clone() };
            Ok(state.containers.values().map(short).collect())
        });
        tokio::time::sleep(time).then(|()| answer).boxed()
    }

    fn reopen_log<'a>(&'a self, id: &'a ContainerId) -> Call<'a, ()> {
        self.ready(|state| {
            let (status, config) = state.containers.get(&id.0).ok_or_else(|| not_found(&id.0))?;
            let (_, sandbox) = &state.sandboxes[&status.sandbox.clone().expect("it was made in one").0];
            std::fs::write(sandbox.log_directory.join(&config.log_path), "").expect("the directory is there");
            state.reopened.push(id.0.clone());
            Ok(())
        })
    }

    fn update_resources<'a>(&'a self, id: &'a ContainerId, resources: &'a LinuxResources) -> Call<'a, ()> {
        let mut state = self.state.lock();
        let config = state.containers.get_mut(&id.0).map(|(_, config)| config.resources = resources.clone());
        let found = config.ok_or_else(|| RuntimeError::NotFound(id.0.clone()));
        async { found }.boxed()
    }

    fn exec_sync<'a>(&'a self, id: &'a ContainerId, command: &'a [String], timeout: Duration) -> Call<'a, ExecOutput> {
        self.commands.run(id, command, timeout, &self.clock).boxed()
    }

    fn exec<'a>(&'a self, _: &'a ContainerId, _: &'a [String], _: SessionIo) -> Call<'a, Session> {
        no()
    }

    fn attach<'a>(&'a self, _: &'a ContainerId, _: SessionIo) -> Call<'a, Session> {
        no()
    }

    fn port_forward<'a>(&'a self, _: &'a SandboxId, _: u16) -> Call<'a, PortForward> {
        no()
    }

    fn image<'a>(&'a self, spec: ImageSpec<'a>) -> Call<'a, Option<Image>> {
        let found = |id: &String| Image {
            id: id.clone(),
            tags: vec![id.clone()],
            digests: Vec::new(),
            size: 1,
            uid: None,
            username: String::new(),
            pinned: false,
        };
        self.ready(|state| Ok(state.images.get(spec.image).map(found)))
    }

    fn image_stop_signal<'a>(&'a self, _image: &'a str) -> Call<'a, Option<StopSignal>> {
        self.ready(|_| Ok(None))
    }

    fn pull_image<'a>(&'a self, spec: ImageSpec<'a>, auth: Option<&'a RegistryAuth>) -> Call<'a, String> {
        let ImageSpec { image, runtime_handler } = spec;
        self.state.lock().pulls.push((self.clock.now(), runtime_handler.to_owned()));
        if self.state.lock().hanging.contains(image) {
            return future::pending().boxed();
        }
        self.ready(|state| {
            if let Some(password) = state.private.get(image) {
                let shown = auth.map(|a| a.password.as_str());
                if shown != Some(password) {
                    return Err(RuntimeError::Failed(format!("{image}: {} is refused", shown.unwrap_or("nobody"))));
                }
                state.images.insert(image.to_owned());
            }
            let there = state.images.contains(image);
            if there { Ok(image.to_owned()) } else { Err(RuntimeError::Failed(format!("{image}: no such image"))) }
        })
    }

    fn container_disk<'a>(&'a self, _id: &'a ContainerId) -> Call<'a, Option<ContainerDisk>> {
        async { Ok(None) }.boxed()
    }

    fn image_fs(&self) -> Call<'_, Option<std::path::PathBuf>> {
        async { Ok(None) }.boxed()
    }

    fn images(&self) -> Call<'_, Vec<Image>> {
        self.ready(|_| Ok(Vec::new()))
    }

    fn remove_image<'a>(&'a self, _image: &'a str) -> Call<'a, ()> {
        no()
    }

    fn events(&self) -> BoxStream<'static, RuntimeEvent> {
        let received = BroadcastStream::new(self.events.subscribe()).map(|e| e.unwrap_or(RuntimeEvent::Resync));
        futures::stream::once(future::ready(RuntimeEvent::Resync)).chain(received).boxed()
    }
}
