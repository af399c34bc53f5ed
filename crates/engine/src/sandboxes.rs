//! Creation, stop and removal of sandboxes.

use crate::{
    adopt, containers,
    directories::remove_dir,
    keeper_events, keeper_process, oci_runtime,
    pod_files::PodFiles,
    records::{self, SandboxRecord, SandboxState, VERSION},
    rootfs,
    runtime_service::network_namespace,
    sandbox_container,
    state::{Inner, Sandbox},
    steps::{blocking, failed},
    stop,
};
use data_encoding::HEXLOWER;
use futures::future::join_all;
use jiff::Timestamp;
use keeper::{Client as Keeper, Events};
use runtime::{NamespaceMode, RuntimeError, SandboxConfig, SandboxId};
use std::{collections::BTreeSet, io, path::Path, sync::Arc, time::Duration};

/// Maximum time that a removal waits for containers that are being created.
const CREATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes an ID as containerd's: 256 random bits in hexadecimal digits.
pub(crate) fn new_id() -> String {
    HEXLOWER.encode(&rand::random::<[u8; 32]>())
}

/// Reservation of a sandbox's name during its creation.
struct Reservation<'a> {
    inner: &'a Inner,
    name: Option<(String, u32)>,
}

impl<'a> Reservation<'a> {
    fn new(inner: &'a Inner, config: &SandboxConfig) -> Result<Self, RuntimeError> {
        let name = (config.uid.clone(), config.attempt);
        if inner.names.lock().insert(name.clone()) {
            return Ok(Self { inner, name: Some(name) });
        }
        let SandboxConfig { name, namespace, attempt, .. } = config;
        Err(RuntimeError::AlreadyExists(format!("sandbox {attempt} of pod {namespace}/{name} exists already")))
    }

    fn keep(mut self) {
        self.name = None;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            self.inner.names.lock().remove(&name);
        }
    }
}

/// Creates a sandbox with its keeper, namespaces and network.
///
/// # Errors
/// When a step fails; what the earlier steps created is removed.
pub(crate) async fn run(inner: Arc<Inner>, config: SandboxConfig) -> Result<SandboxId, RuntimeError> {
    let handler = oci_runtime::handler(&inner, &config.runtime_handler)?;
    let has_container = handler.sandbox_container;
    if config.namespaces.network == NamespaceMode::Node && !handler.has_host_network() {
        let text =
            "hostNetwork: the runtime handler has a network stack of its own, unless its args have --network=host";
        return Err(RuntimeError::Unimplemented(text.to_owned()));
    }
    if config.namespaces.users.is_some() && !inner.user_namespaces(&config.runtime_handler).await {
        let text = "user namespaces (hostUsers: false) need Linux 5.19 and an OCI runtime with ID-mapped mounts";
        return Err(RuntimeError::Unimplemented(text.to_owned()));
    }
    let reservation = Reservation::new(&inner, &config)?;
    let id = new_id();
    let dir = inner.pods_dir().join(&id);
    let mut record = record(&id, &config, inner.handlers.resolve(&config.runtime_handler));
    record.container_cgroup = has_container.then(|| bundle::cgroup_path(config.cgroup_parent.as_deref(), &id));
    let created = create(&inner, &config, record, &dir).await;
    let sandbox = match created {
        Ok(sandbox) => Arc::new(sandbox),
        Err(error) => {
            adopt::remove_incomplete(&inner, &id, &dir).await;
            return Err(error);
        }
    };
    let events = match subscribe(&sandbox).await {
        Ok(events) => events,
        Err(error) => {
            adopt::remove_incomplete(&inner, &id, &dir).await;
            return Err(error);
        }
    };
    reservation.keep();
    inner.sandboxes.lock().insert(id.clone(), sandbox.clone());
    keeper_events::follow(&inner, &sandbox, events);
    Ok(SandboxId(id))
}

async fn subscribe(sandbox: &Sandbox) -> Result<Events, RuntimeError> {
    let keeper = sandbox.keeper()?;
    let events = keeper.subscribe().await.map_err(failed("follow the keeper of the sandbox"))?;
    // After the subscription: its end would be missed.
    sandbox_container::check_running(&sandbox.record(), &keeper).await?;
    Ok(events)
}

fn record(id: &str, config: &SandboxConfig, handler: &str) -> SandboxRecord {
    SandboxRecord {
        version: VERSION,
        id: id.to_owned(),
        uid: config.uid.clone(),
        name: config.name.clone(),
        namespace: config.namespace.clone(),
        attempt: config.attempt,
        created_at: Timestamp::now(),
        state: SandboxState::Creating,
        network: config.namespaces.network,
        pid: config.namespaces.pid,
        ipc: config.namespaces.ipc,
        log_directory: config.log_directory.clone(),
        // Not empty: another default handler of a later Podium must not delete what this one created.
        runtime_handler: handler.to_owned(),
        ips: Vec::new(),
        container_cgroup: None,
        systemd_cgroup: bundle::is_systemd_cgroup(config.cgroup_parent.as_deref()),
    }
}

