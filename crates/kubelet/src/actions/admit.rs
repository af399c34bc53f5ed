//! Whether the node takes a Pod: decided once, kept in its checkpoint, never asked again.

use crate::{Shared, deadline::within_deadline};
use k8s_openapi::api::core::v1::{Container, Node, PodSpec};
use kube::Api;
use lifecycle::{Admission, NodeView, Pod};

pub(super) async fn admit(shared: &Shared, pod: &Pod) -> Admission {
    if let Some(what) = not_yet(crate::pods::spec(pod)) {
        let message = format!("Podium does not run Pods with {what} yet");
        return Admission::Rejected { reason: "UnexpectedAdmissionError".to_owned(), message };
    }
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
            unsafe_sysctls: &shared.options.config.allowed_unsafe_sysctls,
        };
        lifecycle::admit(pod.object(), &view)
    })
}

/// What of the Pod lifecycle is not carried out yet, in the words of the API.
fn not_yet(spec: &PodSpec) -> Option<&'static str> {
    let signal = |c: &Container| c.lifecycle.as_ref().is_some_and(|l| l.stop_signal.is_some());
    if api::pod::containers(spec).any(|(_, c)| signal(c)) {
        return Some("stop signals");
    }
    spec.runtime_class_name.is_some().then_some("a runtimeClassName")
}
