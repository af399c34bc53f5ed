//! Whether the node takes a Pod: decided once, kept in its checkpoint, never asked again.

use crate::{Shared, deadline::within_deadline};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use lifecycle::{Admission, NodeView, Pod};

pub(super) async fn admit(shared: &Shared, pod: &Pod) -> Admission {
    let api: Api<Node> = Api::all(shared.client.clone());
    // A node that cannot be asked for takes nothing from a Pod that was bound to it.
    let node = within_deadline(api.get(&shared.options.node_name)).await.ok();
    let pressures = shared.evictions.pressures();
    shared.pods.admit(pod.uid(), |others| {
        let view = NodeView {
            name: &shared.options.node_name,
            node: node.as_ref(),
            allocatable: &shared.machine.allocatable,
            others,
            pressures: &pressures,
            shutting_down: shared.shutdown.is_on(),
            unsafe_sysctls: &shared.options.config.allowed_unsafe_sysctls,
        };
        lifecycle::admit(pod.object(), &view)
    })
}
