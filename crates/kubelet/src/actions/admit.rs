//! Whether the node takes a Pod: decided once, kept in its checkpoint, never asked again.

use crate::{Shared, deadline::within_deadline};
use api::{
    affinity, pod,
    quantity::Amount,
    resources::{self, Amounts, Side},
};
use k8s_openapi::api::core::v1::{Container, Node, PodSpec};
use kube::Api;
use lifecycle::{Admission, Pod};

fn rejected(reason: &str, message: String) -> Admission {
    Admission::Rejected { reason: reason.to_owned(), message }
}

pub(super) async fn admit(shared: &Shared, pod: &Pod) -> Admission {
    let object = pod.object();
    let Some(spec) = object.spec.as_ref() else {
        return rejected("UnexpectedAdmissionError", "the Pod has no spec".to_owned());
    };
    if let Some(what) = not_yet(spec) {
        return rejected("UnexpectedAdmissionError", format!("Podium does not run Pods with {what} yet"));
    }
    let api: Api<Node> = Api::all(shared.client.clone());
    // A node that cannot be asked for takes nothing from a Pod that was bound to it.
    let Ok(node) = within_deadline(api.get(&shared.options.node_name)).await else { return Admission::Admitted };
    if !affinity::matches_node(spec, &node) {
        let message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector".to_owned();
        return rejected("NodeAffinity", message);
    }
    fits(shared, pod, spec, &node)
}

/// What of the Pod lifecycle is not carried out yet, in the words of the API.
fn not_yet(spec: &PodSpec) -> Option<&'static str> {
    let signal = |c: &Container| c.lifecycle.as_ref().is_some_and(|l| l.stop_signal.is_some());
    if pod::containers(spec).any(|(_, c)| signal(c)) {
        return Some("stop signals");
    }
    spec.runtime_class_name.is_some().then_some("a runtimeClassName")
}

fn fits(shared: &Shared, pod: &Pod, spec: &PodSpec, node: &Node) -> Admission {
    let allocatable = resources::amounts(node.status.as_ref().and_then(|s| s.allocatable.as_ref()));
    let (mut used, mut count) = (Amounts::new(), 1u32);
    for handle in shared.pods.all() {
        let other = handle.known.borrow().clone();
        if other.uid() == pod.uid() || !other.is_admitted() || pod::is_terminal(other.object()) {
            continue;
        }
        count += 1;
        resources::add(
            &mut used,
            &other.object().spec.as_ref().map(|s| resources::pod(s, Side::Requests)).unwrap_or_default(),
        );
    }
    if i64::from(count) > shared.machine.pods() {
        return rejected(
            "OutOfpods",
            format!(
                "Node didn't have enough resource: pods, requested: 1, used: {}, capacity: {}",
                count - 1,
                shared.machine.pods()
            ),
        );
    }
    for (name, wanted) in resources::pod(spec, Side::Requests) {
        let (taken, capacity) =
            (used.get(&name).copied().unwrap_or_default(), allocatable.get(&name).copied().unwrap_or_default());
        if !wanted.is_zero() && taken.plus(wanted) > capacity {
            // Plain numbers, as upstream has them: thousandths of CPUs, and bytes.
            let shown = |a: Amount| if name == "cpu" { a.milli() } else { a.value() };
            let (wanted, taken, capacity) = (shown(wanted), shown(taken), shown(capacity));
            let message = format!(
                "Node didn't have enough resource: {name}, requested: {wanted}, used: {taken}, capacity: {capacity}"
            );
            return rejected(&format!("OutOf{name}"), message);
        }
    }
    Admission::Admitted
}
