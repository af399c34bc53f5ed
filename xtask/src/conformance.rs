//! `cargo xtask conformance`: what Kubernetes documents about its API, asked of a server.

use crate::{server::Server, setup, step};
use anyhow::Result;
use std::{ffi::OsString, path::Path, process::Command};

/// Builds the suite and runs it against the server of this kubeconfig, or else against a Podium of its own.
///
/// # Errors
/// When a case fails, or when there is no server to ask.
pub(crate) fn run(kubeconfig: Option<&Path>, filter: Option<&str>) -> Result<()> {
    // All of it, as the tests do: another selection means other features of the dependencies, and to build those again.
    step::run("build", &mut step::cargo(&["build", "--workspace", "--all-targets"]))?;
    match kubeconfig {
        Some(kubeconfig) => ask(kubeconfig, filter),
        None => of_podium(filter, setup::path_with(&setup::run()?)),
    }
}

/// A full disk of this machine ends no Pods: what is asked is about the API.
const ANY_DISK: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
    evictionHard: {memory.available: 100Mi}\n";

/// Boots the Podium that was built, asks it, and removes everything.
///
/// # Errors
/// When it does not boot, or when a case fails.
pub(crate) fn of_podium(filter: Option<&str>, path: OsString) -> Result<()> {
    let server = Server::boot("conformance", path, Some(ANY_DISK))?;
    ask(&server.kubeconfig(), filter)
}

fn ask(kubeconfig: &Path, filter: Option<&str>) -> Result<()> {
    let mut command = Command::new(step::target_dir().join("debug/conformance"));
    command.arg("--kubeconfig").arg(kubeconfig).args(filter);
    step::run("what Kubernetes documents about its API", &mut command)
}
