//! Whether the node takes a Pod: decided once, kept in its checkpoint, never asked again.

use crate::{Shared, actor::PodMessage, deadline::within_deadline, pods};
use api::pod::DEFAULT_GRACE_PERIOD_SECONDS;
use k8s_openapi::api::core::v1::{Node, Pod as ApiPod};
use kube::Api;
use lifecycle::{Admission, Event, NodeView, Pod, Preemption, Verdict};
use std::{sync::Arc, time::Duration};

/// How long is waited for what the runtime has of others: one that hangs holds up nobody for ever.
const LISTED: Duration = Duration::from_secs(10);
/// How long a Pod that goes for another one is waited for at least (upstream's `minTerminationGrace` of `killPodNow`).
const LEAST_WAIT: Duration = Duration::from_secs(10);

pub(super) async fn admit(shared: &Shared, pod: &Pod) -> Admission {
    let api: Api<Node> = Api::all(shared.client.clone());
    // A node that cannot be asked for takes nothing from a Pod that was bound to it.
    let node = within_deadline(api.get(&shared.options.node_name)).await.ok();
    let _ = tokio::time::timeout(LISTED, shared.pods.wait_relisted()).await;
    let pressures = shared.evictions.pressures();
    let verdict = shared.pods.admit(pod.uid(), |others| {
        let view = NodeView {
            name: &shared.options.node_name,
            node: node.as_ref(),
            allocatable: &shared.machine.allocatable,
            others,
            pressures: &pressures,
            shutting_down: shared.shutdown.is_on(),
            unsafe_sysctls: &shared.options.config.allowed_unsafe_sysctls,
            apparmor: has_apparmor(),
        };
        lifecycle::admit(pod.object(), &view)
    });
    match verdict {
        Verdict::Settled(admission) => admission,
        Verdict::Preempts(preemption) => {
            make_room(shared, pod, preemption).await;
            Admission::Admitted
        }
    }
}

/// Whether the kernel has AppArmor, and it is on.
fn has_apparmor() -> bool {
    let on = crate::node_file::read_text("/sys/module/apparmor/parameters/enabled");
    on.is_ok_and(|on| on.starts_with('Y')) && std::path::Path::new("/sys/kernel/security/apparmor").exists()
}

/// Tells others to go, and waits until nothing of them runs any more. One that does not end is not waited for for ever.
async fn make_room(shared: &Shared, pod: &Pod, preemption: Preemption) {
    let mut leaving = Vec::new();
    for other in preemption.pods {
        let Some(handle) = other.metadata.uid.as_deref().and_then(|uid| shared.pods.by_uid(uid)) else { continue };
        tracing::info!(pod = other.metadata.name, r#for = pod.name(), "a Pod goes so that a critical one has room");
        let _ = handle.messages.send(PodMessage::Event(Event::Evicted(preemption.eviction.clone())));
        shared.evictions.count_preemption(&preemption.resource);
        leaving.push(left(handle.state, patience(&other)));
    }
    futures::future::join_all(leaving).await;
}

async fn left(mut known: tokio::sync::watch::Receiver<Arc<Pod>>, patience: Duration) {
    // Nobody who might tell is there any more: it has left, too.
    let gone = known.wait_for(|pod| {
        let runs = api::pod::containers(pods::spec(pod)).any(|(_, c)| pod.is_running(&c.name));
        pod.has_ended() && !runs
    });
    let _ = tokio::time::timeout(patience, gone).await;
}

/// As long as upstream: half as much again as its grace.
fn patience(pod: &ApiPod) -> Duration {
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let grace = Duration::from_secs(u64::try_from(own.unwrap_or(DEFAULT_GRACE_PERIOD_SECONDS)).unwrap_or(0));
    grace.saturating_mul(3).max(LEAST_WAIT * 2) / 2
}
