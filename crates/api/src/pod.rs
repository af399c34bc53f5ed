//! Helpers for Pods that several components share.

use crate::static_pod::{is_mirror, is_static};
use k8s_openapi::api::core::v1::{Container, EphemeralContainer, ImageVolumeSource, Pod, PodResourceClaim, PodSpec};

/// Default of `terminationGracePeriodSeconds`.
pub const DEFAULT_GRACE_PERIOD_SECONDS: i64 = 30;

/// Kind of a container, by its list in the spec and its restart policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContainerKind {
    /// An init container, which runs to completion before the app containers start.
    Init,
    /// A sidecar: an init container with `restartPolicy: Always` (KEP-753).
    Sidecar,
    /// An app container.
    App,
    /// An ephemeral container for debugging (KEP-277). It is started once and never restarted.
    Ephemeral,
}

/// Returns whether an init container is a sidecar (`IsRestartableInitContainer`).
#[must_use]
pub fn is_sidecar(init_container: &Container) -> bool {
    init_container.restart_policy.as_deref() == Some("Always")
}

/// Returns init containers, sidecars and app containers in the order of the spec, without ephemeral containers.
pub fn containers(spec: &PodSpec) -> impl Iterator<Item = (ContainerKind, &Container)> {
    let init = spec
        .init_containers
        .iter()
        .flatten()
        .map(|c| (if is_sidecar(c) { ContainerKind::Sidecar } else { ContainerKind::Init }, c));
    init.chain(spec.containers.iter().map(|c| (ContainerKind::App, c)))
}

/// Returns the message for a resource claim of a Pod; no claim can be satisfied without dynamic resource allocation.
#[must_use]
pub fn unsatisfied_resource_claim(claim: &PodResourceClaim) -> String {
    match (&claim.resource_claim_name, &claim.resource_claim_template_name) {
        (Some(name), _) => format!("resourceclaim.resource.k8s.io {name:?} not found"),
        (None, Some(name)) => format!("resourceclaimtemplate.resource.k8s.io {name:?} not found"),
        (None, None) => format!("the claim {:?} names nothing", claim.name),
    }
}

/// Returns the image volumes of a container by name (KEP-4639), except one with the container's own image, which is pulled
/// anyway.
pub fn image_volumes<'a>(
    spec: &'a PodSpec,
    container: &'a Container,
) -> impl Iterator<Item = (&'a str, &'a ImageVolumeSource)> {
    let mounted = |name: &str| container.volume_mounts.iter().flatten().any(|mount| mount.name == name);
    let images = spec.volumes.iter().flatten().filter_map(|v| Some((v.name.as_str(), v.image.as_ref()?)));
    images.filter(move |(name, image)| mounted(name) && image.reference != container.image)
}

/// Returns the ephemeral containers as [`Container`]s, without their `targetContainerName`.
#[must_use]
pub fn ephemeral_containers(spec: &PodSpec) -> Vec<Container> {
    let common = |e: EphemeralContainer| Container {
        args: e.args,
        command: e.command,
        env: e.env,
        env_from: e.env_from,
        image: e.image,
        image_pull_policy: e.image_pull_policy,
        name: e.name,
        security_context: e.security_context,
        stdin: e.stdin,
        stdin_once: e.stdin_once,
        termination_message_path: e.termination_message_path,
        termination_message_policy: e.termination_message_policy,
        tty: e.tty,
        volume_devices: e.volume_devices,
        volume_mounts: e.volume_mounts,
        working_dir: e.working_dir,
        // Validation rejects all other fields.
        ..Container::default()
    };
    spec.ephemeral_containers.iter().flatten().cloned().map(common).collect()
}

/// Returns the phase of a Pod; `Pending` without a status.
#[must_use]
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending")
}

/// Returns whether the Pod's phase is terminal: `Succeeded` or `Failed` (`IsPodTerminal`).
#[must_use]
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Returns whether a condition is present and `True`.
#[must_use]
pub fn condition_is_true(pod: &Pod, condition: &str) -> bool {
    pod.status.iter().flat_map(|s| s.conditions.iter().flatten()).any(|c| c.type_ == condition && c.status == "True")
}

/// Lowest priority of critical Pods (`SystemCriticalPriority`).
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Returns whether the kubelet must not evict the Pod (`IsCriticalPod`): static Pods and Pods with a system priority.
#[must_use]
pub fn is_critical(pod: &Pod) -> bool {
    is_static(pod) || is_mirror(pod) || priority(pod) >= CRITICAL_PRIORITY
}

/// Returns the Pod's priority, 0 by default.
#[must_use]
pub fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0)
}

/// Returns the node that the Pod is bound to.
#[must_use]
pub fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).filter(|n| !n.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_in_the_order_of_the_spec() {
        let container = |name: &str, policy: Option<&str>| Container {
            name: name.into(),
            restart_policy: policy.map(Into::into),
            ..Default::default()
        };
        let spec = PodSpec {
            init_containers: Some(vec![container("init", None), container("side", Some("Always"))]),
            containers: vec![container("app", None)],
            ..Default::default()
        };
        let got: Vec<_> = containers(&spec).map(|(k, c)| (k, c.name.as_str())).collect();
        assert_eq!(got, [(ContainerKind::Init, "init"), (ContainerKind::Sidecar, "side"), (ContainerKind::App, "app")]);
    }

    #[test]
    fn image_volumes_of_a_container_are_those_it_mounts() {
        let volume = |name: &str, image: &str| serde_json::json!({"name": name, "image": {"reference": image}});
        let mount = |name: &str| serde_json::json!({"name": name, "mountPath": format!("/{name}")});
        let container = serde_json::json!({"name": "c", "image": "own",
            "volumeMounts": [mount("b"), mount("a"), mount("files"), mount("self"), mount("b")]});
        let volumes = [
            volume("a", "one"),
            volume("b", "two"),
            volume("other", "three"),
            volume("self", "own"),
            serde_json::json!({"name": "files", "emptyDir": {}}),
        ];
        let spec = serde_json::json!({"containers": [container], "volumes": volumes});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let images = image_volumes(&spec, &spec.containers[0]);
        let images: Vec<_> = images.map(|(name, image)| (name, image.reference.as_deref().unwrap_or(""))).collect();
        assert_eq!(images, [("a", "one"), ("b", "two")]);
    }
}
