//! What every component must know about a Pod.

use crate::static_pod::{is_mirror, is_static};
use k8s_openapi::api::core::v1::{Container, EphemeralContainer, ImageVolumeSource, Pod, PodResourceClaim, PodSpec};

/// Upstream's grace period when a Pod names none, in seconds.
pub const DEFAULT_GRACE_PERIOD_SECONDS: i64 = 30;

/// Which list of the spec a container stands in, and whether it is a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContainerKind {
    /// Runs to its end before the app containers start.
    Init,
    /// An init container with `restartPolicy: Always` (KEP-753).
    Sidecar,
    /// An app container.
    App,
    /// One that was added to a Pod to look into it (KEP-277). It is started once, and nothing depends on it.
    Ephemeral,
}

/// Whether an init container is a sidecar.
#[must_use]
pub fn is_sidecar(init_container: &Container) -> bool {
    init_container.restart_policy.as_deref() == Some("Always")
}

/// Init containers, sidecars and app containers, in the order of the spec; for the others see [`ephemeral`].
pub fn containers(spec: &PodSpec) -> impl Iterator<Item = (ContainerKind, &Container)> {
    let init = spec
        .init_containers
        .iter()
        .flatten()
        .map(|c| (if is_sidecar(c) { ContainerKind::Sidecar } else { ContainerKind::Init }, c));
    init.chain(spec.containers.iter().map(|c| (ContainerKind::App, c)))
}

/// What is missing for a claim of a Pod to devices, in a cluster in which nobody gives out any.
#[must_use]
pub fn missing_claim(claim: &PodResourceClaim) -> String {
    match (&claim.resource_claim_name, &claim.resource_claim_template_name) {
        (Some(name), _) => format!("resourceclaim.resource.k8s.io {name:?} not found"),
        (None, Some(name)) => format!("resourceclaimtemplate.resource.k8s.io {name:?} not found"),
        (None, None) => format!("the claim {:?} names nothing", claim.name),
    }
}

/// The volumes of this container that are images (KEP-4639), by name. One that is the container's own image is left out: it
/// is there when the container is.
pub fn image_volumes<'a>(
    spec: &'a PodSpec,
    container: &'a Container,
) -> impl Iterator<Item = (&'a str, &'a ImageVolumeSource)> {
    let mounted = |name: &str| container.volume_mounts.iter().flatten().any(|mount| mount.name == name);
    let images = spec.volumes.iter().flatten().filter_map(|v| Some((v.name.as_str(), v.image.as_ref()?)));
    images.filter(move |(name, image)| mounted(name) && image.reference != container.image)
}

/// Ephemeral containers, as what all containers have in common. The field `targetContainerName` is theirs alone.
#[must_use]
pub fn ephemeral(spec: &PodSpec) -> Vec<Container> {
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
        // Validation refuses everything else.
        ..Container::default()
    };
    spec.ephemeral_containers.iter().flatten().cloned().map(common).collect()
}

/// The phase in the status; `Pending` when it has none yet.
#[must_use]
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending")
}

/// Whether the Pod has ended: `Succeeded` or `Failed`.
#[must_use]
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether the condition stands and is `True`.
#[must_use]
pub fn condition_is_true(pod: &Pod, condition: &str) -> bool {
    pod.status.iter().flat_map(|s| s.conditions.iter().flatten()).any(|c| c.type_ == condition && c.status == "True")
}

/// `SystemCriticalPriority`: from here on a Pod is one that the system cannot do without.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Whether the node keeps it whatever it lacks (`IsCriticalPod`): static Pods, and those of the system's priorities.
#[must_use]
pub fn is_critical(pod: &Pod) -> bool {
    is_static(pod) || is_mirror(pod) || priority(pod) >= CRITICAL_PRIORITY
}

/// Its priority; 0 when it has none.
#[must_use]
pub fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0)
}

/// The node it is bound to, if any.
#[must_use]
pub fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).filter(|n| !n.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_come_in_the_order_of_the_spec() {
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
    fn the_volumes_of_a_container_that_are_images_are_those_it_mounts() {
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