async fn create(
    inner: &Arc<Inner>,
    config: &SandboxConfig,
    mut record: SandboxRecord,
    dir: &Path,
) -> Result<Sandbox, RuntimeError> {
    let keeper_config = oci_runtime::keeper_config(inner, config, &record)?;
    let (files, node_name) = (PodFiles::new(dir, record.ipc), inner.options.node_name.clone());
    let prepare = {
        let (record, config, dir) = (record.clone(), config.clone(), dir.to_owned());
        move || -> io::Result<()> {
            files::create_private_dir_all(&Sandbox::containers_dir(&dir))?;
            // Not synced: nothing of a sandbox is left after a power failure before it is reported.
            records::save_unsynced(&Sandbox::record_path(&dir), &record)?;
            files::replace_private_unsynced(&dir.join("keeper.json"), &serde_json::to_vec(&keeper_config)?)?;
            files.create(&config, &node_name)
        }
    };
    blocking(prepare).await.map_err(failed("prepare the sandbox's directory"))?;
    let program = &inner.options.keeper_program;
    let keeper = Keeper::spawn(program, dir).await.map_err(failed("start the keeper of the sandbox"))?;
    if record.network == NamespaceMode::Pod {
        let netns = network_namespace(&keeper)?;
        let attached = inner.options.network.attach(&record.id, &netns, config).await;
        // The words of containerd, which Events have.
        record.ips = attached.map_err(failed(format!("setup network for sandbox {:?}", record.id)))?;
    }
    sandbox_container::start(inner, config, &record, &keeper, dir).await?;
    record.state = SandboxState::Ready;
    let (path, saved) = (Sandbox::record_path(dir), record.clone());
    blocking(move || records::save(&path, &saved)).await.map_err(failed("record the sandbox"))?;
    Ok(Sandbox::new(dir.to_owned(), record, Some(keeper)))
}

/// Stops a sandbox: its containers are killed, its network is released, its keeper ends. Succeeds if it does not exist.
///
/// # Errors
/// When a step fails; the call can be repeated.
pub(crate) async fn stop(inner: Arc<Inner>, id: String) -> Result<(), RuntimeError> {
    let Ok(sandbox) = inner.sandbox(&id) else { return Ok(()) };
    let _changes = sandbox.changes.write().await;
    stop_containers(&inner, &sandbox).await?;
    let record = sandbox.record();
    if record.network == NamespaceMode::Pod {
        let detached = inner.options.network.detach(&id).await;
        detached.map_err(failed(format!("destroy network for sandbox {id:?}")))?;
    }
    if record.state != SandboxState::Stopped {
        let stopped = sandbox.clone();
        blocking(move || stopped.set_state(SandboxState::Stopped)).await.map_err(failed("record the sandbox"))?;
    }
    end_keeper(&inner, &sandbox).await
}

async fn stop_containers(inner: &Arc<Inner>, sandbox: &Sandbox) -> Result<(), RuntimeError> {
    let all = sandbox.all_containers();
    let ended = join_all(all.iter().map(|container| stop::kill(inner, sandbox, container))).await;
    ended.into_iter().collect()
}

/// Deletes the containers in the OCI runtime, and ends the keeper.
async fn end_keeper(inner: &Arc<Inner>, sandbox: &Sandbox) -> Result<(), RuntimeError> {
    let all = sandbox.all_containers();
    let deleted = join_all(all.iter().map(|container| containers::delete_process(inner, sandbox, container))).await;
    deleted.into_iter().collect::<Result<(), _>>()?;
    sandbox.begin_ending();
    let record = sandbox.record();
    match sandbox.keeper() {
        Ok(keeper) => {
            if record.has_container() {
                containers::delete_with_keeper(&keeper, &record.id).await?;
            }
            if let Err(error) = keeper.shutdown().await {
                tracing::warn!(sandbox = record.id, %error, "failed to shut down a keeper, killing it");
            }
        }
        // It may have been killed before it deleted the sandbox container.
        Err(_) => sandbox_container::delete(inner, sandbox).await?,
    }
    // Its containers are deleted. A keeper must not outlive its sandbox.
    keeper_process::kill_keeper(&sandbox.dir).await;
    sandbox.take_keeper();
    Ok(())
}

/// Removes a sandbox with its containers. Succeeds if it does not exist.
///
/// # Errors
/// When a step fails; the call can be repeated.
pub(crate) async fn remove(inner: Arc<Inner>, id: String) -> Result<(), RuntimeError> {
    stop(inner.clone(), id.clone()).await?;
    let Ok(sandbox) = inner.sandbox(&id) else { return Ok(()) };
    // The sandbox is stopped: no further creation begins.
    let mut creating = sandbox.creating.subscribe();
    if tokio::time::timeout(CREATION_TIMEOUT, creating.wait_for(BTreeSet::is_empty)).await.is_err() {
        let names: Vec<String> = sandbox.creating.borrow().iter().map(|(name, _)| name.clone()).collect();
        let text = format!("failed to remove sandbox {id}: containers are being created: {}", names.join(", "));
        return Err(RuntimeError::Failed(text));
    }
    let _changes = sandbox.changes.write().await;
    for container in sandbox.all_containers() {
        containers::remove_files(&inner, &sandbox, &container).await?;
    }
    let (files, dir, ipc) = (sandbox.files.clone(), sandbox.dir.clone(), sandbox.record().ipc);
    let removed = id.clone();
    blocking(move || {
        files.unmount(ipc)?;
        rootfs::remove_sandbox(&removed)?;
        oci_runtime::remove_state_dir(&removed)?;
        remove_dir(&dir)
    })
    .await
    .map_err(failed("remove the sandbox's directory"))?;
    let record = sandbox.record();
    inner.sandboxes.lock().remove(&id);
    inner.names.lock().remove(&(record.uid, record.attempt));
    Ok(())
}
