//! `podium up` and `podium down`.

use crate::{
    cli::{DataDirArgs, UpArgs},
    cluster::Cluster,
    data_dir::DataDir,
};
use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use server::TokenFile;
use std::{
    path::Path,
    time::{Duration, Instant},
};
use tokio::signal::unix::{SignalKind, signal};

/// Starts a cluster and serves it until a signal comes. Containers go on without it.
pub(crate) async fn up(args: UpArgs) -> Result<()> {
    let start = Instant::now();
    let dir = DataDir::new(&args.data_dir.data_dir)?;
    let _lock = dir.lock_soon().await?;
    let kubeconfig = args.kubeconfig.clone().unwrap_or_else(|| dir.kubeconfig());
    // An old one would say that the API serves.
    let _ = std::fs::remove_file(&kubeconfig);
    let tokens = args.token_auth_file.as_deref().map(token_file).transpose()?;
    let mut stop = stop_signals()?;
    let cluster = tokio::select! {
        cluster = Cluster::start(&dir, args.bind, &kubeconfig, &args.node, tokens) => cluster?,
        () = stop.wait() => return Ok(()),
    };
    println!("API serves at {} after {} ms", cluster.url, start.elapsed().as_millis());
    tokio::select! {
        ready = cluster.wait_node_ready() => {
            ready?;
            println!("Node {} is Ready after {} ms. Now: export KUBECONFIG={}; kubectl get nodes", cluster.node, start.elapsed().as_millis(), kubeconfig.display());
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
            stop.wait().await;
        }
        () = stop.wait() => {}
    }
    let _ = std::fs::remove_file(&kubeconfig);
    cluster.stop().await;
    Ok(())
}

fn token_file(path: &Path) -> Result<TokenFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("--token-auth-file {}", path.display()))?;
    TokenFile::parse(&text).with_context(|| format!("--token-auth-file {}", path.display()))
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
        println!("Nothing runs in {}", dir.root().display());
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
    println!("Removed everything that ran in {}", dir.root().display());
    if !gone {
        println!("What else is in that directory was left there");
    }
    Ok(())
}

/// Containers, mounts, network and files. Gives whether the directory is gone, too.
pub(crate) async fn destroy(dir: &DataDir) -> Result<bool> {
    if let Some(endpoint) = dir.foreign_runtime() {
        let removed = runtime::containerd::remove_pods(&endpoint, dir.root()).await;
        removed.with_context(|| format!("cannot remove the Pods in the container runtime at {endpoint}"))?;
    }
    let conf = network::Network::prepare(network::Options::new(dir.root())).await.map(|n| n.conf_dir);
    runtime::containerd::destroy(dir.root(), &conf.unwrap_or_else(|_| dir.root().join("network"))).await?;
    kubelet::remove_cgroups(&dir.kubelet()).context("cannot remove the cgroups of its Pods")?;
    network::Network::destroy(dir.root()).await?;
    dir.remove()
}
