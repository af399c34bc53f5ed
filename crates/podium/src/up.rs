//! `podium up` and `podium down`.

use crate::{
    api_address::ApiAddress,
    cli::{AuditArgs, DataDirArgs, UpArgs},
    cluster::{Access, Cluster},
    data_dir::{DataDir, Lock},
    kubeconfig,
    print::say,
    told,
};
use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use server::{AuditLog, AuditPolicy, AuditRotation, TokenFile};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::signal::unix::{SignalKind, signal};

/// Starts a cluster and serves it until a signal comes. Containers go on without it.
pub(crate) async fn up(args: UpArgs) -> Result<()> {
    let start = Instant::now();
    let dir = DataDir::new(&args.data_dir.data_dir)?;
    let lock = dir.lock_soon().await?;
    let done = serve(&dir, args, start).await;
    if done.is_err()
        && dir.is_in_vain(&lock)
        && let Err(error) = leave_nothing(&dir, lock).await
    {
        tracing::warn!("what a start made of which nothing came is left: {}", told(&error));
    }
    done
}

/// What a start made before there was a cluster goes with it, in a directory that no Podium had used before.
async fn leave_nothing(dir: &DataDir, lock: Lock) -> Result<()> {
    if dir.has_begun() {
        end(dir).await?;
    }
    dir.leave(lock)
}

async fn serve(dir: &DataDir, args: UpArgs, start: Instant) -> Result<()> {
    let kubeconfig = args.kubeconfig.clone().unwrap_or_else(|| dir.kubeconfig());
    // An old one would say that the API serves.
    kubeconfig::clear(args.kubeconfig.as_deref(), &dir.kubeconfig())?;
    let tokens = args.token_auth_file.as_deref().map(token_file).transpose()?;
    let inflight = args.max_requests_inflight.saturating_add(args.max_mutating_requests_inflight);
    if inflight == 0 {
        // As `ServerRunOptions.Validate` has it.
        bail!("--max-requests-inflight and --max-mutating-requests-inflight must add up to something positive");
    }
    let access = Access {
        tokens: tokens.unwrap_or_default(),
        audit: audit_log(&args.audit)?,
        token_lifetime: args.token.lifetime().map_err(anyhow::Error::msg)?,
        inflight: Some(inflight),
    };
    let api = ApiAddress::new(args.bind, &args.api);
    let mut stop = stop_signals()?;
    let cluster = tokio::select! {
        cluster = Cluster::start(dir, &api, &kubeconfig, &args.node, access) => cluster?,
        () = stop.wait() => return Ok(()),
    };
    say!("API serves at {} after {} ms", cluster.url, start.elapsed().as_millis());
    tokio::select! {
        ready = cluster.wait_node_ready() => {
            ready?;
            say!("Node {} is Ready after {} ms. Now: export KUBECONFIG={}; kubectl get nodes", cluster.node, start.elapsed().as_millis(), kubeconfig.display());
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
            stop.wait().await;
        }
        () = stop.wait() => {}
    }
    if let Err(error) = kubeconfig::clear(args.kubeconfig.as_deref(), &dir.kubeconfig()) {
        tracing::warn!("a kubeconfig is left: {}", told(&error));
    }
    cluster.stop().await;
    Ok(())
}

fn token_file(path: &Path) -> Result<TokenFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("--token-auth-file {}", path.display()))?;
    TokenFile::parse(&text).with_context(|| format!("--token-auth-file {}", path.display()))
}

fn audit_log(args: &AuditArgs) -> Result<Option<Arc<AuditLog>>> {
    let (Some(policy), Some(log)) = (&args.audit_policy_file, &args.audit_log_path) else { return Ok(None) };
    let what = || format!("--audit-policy-file {}", policy.display());
    let policy = std::fs::read_to_string(policy).with_context(what)?;
    let policy = AuditPolicy::parse(&policy).with_context(what)?;
    let (max_size, max_backup, max_age) = (args.audit_log_maxsize, args.audit_log_maxbackup, args.audit_log_maxage);
    let rotation = AuditRotation { max_size, max_backup, max_age };
    let opened = AuditLog::open(policy, log, rotation, files::append_private);
    Ok(Some(Arc::new(opened.with_context(|| format!("--audit-log-path {}", log.display()))?)))
}

/// SIGTERM and SIGINT.
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

/// Removes everything that ran in a data directory, and what the directory holds.
pub(crate) async fn down(args: DataDirArgs) -> Result<()> {
    let dir = DataDir::new(&args.data_dir)?;
    if !dir.root().exists() {
        say!("Nothing runs in {}", dir.root().display());
        return Ok(());
    }
    if !dir.was_used() {
        bail!("{} is no data directory of Podium: nothing was removed", dir.root().display());
    }
    if let Some(pid) = dir.holder() {
        kill(Pid::from_raw(pid), Signal::SIGTERM).with_context(|| format!("cannot stop Podium, process {pid}"))?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while dir.holder().is_some() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let lock = dir.lock()?;
    let gone = destroy(&dir).await?;
    drop(lock);
    say!("Removed everything that ran in {}", dir.root().display());
    if !gone {
        say!("What else is in that directory was left there");
    }
    Ok(())
}

/// Containers, mounts, network and files. Gives whether the directory is gone, too.
pub(crate) async fn destroy(dir: &DataDir) -> Result<bool> {
    end(dir).await?;
    dir.remove()
}

/// What runs, and what the kernel has of it.
async fn end(dir: &DataDir) -> Result<()> {
    if let Some(endpoint) = dir.foreign_runtime() {
        let removed = runtime::containerd::remove_pods(&endpoint, dir.root()).await;
        removed.with_context(|| {
            let noted = dir.runtime_file();
            format!(
                "cannot remove the Pods in the container runtime at {endpoint} (if it is gone for good, remove {})",
                noted.display()
            )
        })?;
    }
    let conf = network::Network::prepare(network::Options::new(dir.root())).await.map(|n| n.conf_dir);
    runtime::containerd::destroy(dir.root(), &conf.unwrap_or_else(|_| dir.root().join("network"))).await?;
    kubelet::remove_cgroups(&dir.kubelet()).await.context("cannot remove the cgroups of its Pods")?;
    network::Network::destroy(dir.root()).await?;
    Ok(())
}
