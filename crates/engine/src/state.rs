//! What the engine knows of its sandboxes and containers. Everything that must survive is in their records.

use crate::{
    EngineOptions, apparmor,
    events::Events,
    execs::Execs,
    handlers::Handlers,
    pod_files::PodFiles,
    records::{self, ContainerRecord, SandboxRecord, SandboxState},
    tasks::Tasks,
};
use bundle::HostInfo;
use keeper::Client as Keeper;
use parking_lot::Mutex;
use runtime::{ContainerState, ContainerStatus, Exit, RuntimeError};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::watch;

/// First version of Linux with `mount_setattr(2)`: recursive read-only mounts and ID-mapped mounts.
const MOUNT_SETATTR: (u32, u32) = (5, 12);

/// First version of Linux with overlays over ID-mapped mounts.
const ID_MAPPED_OVERLAY: (u32, u32) = (5, 19);

/// Shared state of an engine.
pub(crate) struct Inner {
    pub(crate) options: EngineOptions,
    pub(crate) handlers: Handlers,
    pub(crate) host: HostInfo,
    pub(crate) apparmor: apparmor::Profiles,
    pub(crate) events: Events,
    pub(crate) sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    /// Sandboxes by Pod UID and attempt, those in creation included.
    pub(crate) names: Mutex<BTreeSet<(String, u32)>>,
    pub(crate) tasks: Tasks,
}

impl Inner {
    /// Directory of the sandboxes.
    pub(crate) fn pods_dir(&self) -> PathBuf {
        pods_dir(&self.options.data_dir)
    }

    /// Whether a handler has recursive read-only mounts, as the kernel since 5.12.
    pub(crate) async fn recursive_read_only_mounts(&self, handler: &str) -> bool {
        self.host.kernel >= MOUNT_SETATTR && self.handlers.features(handler).await.recursive_read_only_mounts
    }

    /// Whether a handler has user namespaces: it maps the IDs of volumes, and the kernel those of layers.
    pub(crate) async fn user_namespaces(&self, handler: &str) -> bool {
        // gVisor reports ID-mapped mounts, but creates user namespaces itself.
        let is_possible = self.handlers.get(handler).is_some_and(|handler| !handler.sandbox_container)
            && self.host.kernel >= ID_MAPPED_OVERLAY;
        is_possible && self.handlers.features(handler).await.id_mapped_mounts
    }

    pub(crate) fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>, RuntimeError> {
        let found = self.sandboxes.lock().get(id).cloned();
        found.ok_or_else(|| RuntimeError::NotFound(format!("sandbox {id} not found")))
    }

    pub(crate) fn container(&self, id: &str) -> Result<(Arc<Sandbox>, Arc<Container>), RuntimeError> {
        let sandboxes: Vec<_> = self.sandboxes.lock().values().cloned().collect();
        let find = |sandbox: Arc<Sandbox>| {
            let container = sandbox.containers.lock().get(id).cloned()?;
            Some((sandbox, container))
        };
        let found = sandboxes.into_iter().find_map(find);
        found.ok_or_else(|| RuntimeError::NotFound(format!("container {id} not found")))
    }
}

/// Returns the directory of the sandboxes of a data directory.
pub(crate) fn pods_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("engine/pods")
}

/// A Pod sandbox.
pub(crate) struct Sandbox {
    pub(crate) dir: PathBuf,
    pub(crate) files: PodFiles,
    record: Mutex<SandboxRecord>,
    /// Held while the record is changed and written.
    saving: Mutex<()>,
    /// `None` when the keeper has ended.
    keeper: watch::Sender<Option<Keeper>>,
    /// Whether the keeper is requested to end.
    is_ending: AtomicBool,
    pub(crate) containers: Mutex<BTreeMap<String, Arc<Container>>>,
    pub(crate) execs: Execs,
    /// Names and attempts of the containers that are being created.
    pub(crate) creating: watch::Sender<BTreeSet<(String, u32)>>,
    /// Serializes starts and the end of creations (read) with stop and removal of the sandbox (write).
    pub(crate) changes: tokio::sync::RwLock<()>,
    /// Held while the sandbox container is deleted: an OCI runtime may fail if two calls delete the same one.
    pub(crate) deletion: tokio::sync::Mutex<()>,
}

