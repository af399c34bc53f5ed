//! Pod admission: decided once and checkpointed.

use crate::{Shared, deadline::within_deadline, pod_worker::PodMessage, pods};
use api::pod::DEFAULT_GRACE_PERIOD_SECONDS;
use k8s_openapi::api::core::v1::{Node, Pod as ApiPod};
use kube::Api;
use lifecycle::{Admission, AdmissionDecision, AdmissionNodeInfo, Pod, PodLifecycleEvent, Preemption};
use std::{sync::Arc, time::Duration};

/// Maximum wait until all Pods are listed, in case the runtime hangs.
const RELIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum wait for a preempted Pod (upstream's `minTerminationGrace` of `killPodNow`).
const MIN_TERMINATION_GRACE: Duration = Duration::from_secs(10);

/// Collects what admission depends on, and calls [`lifecycle::admit`] (upstream's `canAdmitPod`).
pub(super) async fn admit(shared: &Shared, pod: &Pod) -> Admission {
    let api: Api<Node> = Api::all(shared.client.clone());
    // Without the Node object, checks of labels and taints are skipped: the Pod is already bound.
    let node = within_deadline(api.get(&shared.options.node_name)).await.ok();
    let _ = tokio::time::timeout(RELIST_TIMEOUT, shared.pods.wait_relisted()).await;
    let pressures = shared.evictions.pressures();
    let decision = shared.pods.admit(pod.uid(), |others| {
        let view = AdmissionNodeInfo {
            name: &shared.options.node_name,
            node: node.as_ref(),
            allocatable: &shared.node_resources.allocatable,
            others,
            pressures: &pressures,
            shutting_down: shared.shutdown.is_on(),
            unsafe_sysctls: &shared.options.config.allowed_unsafe_sysctls,
            apparmor: has_apparmor(),
        };
        lifecycle::admit(pod.object(), &view)
    });
    match decision {
        AdmissionDecision::Decided(admission) => admission,
        AdmissionDecision::Preempts(preemption) => {
            preempt(shared, pod, preemption).await;
            Admission::Admitted
        }
    }
}

/// Returns whether AppArmor is enabled.
fn has_apparmor() -> bool {
    let on = crate::host_file::read_text("/sys/module/apparmor/parameters/enabled");
    on.is_ok_and(|on| on.starts_with('Y')) && std::path::Path::new("/sys/kernel/security/apparmor").exists()
}

/// Evicts the victims, and waits until their containers have stopped or the timeout has passed.
async fn preempt(shared: &Shared, pod: &Pod, preemption: Preemption) {
    let mut terminations = Vec::new();
    for other in preemption.pods {
        let Some(handle) = other.metadata.uid.as_deref().and_then(|uid| shared.pods.by_uid(uid)) else { continue };
        tracing::info!(pod = other.metadata.name, r#for = pod.name(), "preempting Pod for a critical Pod");
        let _ = handle.messages.send(PodMessage::Event(PodLifecycleEvent::Evicted(preemption.eviction.clone())));
        shared.evictions.count_preemption(&preemption.resource);
        terminations.push(wait_terminated(handle.state, termination_timeout(&other)));
    }
    futures::future::join_all(terminations).await;
}

async fn wait_terminated(mut state: tokio::sync::watch::Receiver<Arc<Pod>>, termination_timeout: Duration) {
    // The sender is dropped when the Pod is removed.
    let terminated = state.wait_for(|pod| {
        let runs = api::pod::containers(pods::spec(pod)).any(|(_, c)| pod.is_running(&c.name));
        pod.has_ended() && !runs
    });
    let _ = tokio::time::timeout(termination_timeout, terminated).await;
}

/// Returns how long to wait for termination: 1.5 times the grace period, as upstream.
fn termination_timeout(pod: &ApiPod) -> Duration {
    let pod_grace_period = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let grace =
        Duration::from_secs(u64::try_from(pod_grace_period.unwrap_or(DEFAULT_GRACE_PERIOD_SECONDS)).unwrap_or(0));
    grace.saturating_mul(3).max(MIN_TERMINATION_GRACE * 2) / 2
}
