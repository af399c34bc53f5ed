//! What is mounted into a container.

use super::sub_path::{self, MountOf};
use crate::{Shared, environment::Environment, hosts, os_error, pods::spec, volumes};
use k8s_openapi::api::core::v1::{Container, VolumeMount};
use lifecycle::Pod;
use runtime::{ImageMount, Mount, Propagation};
use std::{collections::BTreeMap, fs, io, os::unix::fs::PermissionsExt, path::PathBuf};

const HOSTS: &str = "/etc/hosts";

/// The volumes that the container asks for, the file for its last words, and its hosts file.
pub(super) fn of_container(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    attempt: u32,
    env: &Environment,
    images: &BTreeMap<String, ImageMount>,
) -> Result<Vec<Mount>, String> {
    let mut mounts = Vec::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        check_recursive(mount)?;
        if let Some(image) = images.get(&mount.name) {
            mounts.push(of_image(image, mount, env)?);
            continue;
        }
        let volume = volumes::source(shared, pod, &mount.name)?;
        let host_path = match sub_path_of(mount, env)? {
            Some(sub) => {
                let target = shared.paths.sub_path(pod.uid(), &mount.name, &container.name, index);
                let of = MountOf { volume: &mount.name, container: &container.name };
                sub_path::bind(&volume, &sub, &target, &of)?;
                target
            }
            None => volume,
        };
        mounts.push(Mount {
            host_path,
            image: None,
            container_path: mount.mount_path.clone(),
            readonly: mount.read_only == Some(true) || volumes::is_readonly(pod, &mount.name),
            propagation: match mount.mount_propagation.as_deref() {
                Some("HostToContainer") => Propagation::HostToContainer,
                Some("Bidirectional") => Propagation::Bidirectional,
                _ => Propagation::Private,
            },
        });
    }
    volumes::make_nested_sub_paths(shared, pod, container, &mounts)?;
    let own = |host_path, container_path: &str| Mount {
        host_path,
        image: None,
        container_path: container_path.to_owned(),
        readonly: false,
        propagation: Propagation::Private,
    };
    let message = termination_message(shared, pod, &container.name, attempt)
        .map_err(|e| format!("failed to create the file for the termination message: {}", os_error::words(&e)))?;
    mounts.push(own(message, container.termination_message_path.as_deref().unwrap_or("/dev/termination-log")));
    if !mounts.iter().any(|m| m.container_path == HOSTS) {
        let hosts = hosts_file(shared, pod);
        let hosts = hosts.map_err(|e| format!("failed to create the hosts file: {}", os_error::words(&e)))?;
        mounts.push(own(hosts, HOSTS));
    }
    Ok(mounts)
}

/// An image is the runtime's to mount, and nobody writes to it (KEP-4639).
fn of_image(image: &ImageMount, mount: &VolumeMount, env: &Environment) -> Result<Mount, String> {
    let sub_path = sub_path_of(mount, env)?.unwrap_or_default();
    Ok(Mount {
        host_path: PathBuf::new(),
        image: Some(ImageMount { sub_path, ..image.clone() }),
        container_path: mount.mount_path.clone(),
        readonly: true,
        propagation: Propagation::Private,
    })
}

/// Whether the mount can be had as it is asked for, in upstream's words (`resolveRecursiveReadOnly`).
fn check_recursive(mount: &VolumeMount) -> Result<(), String> {
    // The CRI of the runtimes that Podium knows has no such mounts; `IfPossible` takes what there is.
    if mount.recursive_read_only.as_deref() == Some("Enabled") {
        let name = &mount.name;
        return Err(format!(
            "volume {name:?} requested recursive read-only mode, but it is not supported by the runtime"
        ));
    }
    Ok(())
}

/// `subPath`, or `subPathExpr` with its variables replaced.
fn sub_path_of(mount: &VolumeMount, env: &Environment) -> Result<Option<String>, String> {
    let path = match mount.sub_path_expr.as_deref().filter(|e| !e.is_empty()) {
        Some(expression) => env.expand_path(expression)?,
        None => mount.sub_path.clone().unwrap_or_default(),
    };
    if path.starts_with('/') {
        return Err(format!("error SubPath `{path}` must not be an absolute path"));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(format!("unable to provision SubPath `{path}`: must not contain '..'"));
    }
    Ok(Some(path).filter(|p| !p.is_empty()))
}

/// A file of its own for each attempt: what an earlier one wrote stays its own.
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
        hosts::of_node(&crate::node_file::read_text(HOSTS)?, aliases)
    } else {
        let name = hosts::PodHostname::of(spec, pod.name(), pod.namespace(), &shared.options.config);
        hosts::own(pod.ips(), &name, aliases)
    };
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    Ok(path)
}
