//! Podium: Kubernetes Pods in one binary. The command line, and the wiring of the components; nothing else.
#![forbid(unsafe_code)]

mod api_address;
mod certificates;
mod cli;
mod cluster;
mod cluster_services;
mod control_plane_runtime;
mod data_dir;
mod encryption_config;
mod explain;
mod image;
mod kubeconfig;
mod kubelet_config;
mod kubelet_pipe;
mod listening;
mod load_balancers;
mod node_event;
mod oom_score;
mod print;
mod run;
mod storage;
mod store_quota;
mod up;

use clap::Parser;
use cli::{Cli, Command};
use std::{io::IsTerminal, process::ExitCode};
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // What Podium writes is its own, the store's files, too. What others read gets its mode where it is written.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let filter = EnvFilter::try_from_env("PODIUM_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    // Two workers carry one node; more would each keep an arena of memory.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = runtime.map_err(Into::into).and_then(|runtime| {
        let result = runtime.block_on(command(cli.command));
        // What still runs must not keep the process.
        runtime.shutdown_timeout(std::time::Duration::from_secs(2));
        result
    });
    match result {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            print::error(format_args!("podium: {}", told(&error)));
            ExitCode::from(2)
        }
    }
}

/// An error and what it comes from, in one line. What the API server says is told as kubectl tells it.
fn told(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        if let Some(kube::Error::Api(status)) = cause.downcast_ref() {
            parts.push(format!("Error from server ({}): {}", status.reason, status.message));
            break;
        }
        let part = cause.to_string();
        // Some say themselves what they come from.
        if !parts.last().is_some_and(|last| last.ends_with(&part)) {
            parts.push(part);
        }
    }
    parts.join(": ")
}

async fn command(command: Command) -> anyhow::Result<i32> {
    // Before anything is made that could not be removed.
    if matches!(command, Command::Up(_) | Command::Down(_) | Command::Run(_)) && !nix::unistd::geteuid().is_root() {
        anyhow::bail!("it must be run as root, for it makes containers, networks and mounts");
    }
    if matches!(command, Command::Up(_) | Command::Run(_)) {
        oom_score::protect();
    }
    match command {
        Command::Up(args) => Box::pin(up::up(args)).await.map(|()| 0),
        Command::Down(args) => up::down(args).await.map(|()| 0),
        Command::Run(args) => Box::pin(run::run(args)).await,
        Command::Image(command) => image::run(command).await.map(|()| 0),
        Command::Explain(args) => explain::run(args).await.map(|()| 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn errors_are_told_in_one_line_and_those_of_the_server_as_kubectl_tells_them() {
        let status: kube::core::Status = serde_json::from_value(serde_json::json!({
            "status": "Failure", "message": "pods \"p\" not found", "reason": "NotFound", "code": 404,
        }))
        .unwrap();
        let error = Err::<(), _>(kube::Error::Api(Box::new(status))).context("pod.yaml").unwrap_err();
        assert_eq!(told(&error), "pod.yaml: Error from server (NotFound): pods \"p\" not found");
        let error = Err::<(), _>(std::io::Error::other("no room")).context("cannot write").unwrap_err();
        assert_eq!(told(&error), "cannot write: no room");
        let error = Err::<(), _>(std::io::Error::other("no room")).context("cannot write: no room").unwrap_err();
        assert_eq!(told(&error), "cannot write: no room");
    }
}
