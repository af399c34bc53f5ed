//! What a Pod needs and nobody provides yet: devices by claim, and storage by claim. No node is looked at then: pure.

use crate::message;
use k8s_openapi::api::core::v1::{Pod, PodSpec, Volume};

/// Why the Pod waits, in a cluster of so many nodes.
pub(crate) fn wait_for(pod: &Pod, nodes: usize) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    if let Some(claim) = spec.resource_claims.iter().flatten().next() {
        return Some(message::nowhere(nodes, &api::pod::missing_claim(claim)));
    }
    let storage = spec.volumes.iter().flatten().find_map(|volume| missing_storage(pod, volume))?;
    Some(message::nowhere_by_nodes(nodes, &storage, never_preempts(spec)))
}

pub(crate) fn never_preempts(spec: &PodSpec) -> bool {
    spec.preemption_policy.as_deref() == Some("Never")
}

/// Whether the claim is there does not matter, for nobody binds it.
fn missing_storage(pod: &Pod, volume: &Volume) -> Option<String> {
    let claim = match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => claim.claim_name.clone(),
        (None, Some(_)) => format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name),
        (None, None) => return None,
    };
    Some(format!("persistentvolumeclaim {claim:?} is not provided for: claims to storage are not supported yet"))
}
