//! Start of the engine: takes over the sandboxes of an earlier process, and removes what it left incomplete.

use crate::{
    Engine, EngineError, EngineOptions, apparmor, containers, destroy,
    directories::{complete_removals, remove_dir, subdirectories},
    events::Events,
    handlers::Handlers,
    host, keeper_events,
    keeper_process::kill_keeper,
    oci_runtime, oci_runtime_version,
    records::{self, ContainerRecord, SandboxRecord, SandboxState},
    rootfs, sandbox_container, start,
    state::{Container, Inner, Sandbox},
    steps::blocking,
    tasks::Tasks,
};
use futures::{StreamExt, TryStreamExt, stream};
use keeper::{Client as Keeper, Status};
use runtime::{ContainerState, NamespaceMode};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Maximum number of sandboxes that are taken over at the same time.
const CONCURRENCY: usize = 64;

impl Engine {
    /// Opens the engine of a data directory, and takes over its sandboxes: keepers that live are followed, containers of
    /// killed keepers are ended, incomplete sandboxes and containers are removed.
    ///
    /// # Errors
    /// When an OCI runtime is missing, or a record or a keeper is of another version of Podium, or a record is damaged.
    pub async fn open(options: EngineOptions) -> Result<Self, EngineError> {
        let handlers = Handlers::load(&options.data_dir, &options.default_handler)?;
        oci_runtime_version::check(&handlers);
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
            apparmor: apparmor::Profiles::new(),
            events: Events::new(),
            sandboxes: parking_lot::Mutex::default(),
            names: parking_lot::Mutex::default(),
            tasks: Tasks::default(),
        });
        // Beside the rest of the start: the first container waits for the profile and the features.
        let engine = inner.clone();
        tokio::spawn(async move { engine.apparmor.current().await });
        let engine = inner.clone();
        tokio::spawn(async move { engine.handlers.features("").await });
        let dir = inner.pods_dir();
        let failed = |source| EngineError::File { path: dir.clone(), source };
        files::create_private_dir_all(&dir).map_err(failed)?;
        destroy::record_image_store(&inner.options.data_dir, inner.options.images.root()).map_err(failed)?;
        complete_removals(&dir);
        let found = subdirectories(&dir).map_err(failed)?.into_iter().map(connect);
        let found: Vec<_> = stream::iter(found).buffer_unordered(CONCURRENCY).try_collect().await?;
        let adopted = found.into_iter().map(|found| adopt(&inner, found));
        stream::iter(adopted).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
        let known: Vec<String> = inner.sandboxes.lock().keys().cloned().collect();
        if let Err(error) = inner.options.network.retain(&known).await {
            tracing::warn!(%error, "failed to release addresses of earlier Pods");
        }
        release_unknown_images(&inner);
        Ok(Self(inner))
    }
}

/// A sandbox of an earlier process.
struct Found {
    id: String,
    dir: PathBuf,
    record: Option<SandboxRecord>,
    keeper: Option<Keeper>,
}

/// Connects to the keeper of a sandbox. Changes nothing, because the engine may refuse to start.
async fn connect((id, dir): (String, PathBuf)) -> Result<Found, EngineError> {
    let record = records::load::<SandboxRecord>(&Sandbox::record_path(&dir));
    let record = record.map_err(|source| EngineError::File { path: dir.clone(), source })?;
    let keeper = match record.as_ref().filter(|record| record.state == SandboxState::Ready) {
        None => None,
        Some(record) => match Keeper::connect(&dir).await {
            Ok(keeper) => Some(keeper),
            Err(source) if source.is_version() => {
                let pod = format!("{}/{}", record.namespace, record.name);
                return Err(EngineError::KeeperVersion { pod, sandbox: id, source });
            }
            Err(error) => {
                tracing::warn!(sandbox = id, %error, "failed to connect to the keeper");
                None
            }
        },
    };
    Ok(Found { id, dir, record, keeper })
}

