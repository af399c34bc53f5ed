//! `cargo xtask conformance`: runs the conformance suite against a server.

use crate::{server::Server, setup, step};
use anyhow::Result;
use std::{ffi::OsString, path::Path, process::Command};

/// Builds the suite and runs it against the server of this kubeconfig, else against a temporary Podium.
///
/// # Errors
/// When a case fails, or when the server is not reachable.
pub(crate) fn run(kubeconfig: Option<&Path>, filter: Option<&str>) -> Result<()> {
    // The whole workspace, as for tests: another selection of packages changes the features of dependencies.
    step::run("build", &mut step::cargo(&["build", "--workspace", "--all-targets"]))?;
    match kubeconfig {
        Some(kubeconfig) => run_suite(kubeconfig, filter),
        None => of_podium(filter, setup::path_with(&setup::run()?)),
    }
}

/// Kubelet configuration without evictions for a full disk, for the cases are about the API.
const KUBELET_CONFIG: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
    evictionHard: {memory.available: 100Mi}\n";

/// Starts the built Podium, runs the suite, and removes everything.
///
/// # Errors
/// When Podium does not start, or when a case fails.
pub(crate) fn of_podium(filter: Option<&str>, path: OsString) -> Result<()> {
    let server = Server::boot("conformance", path, Some(KUBELET_CONFIG))?;
    run_suite(&server.kubeconfig(), filter)
}

fn run_suite(kubeconfig: &Path, filter: Option<&str>) -> Result<()> {
    let mut command = Command::new(step::target_dir().join("debug/conformance"));
    command.arg("--kubeconfig").arg(kubeconfig).args(filter);
    step::run("conformance suite", &mut command)
}