impl Sandbox {
    pub(crate) fn new(dir: PathBuf, record: SandboxRecord, keeper: Option<Keeper>) -> Self {
        Self {
            files: PodFiles::new(&dir, record.ipc),
            dir,
            record: Mutex::new(record),
            saving: Mutex::default(),
            keeper: watch::Sender::new(keeper),
            is_ending: AtomicBool::new(false),
            containers: Mutex::default(),
            execs: Execs::default(),
            creating: watch::Sender::default(),
            changes: tokio::sync::RwLock::default(),
            deletion: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn record(&self) -> SandboxRecord {
        self.record.lock().clone()
    }

    pub(crate) fn record_path(dir: &Path) -> PathBuf {
        dir.join("sandbox.json")
    }

    /// Changes the state. Not synced: after a power failure, a sandbox without a keeper is stopped anyway.
    pub(crate) fn set_state(&self, state: SandboxState) -> io::Result<()> {
        let _saving = self.saving.lock();
        let mut record = self.record();
        record.state = state;
        records::save_unsynced(&Self::record_path(&self.dir), &record)?;
        *self.record.lock() = record;
        Ok(())
    }

    pub(crate) fn keeper(&self) -> Result<Keeper, RuntimeError> {
        let ended = || RuntimeError::Failed(format!("the keeper of sandbox {} has ended", self.record.lock().id));
        self.keeper.borrow().clone().ok_or_else(ended)
    }

    /// Waits while a connection that has ended is renewed, or the end of the keeper is handled.
    ///
    /// # Errors
    /// When the keeper has ended.
    pub(crate) async fn connected_keeper(&self) -> Result<Keeper, RuntimeError> {
        let is_settled = |keeper: &Option<Keeper>| keeper.as_ref().is_none_or(Keeper::is_connected);
        // The sender is not dropped before `self`.
        let _ = self.keeper.subscribe().wait_for(is_settled).await;
        self.keeper()
    }

    pub(crate) fn take_keeper(&self) {
        self.keeper.send_replace(None);
    }

    /// Sets the connection to the keeper after the earlier one ended.
    pub(crate) fn set_keeper(&self, keeper: Keeper) {
        self.keeper.send_replace(Some(keeper));
    }

    /// Announces that the keeper's end is expected.
    pub(crate) fn begin_ending(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::SeqCst)
    }

    pub(crate) fn has_keeper(&self) -> bool {
        self.keeper.borrow().is_some()
    }

    pub(crate) fn containers_dir(dir: &Path) -> PathBuf {
        dir.join("containers")
    }

    pub(crate) fn all_containers(&self) -> Vec<Arc<Container>> {
        self.containers.lock().values().cloned().collect()
    }
}

/// A container.
pub(crate) struct Container {
    pub(crate) dir: PathBuf,
    record: Mutex<ContainerRecord>,
    /// Held while the record is changed and written.
    saving: Mutex<()>,
    exit: watch::Sender<Option<Exit>>,
    /// Whether the stop signal was sent.
    signalled: AtomicBool,
    /// First process.
    pid: Mutex<Option<i32>>,
    /// Held while the OCI runtime starts it: a signal would find no process.
    pub(crate) starting: tokio::sync::Mutex<()>,
    /// Whether the OCI runtime has deleted it.
    pub(crate) deleted: tokio::sync::Mutex<bool>,
}

impl Container {
    pub(crate) fn new(dir: PathBuf, record: ContainerRecord, exit: Option<Exit>) -> Self {
        let exit = watch::Sender::new(exit);
        Self {
            dir,
            record: Mutex::new(record),
            saving: Mutex::default(),
            exit,
            signalled: AtomicBool::new(false),
            pid: Mutex::new(None),
            starting: tokio::sync::Mutex::default(),
            deleted: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn record_path(dir: &Path) -> PathBuf {
        dir.join("record.json")
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        *self.pid.lock()
    }

    pub(crate) fn set_pid(&self, pid: Option<i32>) {
        *self.pid.lock() = pid;
    }

    pub(crate) fn id(&self) -> String {
        self.record.lock().id.clone()
    }

    pub(crate) fn record(&self) -> ContainerRecord {
        self.record.lock().clone()
    }

    /// Changes the record durably.
    pub(crate) fn update(&self, change: impl FnOnce(&mut ContainerRecord)) -> io::Result<()> {
        let _saving = self.saving.lock();
        let mut record = self.record();
        change(&mut record);
        records::save(&Self::record_path(&self.dir), &record)?;
        // A change that is not on the disk has not happened.
        *self.record.lock() = record;
        Ok(())
    }

    pub(crate) fn state(&self) -> ContainerState {
        if self.exit.borrow().is_some() {
            return ContainerState::Exited;
        }
        if self.record.lock().started_at.is_some() { ContainerState::Running } else { ContainerState::Created }
    }

    pub(crate) fn status(&self) -> ContainerStatus {
        let exit = self.exit.borrow().clone();
        self.record().status(self.state(), exit)
    }

    pub(crate) fn exit(&self) -> Option<Exit> {
        self.exit.borrow().clone()
    }

    /// Records the exit for [`Self::wait`]. The first one counts. Returns whether it was the first.
    pub(crate) fn set_exit(&self, exit: Exit) -> bool {
        self.exit.send_if_modified(|known| {
            let is_first = known.is_none();
            if is_first {
                *known = Some(exit);
            }
            is_first
        })
    }

    /// Waits for the exit.
    pub(crate) async fn wait(&self) {
        // The sender is not dropped before `self`.
        let _ = self.exit.subscribe().wait_for(Option::is_some).await;
    }

    /// Returns whether the stop signal must be sent: a second signal ends many programs immediately.
    pub(crate) fn take_signal(&self) -> bool {
        !self.signalled.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn return_signal(&self) {
        self.signalled.store(false, Ordering::SeqCst);
    }
}
