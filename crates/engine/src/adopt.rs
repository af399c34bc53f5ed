//! Start of the engine: takes over the sandboxes of an earlier process, and removes what it left incomplete.

use crate::{
    Engine, EngineError, EngineOptions,
    cgroup::Cgroup,
    containers, destroy,
    events::Events,
    handlers::Handlers,
    host, keeper_events, oci_runtime,
    records::{self, ContainerRecord, SandboxRecord, SandboxState},
    sandboxes::{REMOVED, blocking},
    state::{Container, Inner, Sandbox, pods_dir},
};
use keeper::{Client as Keeper, Status};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use runtime::NamespaceMode;
use serde::Deserialize;
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Maximum time until a killed keeper has ended.
const KEEPER_EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// `keeper.pid`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeeperPid {
    pid: i32,
    start_time: u64,
}

impl Engine {
    /// Opens the engine of a data directory, and takes over its sandboxes: keepers that live are followed, containers of
    /// killed keepers are ended, incomplete sandboxes and containers are removed.
    ///
    /// # Errors
    /// When an OCI runtime is missing, or a record is of another version of Podium or damaged.
    pub async fn open(options: EngineOptions) -> Result<Self, EngineError> {
        let handlers = Handlers::load(&options.data_dir, &options.default_handler)?;
        let host = host::host_info(&options.node_name);
        let images = options.images.of_cluster(&options.data_dir).map_err(|error| EngineError::File {
            path: options.images.root().to_owned(),
            source: io::Error::other(error),
        })?;
        let options = EngineOptions { images, ..options };
        let inner = Arc::new(Inner {
            options,
            handlers,
            host,
            events: Events::new(),
            sandboxes: parking_lot::Mutex::default(),
            names: parking_lot::Mutex::default(),
        });
        let dir = inner.pods_dir();
        let failed = |source| EngineError::File { path: dir.clone(), source };
        files::create_private_dir_all(&dir).map_err(failed)?;
        destroy::record_image_store(&inner.options.data_dir, inner.options.images.root()).map_err(failed)?;
        for (id, path) in subdirectories(&dir).map_err(failed)? {
            adopt(&inner, &id, &path).await.map_err(|source| EngineError::File { path, source })?;
        }
        let known: Vec<String> = inner.sandboxes.lock().keys().cloned().collect();
        if let Err(error) = inner.options.network.retain(&known).await {
            tracing::warn!(%error, "failed to release addresses of earlier Pods");
        }
        release_unknown_images(&inner);
        Ok(Self(inner))
    }
}

/// Returns the subdirectories by name, after removing those whose removal was interrupted.
fn subdirectories(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(REMOVED) {
            if let Err(error) = fs::remove_dir_all(entry.path()) {
                tracing::warn!(path = %entry.path().display(), %error, "failed to complete a removal");
            }
        } else if entry.file_type()?.is_dir() {
            found.push((name, entry.path()));
        }
    }
    Ok(found)
}

async fn adopt(inner: &Arc<Inner>, id: &str, dir: &Path) -> io::Result<()> {
    let record: Option<SandboxRecord> = records::load(&Sandbox::record_path(dir))?;
    let Some(record) = record.filter(|record| record.state != SandboxState::Creating) else {
        tracing::info!(sandbox = id, "removing an incomplete sandbox");
        remove_incomplete(inner, id, dir).await;
        return Ok(());
    };
    let keeper = match record.state {
        SandboxState::Ready => Keeper::connect(dir).await.inspect_err(|error| {
            tracing::warn!(sandbox = id, %error, "failed to connect to the keeper");
        }),
        SandboxState::Stopped | SandboxState::Creating => Err(keeper::Error::Disconnected),
    };
    let keeper = keeper.ok();
    let (is_ready, name) = (record.state == SandboxState::Ready, (record.uid.clone(), record.attempt));
    let sandbox = Arc::new(Sandbox::new(dir.to_owned(), record, keeper.clone()));
    load_containers(inner, &sandbox)?;
    inner.names.lock().insert(name);
    inner.sandboxes.lock().insert(id.to_owned(), sandbox.clone());
    let followed = match keeper {
        Some(keeper) => follow(inner, &sandbox, &keeper).await,
        None => false,
    };
    if followed {
        return Ok(());
    }
    // A keeper that does not answer would be a second parent; one of a stopped sandbox was about to end.
    kill_keeper(dir).await;
    sandbox.take_keeper();
    if is_ready {
        keeper_events::keeper_lost(inner, &sandbox).await;
        return Ok(());
    }
    for container in sandbox.all_containers() {
        if let Err(error) = keeper_events::end_unobserved(inner, &sandbox, &container).await {
            tracing::error!(container = container.id(), %error, "failed to end a container without a keeper");
        }
    }
    Ok(())
}

