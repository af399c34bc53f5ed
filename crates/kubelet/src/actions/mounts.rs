//! Mounts of containers.

use super::{
    sandbox,
    sub_path::{self, MountOwner, SubPathError},
};
use crate::{
    Shared,
    env_vars::{EnvVars, MissingValueError},
    etc_hosts, os_error,
    pods::spec,
    volumes::{self, NestedMountPointError, VolumePathError},
};
use k8s_openapi::api::core::v1::{Container, VolumeMount};
use lifecycle::{Pod, resolve_recursive_read_only};
use runtime::{ImageMount, Mount, Propagation};
use std::{collections::BTreeMap, fs, io, os::unix::fs::PermissionsExt, path::PathBuf};

const ETC_HOSTS: &str = "/etc/hosts";

/// A mount of a container cannot be prepared, with upstream's message where it has one.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContainerMountError {
    #[error("{0}")]
    RecursiveReadOnly(String),
    #[error(transparent)]
    Volume(#[from] VolumePathError),
    #[error(transparent)]
    SubPathExpr(#[from] MissingValueError),
    #[error("error SubPath `{0}` must not be an absolute path")]
    AbsoluteSubPath(String),
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    BackstepSubPath(String),
    #[error(transparent)]
    SubPath(#[from] SubPathError),
    #[error(transparent)]
    NestedMountPoint(#[from] NestedMountPointError),
    #[error("failed to create the file for the termination message: {}", os_error::message(.0))]
    TerminationMessage(#[source] io::Error),
    #[error("failed to create the hosts file: {}", os_error::message(.0))]
    HostsFile(#[source] io::Error),
}

/// Returns the container's volume mounts, its termination message file, and its hosts file.
pub(super) fn container_mounts(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    attempt: u32,
    env: &EnvVars,
    images: &BTreeMap<String, ImageMount>,
    supports_recursive_read_only: bool,
) -> Result<Vec<Mount>, ContainerMountError> {
    let mut mounts = Vec::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let recursive_read_only = resolve_recursive_read_only(mount, supports_recursive_read_only)
            .map_err(ContainerMountError::RecursiveReadOnly)?;
        if let Some(image) = images.get(&mount.name) {
            mounts.push(Mount { recursive_read_only, ..image_volume_mount(image, mount, env)? });
            continue;
        }
        let volume = volumes::volume_path(shared, pod, &mount.name)?;
        let host_path = match resolve_sub_path(mount, env)? {
            Some(sub) => {
                let target = shared.paths.sub_path(pod.uid(), &mount.name, &container.name, index);
                let owner = MountOwner { volume: &mount.name, container: &container.name };
                sub_path::bind(&volume, &sub, &target, &owner)?;
                target
            }
            None => volume,
        };
        mounts.push(Mount {
            host_path,
            image: None,
            container_path: mount.mount_path.clone(),
            readonly: mount.read_only == Some(true) || volumes::is_readonly(pod, &mount.name),
            recursive_read_only,
            propagation: match mount.mount_propagation.as_deref() {
                Some("HostToContainer") => Propagation::HostToContainer,
                Some("Bidirectional") => Propagation::Bidirectional,
                _ => Propagation::Private,
            },
        });
    }
    volumes::create_nested_sub_paths(shared, pod, container, &mounts)?;
    let writable_mount = |host_path, container_path: &str| Mount {
        host_path,
        image: None,
        container_path: container_path.to_owned(),
        readonly: false,
        recursive_read_only: false,
        propagation: Propagation::Private,
    };
    let message =
        termination_message(shared, pod, &container.name, attempt).map_err(ContainerMountError::TerminationMessage)?;
    mounts
        .push(writable_mount(message, container.termination_message_path.as_deref().unwrap_or("/dev/termination-log")));
    if !mounts.iter().any(|m| m.container_path == ETC_HOSTS) {
        let hosts = hosts_file(shared, pod).map_err(ContainerMountError::HostsFile)?;
        mounts.push(writable_mount(hosts, ETC_HOSTS));
    }
    Ok(mounts)
}

/// Returns the mount of an image volume: the runtime mounts it read-only (KEP-4639).
fn image_volume_mount(image: &ImageMount, mount: &VolumeMount, env: &EnvVars) -> Result<Mount, ContainerMountError> {
    let sub_path = resolve_sub_path(mount, env)?.unwrap_or_default();
    Ok(Mount {
        host_path: PathBuf::new(),
        image: Some(ImageMount { sub_path, ..image.clone() }),
        container_path: mount.mount_path.clone(),
        readonly: true,
        recursive_read_only: false,
        propagation: Propagation::Private,
    })
}

/// Returns whether the runtime handler of a Pod supports recursive read-only mounts, if the container has any (upstream's
/// `runtimeClassSupportsRecursiveReadOnlyMounts`).
pub(super) async fn supports_recursive_read_only(shared: &Shared, pod: &Pod, container: &Container) -> bool {
    let is_requested =
        |mount: &VolumeMount| mount.recursive_read_only.as_deref().is_some_and(|mode| mode != "Disabled");
    if !container.volume_mounts.iter().flatten().any(is_requested) {
        return false;
    }
    let handler = match sandbox::runtime_handler(shared, pod).await {
        Ok(handler) => handler,
        Err(error) => {
            tracing::warn!(pod = pod.name(), %error, "failed to look up the runtime handler");
            return false;
        }
    };
    match shared.runtime.status().await {
        Ok(status) => status.handlers.iter().any(|known| known.name == handler && known.recursive_read_only_mounts),
        Err(error) => {
            tracing::warn!(pod = pod.name(), %error, "failed to query the features of the runtime");
            false
        }
    }
}

/// Returns `subPath`, or the expanded `subPathExpr`.
fn resolve_sub_path(mount: &VolumeMount, env: &EnvVars) -> Result<Option<String>, ContainerMountError> {
    let path = match mount.sub_path_expr.as_deref().filter(|e| !e.is_empty()) {
        Some(expression) => env.expand_path(expression)?,
        None => mount.sub_path.clone().unwrap_or_default(),
    };
    if path.starts_with('/') {
        return Err(ContainerMountError::AbsoluteSubPath(path));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(ContainerMountError::BackstepSubPath(path));
    }
    Ok(Some(path).filter(|p| !p.is_empty()))
}

/// Creates the termination message file; each attempt has its own.
fn termination_message(shared: &Shared, pod: &Pod, container: &str, attempt: u32) -> io::Result<PathBuf> {
    let path = shared.paths.termination_message(pod.uid(), container, attempt);
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(&path, "")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    Ok(path)
}

fn hosts_file(shared: &Shared, pod: &Pod) -> io::Result<PathBuf> {
    let (spec, path) = (spec(pod), shared.paths.hosts_file(pod.uid()));
    let aliases = spec.host_aliases.as_deref().unwrap_or_default();
    let text = if spec.host_network == Some(true) {
        etc_hosts::node_hosts_file(&crate::host_file::read_text(ETC_HOSTS)?, aliases)
    } else {
        let name = etc_hosts::PodHostname::new(spec, pod.name(), pod.namespace(), &shared.options.config);
        etc_hosts::managed_hosts_file(pod.ips(), &name, aliases)
    };
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    Ok(path)
}
