//! Podium runs Kubernetes Pods in one binary. This crate has the command line and the wiring of the components.
#![forbid(unsafe_code)]

mod api_address;
mod certificates;
mod cgroup_driver;
mod cli;
mod cluster;
mod cluster_services;
mod container_runtime;
mod control_plane_runtime;
mod data_dir;
mod encryption_config;
mod explain;
mod image;
mod image_archives;
mod kubeconfig;
mod kubelet_config;
mod kubelet_dialer;
mod listen_options;
mod load_balancer_pool;
mod local_volumes;
mod logging;
mod node_event;
mod oom_score;
mod pod_network;
mod print;
mod run;
mod store_quota;
mod up;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // First: the keeper of a Pod must have one thread.
    if let Some(code) = keeper::run_if_named() {
        return code;
    }
    let cli = Cli::parse();
    // Files are private by default, those of the store included. Files for other users get their mode where they are created.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    match logging::init(cli.log_format).and_then(|()| run_to_completion(cli.command)) {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            print::error(format_args!("podium: {}", format_error(&error)));
            ExitCode::from(2)
        }
    }
}

fn run_to_completion(command: Command) -> anyhow::Result<i32> {
    // Two workers suffice for one node; each further worker would keep its own allocator arena.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(run_command(command));
    // Blocking tasks must not keep the process alive.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    result
}

/// Formats an error and its causes in one line. An API server's Status is formatted as by kubectl.
fn format_error(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        if let Some(kube::Error::Api(status)) = cause.downcast_ref() {
            parts.push(format!("Error from server ({}): {}", status.reason, status.message));
            break;
        }
        let part = cause.to_string();
        // Some errors include their source in their own text.
        if !parts.last().is_some_and(|last| last.ends_with(&part)) {
            parts.push(part);
        }
    }
    parts.join(": ")
}

async fn run_command(command: Command) -> anyhow::Result<i32> {
    // Checked first: an unprivileged process could not remove its files.
    if matches!(command, Command::Up(_) | Command::Down(_) | Command::Run(_)) && !nix::unistd::geteuid().is_root() {
        anyhow::bail!("must be run as root, because it creates containers, networks and mounts");
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
    fn errors_are_one_line_and_status_errors_match_kubectl() {
        let status: kube::core::Status = serde_json::from_value(serde_json::json!({
            "status": "Failure", "message": "pods \"p\" not found", "reason": "NotFound", "code": 404,
        }))
        .unwrap();
        let error = Err::<(), _>(kube::Error::Api(Box::new(status))).context("pod.yaml").unwrap_err();
        assert_eq!(format_error(&error), "pod.yaml: Error from server (NotFound): pods \"p\" not found");
        let error = Err::<(), _>(std::io::Error::other("no space")).context("failed to write").unwrap_err();
        assert_eq!(format_error(&error), "failed to write: no space");
        let error = Err::<(), _>(std::io::Error::other("no space")).context("failed to write: no space").unwrap_err();
        assert_eq!(format_error(&error), "failed to write: no space");
    }
}
