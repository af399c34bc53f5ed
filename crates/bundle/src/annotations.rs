//! Annotations of a container's specification, which Kata Containers and gVisor read (containerd's
//! `internal/cri/annotations`).

use crate::ContainerContext;
use std::collections::HashMap;

/// Returns the annotations that tell an OCI runtime which Pod a container belongs to.
pub(crate) fn container_annotations(context: &ContainerContext<'_>) -> HashMap<String, String> {
    let (config, sandbox) = (context.config, context.sandbox);
    let image = if config.image.is_empty() { &config.image_ref } else { &config.image };
    let pairs: [(&str, &str); 7] = [
        ("container-type", "container"),
        ("container-name", &config.name),
        ("image-name", image),
        ("sandbox-id", context.sandbox_id),
        ("sandbox-name", &sandbox.name),
        ("sandbox-namespace", &sandbox.namespace),
        ("sandbox-uid", &sandbox.uid),
    ];
    pairs.into_iter().map(|(key, value)| (format!("io.kubernetes.cri.{key}"), value.to_owned())).collect()
}