async fn adopt(inner: &Arc<Inner>, Found { id, dir, record, keeper }: Found) -> Result<(), EngineError> {
    let Some(record) = record.filter(|record| record.state != SandboxState::Creating) else {
        tracing::info!(sandbox = id, "removing an incomplete sandbox");
        // `retain` releases its network: CNI plugins may need the API server, which is not started yet.
        kill_keeper(&dir).await;
        remove_files(inner, &id, &dir).await;
        return Ok(());
    };
    let (is_ready, name) = (record.state == SandboxState::Ready, (record.uid.clone(), record.attempt));
    let sandbox = Arc::new(Sandbox::new(dir.clone(), record, keeper.clone()));
    load_containers(inner, &sandbox).map_err(|source| EngineError::File { path: dir.clone(), source })?;
    inner.names.lock().insert(name);
    inner.sandboxes.lock().insert(id, sandbox.clone());
    let followed = match keeper {
        Some(keeper) => follow(inner, &sandbox, &keeper).await,
        None => false,
    };
    if followed {
        return Ok(());
    }
    // A keeper that does not answer would be a second parent; one of a stopped sandbox was about to end.
    kill_keeper(&dir).await;
    sandbox.take_keeper();
    if is_ready {
        keeper_events::keeper_lost(inner, &sandbox).await;
        return Ok(());
    }
    keeper_events::end_sandbox_container(inner, &sandbox).await;
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
    // After the subscription: the exit of an exec would be missed.
    sandbox.set_keeper(keeper.clone());
    let Ok(states) = keeper.list_containers().await else { return false };
    if !sandbox_container::is_running(&sandbox.record(), &states) {
        return false;
    }
    for container in sandbox.all_containers() {
        take_over(inner, sandbox, &container, states.iter().find(|state| state.id == container.id())).await;
    }
    keeper_events::follow(inner, sandbox, events);
    true
}

async fn take_over(
    inner: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    container: &Arc<Container>,
    state: Option<&keeper::ContainerState>,
) {
    container.set_pid(state.and_then(|state| state.pid));
    if let Some(exit) = state.and_then(|state| state.exit.as_ref()) {
        return keeper_events::container_exited(inner, sandbox, &container.id(), exit);
    }
    if container.state() == ContainerState::Exited && state.is_some() {
        // The earlier process ended between a failed start and the deletion.
        return containers::delete_in_background(inner, sandbox, container);
    }
    if container.state() != ContainerState::Running {
        return;
    }
    match state.map(|state| state.status) {
        Some(Status::Running | Status::Stopped) => {}
        // The earlier process ended during the start.
        Some(Status::Creating | Status::Created) => {
            inner.tasks.spawn(start::resume(inner.clone(), sandbox.clone(), container.clone()));
        }
        None => start::reset(container).await,
    }
}

fn load_containers(inner: &Inner, sandbox: &Sandbox) -> io::Result<()> {
    complete_removals(&Sandbox::containers_dir(&sandbox.dir));
    let sandbox_id = sandbox.record().id;
    for (id, dir) in subdirectories(&Sandbox::containers_dir(&sandbox.dir))? {
        if id == sandbox_id {
            continue;
        }
        let record: Option<ContainerRecord> = records::load(&Container::record_path(&dir))?;
        let Some(record) = record else {
            tracing::info!(container = id, "removing an incomplete container");
            if let Err(error) = containers::remove_container_files(inner, &sandbox_id, &id, &dir) {
                tracing::warn!(container = id, %error, "failed to remove an incomplete container");
            }
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
    remove_files(inner, id, dir).await;
}

async fn remove_files(inner: &Arc<Inner>, id: &str, dir: &Path) {
    if let Err(error) = sandbox_container::delete_in(inner, dir).await {
        // Its files are all that is known of its processes.
        return tracing::warn!(sandbox = id, %error, "failed to delete an incomplete sandbox's container");
    }
    let (engine, path, sandbox) = (inner.clone(), dir.to_owned(), id.to_owned());
    let removed = blocking(move || {
        for (id, container) in subdirectories(&Sandbox::containers_dir(&path)).unwrap_or_default() {
            containers::remove_container_files(&engine, &sandbox, &id, &container)?;
        }
        crate::pod_files::PodFiles::new(&path, NamespaceMode::Pod).unmount(NamespaceMode::Pod)?;
        rootfs::remove_sandbox(&sandbox)?;
        oci_runtime::remove_state_dir(&sandbox)?;
        remove_dir(&path)
    });
    if let Err(error) = removed.await {
        tracing::warn!(sandbox = id, %error, "failed to remove an incomplete sandbox");
    }
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
