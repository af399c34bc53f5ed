//! The `up` and `down` subcommands.

use crate::{
    api_address::ApiAddress,
    cli::{AuditArgs, DataDirArgs, UpArgs},
    cluster::{ApiServerOptions, Cluster},
    data_dir::{DataDir, Lock, RecordedRuntime},
    format_error, kubeconfig,
    print::print_line,
};
use anyhow::{Context, Result, bail};
use audit::{AuditLog, AuditPolicy, AuditRotation};
use auth::tokens::TokenFile;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::signal::unix::{SignalKind, signal};

/// Starts a cluster and runs it until SIGTERM or SIGINT. Containers keep running after that.
pub(crate) async fn up(args: UpArgs) -> Result<()> {
    let start = Instant::now();
    let dir = DataDir::new(&args.data_dir.data_dir)?;
    let lock = dir.lock_with_retry().await?;
    let result = serve(&dir, args, start).await;
    if result.is_err()
        && dir.is_failed_first_start(&lock)
        && let Err(error) = remove_failed_start(&dir, lock).await
    {
        tracing::warn!(error = %format_error(&error), "failed to remove the files of the failed start");
    }
    result
}

/// Removes the files of a failed start, in a data directory that had not been used before.
async fn remove_failed_start(dir: &DataDir, lock: Lock) -> Result<()> {
    if dir.has_runtime_or_network() {
        remove_runtime_state(dir).await?;
    }
    dir.remove_created(lock)
}

async fn serve(dir: &DataDir, args: UpArgs, start: Instant) -> Result<()> {
    let kubeconfig = args.kubeconfig.clone().unwrap_or_else(|| dir.kubeconfig());
    // A stale kubeconfig would look as if the API server were ready.
    kubeconfig::clear(args.kubeconfig.as_deref(), &dir.kubeconfig())?;
    let tokens = args.token_auth_file.as_deref().map(read_token_file).transpose()?;
    let inflight = args.max_requests_inflight.saturating_add(args.max_mutating_requests_inflight);
    if inflight == 0 {
        // Upstream: `ServerRunOptions.Validate`.
        bail!("--max-requests-inflight and --max-mutating-requests-inflight must add up to something positive");
    }
    let options = ApiServerOptions {
        tokens: tokens.unwrap_or_default(),
        audit: open_audit_log(&args.audit)?,
        token_lifetime: args.token.lifetime()?,
        max_inflight: Some(inflight),
        temporary: false,
    };
    let api = ApiAddress::new(args.bind, &args.api);
    let mut stop = stop_signals()?;
    let cluster = tokio::select! {
        cluster = Cluster::start(dir, &api, &kubeconfig, &args.node, options) => cluster?,
        () = stop.wait() => return Ok(()),
    };
    print_line!("API serves at {} after {} ms", cluster.url, start.elapsed().as_millis());
    tokio::select! {
        () = cluster.wait_node_ready() => {
            print_line!("Node {} is Ready after {} ms. Now: export KUBECONFIG={}; kubectl get nodes", cluster.node, start.elapsed().as_millis(), kubeconfig.display());
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
            stop.wait().await;
        }
        () = stop.wait() => {}
    }
    if let Err(error) = kubeconfig::clear(args.kubeconfig.as_deref(), &dir.kubeconfig()) {
        tracing::warn!(error = %format_error(&error), "failed to remove the kubeconfig");
    }
    cluster.stop().await;
    Ok(())
}

fn read_token_file(path: &Path) -> Result<TokenFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("--token-auth-file {}", path.display()))?;
    TokenFile::parse(&text).with_context(|| format!("--token-auth-file {}", path.display()))
}

fn open_audit_log(args: &AuditArgs) -> Result<Option<Arc<AuditLog>>> {
    let (Some(policy), Some(log)) = (&args.audit_policy_file, &args.audit_log_path) else { return Ok(None) };
    let context = || format!("--audit-policy-file {}", policy.display());
    let policy = std::fs::read_to_string(policy).with_context(context)?;
    let policy = AuditPolicy::parse(&policy).with_context(context)?;
    let (max_size, max_backup, max_age) = (args.audit_log_maxsize, args.audit_log_maxbackup, args.audit_log_maxage);
    let rotation = AuditRotation { max_size, max_backup, max_age };
    let opened = AuditLog::open(policy, log, rotation, files::append_private);
    Ok(Some(Arc::new(opened.with_context(|| format!("--audit-log-path {}", log.display()))?)))
}

/// Handlers of SIGTERM and SIGINT.
pub(crate) struct StopSignals(tokio::signal::unix::Signal, tokio::signal::unix::Signal);

pub(crate) fn stop_signals() -> Result<StopSignals> {
    Ok(StopSignals(signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
}

impl StopSignals {
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

/// Deletes the cluster of a data directory, and the contents of the directory.
pub(crate) async fn down(args: DataDirArgs) -> Result<()> {
    let dir = DataDir::new(&args.data_dir)?;
    if !dir.root().exists() {
        print_line!("No cluster in {}", dir.root().display());
        return Ok(());
    }
    if !dir.was_used() {
        bail!("{} is not a data directory of Podium: nothing was removed", dir.root().display());
    }
    if let Some(pid) = dir.holder() {
        kill(Pid::from_raw(pid), Signal::SIGTERM).with_context(|| format!("failed to stop Podium, process {pid}"))?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while dir.holder().is_some() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let lock = dir.lock()?;
    let is_removed = destroy(&dir).await?;
    drop(lock);
    print_line!("Deleted the cluster in {}", dir.root().display());
    if !is_removed {
        print_line!("Kept other files in that directory");
    }
    Ok(())
}

/// Removes containers, mounts, network and files. Returns whether the directory itself was removed.
pub(crate) async fn destroy(dir: &DataDir) -> Result<bool> {
    remove_runtime_state(dir).await?;
    dir.remove()
}

/// Removes Pods, mounts, cgroups and network of the data directory.
async fn remove_runtime_state(dir: &DataDir) -> Result<()> {
    if let RecordedRuntime::External(endpoint) = dir.recorded_runtime() {
        let removed = runtime::remove_pods(&endpoint, dir.root()).await;
        removed.with_context(|| {
            let file = dir.runtime_file();
            format!(
                "failed to remove the Pods in the container runtime at {endpoint} (if that runtime no longer exists, remove {})",
                file.display()
            )
        })?;
    }
    engine::destroy(dir.root()).await.context("failed to remove the Pods of the engine")?;
    cni::destroy(dir.root()).await?;
    files::mounts::unmount_below(dir.root())?;
    let cgroups = kubelet::remove_cgroups(&dir.kubelet()).await.context("failed to remove the cgroups of Pods");
    // Also with cgroups that stay.
    network::Network::destroy(dir.root()).await?;
    cgroups
}