/// Subscribes to a keeper, and takes over the states of its containers. Returns whether it answered.
pub(crate) async fn follow(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>, keeper: &Keeper) -> bool {
    let Ok(events) = keeper.subscribe().await else { return false };
    let Ok(states) = keeper.list_containers().await else { return false };
    for container in sandbox.all_containers() {
        let state = states.iter().find(|state| state.id == container.id());
        if let Some(exit) = state.and_then(|state| state.exit.as_ref()) {
            container.set_exit(keeper_events::exit(exit));
        }
        container.set_pid(state.and_then(|state| state.pid));
        let runs = state.is_some_and(|state| matches!(state.status, Status::Running | Status::Stopped));
        let was_requested = container.record().started_at.is_some() && container.exit().is_none();
        if was_requested && !runs {
            // The earlier process was killed during the start: the container may have run, and must not run again.
            if let Err(error) = keeper_events::end_unobserved(inner, sandbox, &container).await {
                tracing::error!(container = container.id(), %error, "failed to end an incomplete container");
            }
        }
    }
    keeper_events::follow(inner, sandbox, events);
    true
}

fn load_containers(inner: &Inner, sandbox: &Sandbox) -> io::Result<()> {
    for (id, dir) in subdirectories(&Sandbox::containers_dir(&sandbox.dir))? {
        let record: Option<ContainerRecord> = records::load(&Container::record_path(&dir))?;
        let Some(record) = record else {
            tracing::info!(container = id, "removing an incomplete container");
            containers::remove_container_files(inner, &id, &dir)?;
            continue;
        };
        let exit = record.exit.clone().or_else(|| keeper_events::read_exit(&dir).as_ref().map(keeper_events::exit));
        sandbox.containers.lock().insert(id, Arc::new(Container::new(dir, record, exit)));
    }
    Ok(())
}

/// Removes a sandbox that was never reported. Errors are logged: the next start tries again.
pub(crate) async fn remove_incomplete(inner: &Arc<Inner>, id: &str, dir: &Path) {
    kill_keeper(dir).await;
    if let Err(error) = inner.options.network.detach(id).await {
        tracing::warn!(sandbox = id, %error, "failed to release the network of an incomplete sandbox");
    }
    let (engine, path, oci_state) = (inner.clone(), dir.to_owned(), oci_runtime::state_dir(id));
    let removed = blocking(move || {
        for (id, container) in subdirectories(&Sandbox::containers_dir(&path)).unwrap_or_default() {
            containers::remove_container_files(&engine, &id, &container)?;
        }
        crate::pod_files::PodFiles::new(&path, NamespaceMode::Pod).unmount(NamespaceMode::Pod)?;
        crate::sandboxes::remove_dir(&oci_state)?;
        crate::sandboxes::remove_dir(&path)
    });
    if let Err(error) = removed.await {
        tracing::warn!(sandbox = id, %error, "failed to remove an incomplete sandbox");
    }
}

/// Kills the keeper of a sandbox, if it lives.
pub(crate) async fn kill_keeper(dir: &Path) {
    let Some(keeper) = read_keeper_pid(dir) else { return };
    let deadline = tokio::time::Instant::now() + KEEPER_EXIT_TIMEOUT;
    while start_time(keeper.pid) == Some(keeper.start_time) && tokio::time::Instant::now() < deadline {
        let _ = kill(Pid::from_raw(keeper.pid), Signal::SIGKILL);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn read_keeper_pid(dir: &Path) -> Option<KeeperPid> {
    let text = crate::pod_files::read_bounded(&dir.join("keeper.pid"), 1 << 12).ok()?;
    let found: KeeperPid = serde_json::from_slice(&text).ok()?;
    (found.pid > 1).then_some(found)
}

/// Returns the start time of a process in clock ticks since boot; `None` if it has ended.
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Releases uses of images by containers that do not exist.
fn release_unknown_images(inner: &Inner) {
    let uses = match inner.options.images.uses(&inner.options.data_dir) {
        Ok(uses) => uses,
        Err(error) => return tracing::warn!(%error, "failed to list the uses of images"),
    };
    for (user, _) in uses {
        let id = user.split('-').next().unwrap_or_default();
        if inner.container(id).is_err()
            && let Err(error) = inner.options.images.release(&inner.options.data_dir, &user)
        {
            tracing::warn!(user, %error, "failed to release an image");
        }
    }
}

/// Kills the processes of all containers below a data directory, whose engine does not run.
pub(crate) async fn kill_containers(data_dir: &Path) -> io::Result<()> {
    for (_, dir) in subdirectories(&pods_dir(data_dir)).unwrap_or_default() {
        for (_, container) in subdirectories(&Sandbox::containers_dir(&dir)).unwrap_or_default() {
            let record: Option<ContainerRecord> = records::load(&Container::record_path(&container))?;
            if let Some(cgroup) = record.and_then(|record| Cgroup::find(&record.cgroup)) {
                cgroup.kill_all().await?;
            }
        }
    }
    Ok(())
}
