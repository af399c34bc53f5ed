//! Annotations of a container's specification, which Kata Containers and gVisor read (containerd's
//! `internal/cri/annotations`).

use crate::ContainerContext;
use runtime::SandboxConfig;
use std::collections::HashMap;

/// Returns the annotations that tell an OCI runtime which Pod a container belongs to.
pub(crate) fn container_annotations(context: &ContainerContext<'_>) -> HashMap<String, String> {
    let config = context.config;
    let image = if config.image.is_empty() { &config.image_ref } else { &config.image };
    let mut found = pod_annotations("container", context.sandbox_id, context.sandbox);
    found.insert(key("container-name"), config.name.clone());
    found.insert(key("image-name"), image.clone());
    found
}

/// Returns the annotations that tell an OCI runtime that a container is the sandbox of a Pod.
pub(crate) fn sandbox_annotations(id: &str, sandbox: &SandboxConfig) -> HashMap<String, String> {
    let mut found = pod_annotations("sandbox", id, sandbox);
    found.insert(key("sandbox-log-directory"), sandbox.log_directory.to_string_lossy().into_owned());
    found
}

fn pod_annotations(container_type: &str, sandbox_id: &str, sandbox: &SandboxConfig) -> HashMap<String, String> {
    let pairs = [
        ("container-type", container_type),
        ("sandbox-id", sandbox_id),
        ("sandbox-name", &sandbox.name),
        ("sandbox-namespace", &sandbox.namespace),
        ("sandbox-uid", &sandbox.uid),
    ];
    pairs.into_iter().map(|(name, value)| (key(name), value.to_owned())).collect()
}

fn key(name: &str) -> String {
    format!("io.kubernetes.cri.{name}")
}
