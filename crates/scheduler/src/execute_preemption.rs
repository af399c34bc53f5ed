//! Execution of a preemption (`prepareCandidate`): nominates the preemptor, and sets conditions on, deletes and
//! reports the victims.

use crate::{
    cache::Uid,
    nominator::PodRef,
    preemption::Preemption,
    writer::{WriteError, WriteOutcome, Writer, reference, with_timeout},
};
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Pod, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;
use std::sync::Arc;

/// Maximum number of concurrent deletions.
const MAX_CONCURRENT_DELETIONS: usize = 16;

impl Writer {
    /// Nominates the Pod and deletes the victims that are not terminating yet (`prepareCandidate`).
    pub(crate) async fn execute_preemption(
        self,
        uid: Uid,
        pod: Arc<Pod>,
        preemption: Box<Preemption>,
        victims: Vec<PodRef>,
    ) -> WriteOutcome {
        self.report_unschedulable(&uid, &pod, &preemption.message, Some(&preemption.node)).await;
        for lower_nominated in &preemption.lower_nominated {
            self.clear_nominated_node_name(lower_nominated).await;
        }
        let (writer, about) = (&self, (&*pod, preemption.node.as_str()));
        let failed = stream::iter(victims).map(|victim| async move {
            let deleted = writer.delete_victim(&victim, about.0, about.1).await;
            deleted.err().map(|error| (victim, error))
        });
        let failed: Vec<(PodRef, WriteError)> =
            failed.buffer_unordered(MAX_CONCURRENT_DELETIONS).filter_map(|f| async { f }).collect().await;
        if failed.is_empty() {
            return WriteOutcome::Reported(uid);
        }
        for (victim, error) in &failed {
            tracing::warn!(
                namespace = victim.namespace,
                name = victim.name,
                %error,
                "failed to delete preemption victim"
            );
        }
        WriteOutcome::PreemptionFailed(uid, failed.into_iter().map(|(victim, _)| victim.uid).collect())
    }

    /// Deletes a victim. A Pod that is gone, terminating, or replaced under the same name is skipped.
    async fn delete_victim(&self, victim: &PodRef, preemptor: &Pod, node: &str) -> Result<(), WriteError> {
        let pods: Api<Pod> = Api::namespaced(self.client(), &victim.namespace);
        let found = with_timeout(pods.get_opt(&victim.name)).await?;
        let has_uid = |pod: &Pod| pod.metadata.uid.as_deref() == Some(victim.uid.as_str());
        let Some(pod) = found.filter(|pod| has_uid(pod) && pod.metadata.deletion_timestamp.is_none()) else {
            return Ok(());
        };
        let condition = disruption_target(&pod, preemptor);
        let patch = json!({ "metadata": { "uid": victim.uid }, "status": { "conditions": [condition] } });
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        with_timeout(ignore_not_found(pods.patch_status(&victim.name, &params, &patch))).await?;
        let preconditions = Preconditions { uid: Some(victim.uid.clone()), ..Default::default() };
        let params = DeleteParams { preconditions: Some(preconditions), ..Default::default() };
        if with_timeout(ignore_not_found(pods.delete(&victim.name, &params))).await?.is_some() {
            self.record_preempted_event(&pod, preemptor, node).await;
        }
        Ok(())
    }

    async fn record_preempted_event(&self, victim: &Pod, preemptor: &Pod, node: &str) {
        let uid = preemptor.metadata.uid.as_deref().unwrap_or_default();
        let message = format!("Preempted by pod {uid} on node {node}");
        let mut event = self.event(victim, "Normal", "Preempted", "Preempting", &message);
        event.related = Some(reference(preemptor));
        self.create_event(event).await;
    }

    /// Clears the nomination of a Pod of lower priority to the same node.
    async fn clear_nominated_node_name(&self, pod_ref: &PodRef) {
        let patch = json!({ "metadata": { "uid": pod_ref.uid }, "status": { "nominatedNodeName": null } });
        let pods: Api<Pod> = Api::namespaced(self.client(), &pod_ref.namespace);
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        if let Err(e) = with_timeout(pods.patch_status(&pod_ref.name, &params, &patch)).await {
            tracing::debug!(
                namespace = pod_ref.namespace,
                name = pod_ref.name,
                error = %e,
                "failed to clear nomination"
            );
        }
    }
}

fn disruption_target(victim: &Pod, preemptor: &Pod) -> PodCondition {
    let scheduler = preemptor.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
    let scheduler = scheduler.unwrap_or(crate::DEFAULT_SCHEDULER);
    let mut conditions = victim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let since = conditions.find(|c| c.type_ == "DisruptionTarget" && c.status == "True");
    let since = since.and_then(|c| c.last_transition_time.clone()).unwrap_or_else(|| Time(Timestamp::now()));
    PodCondition {
        type_: "DisruptionTarget".into(),
        status: "True".into(),
        reason: Some("PreemptionByScheduler".into()),
        message: Some(format!("{scheduler}: preempting to accommodate a higher priority pod")),
        last_transition_time: Some(since),
        observed_generation: victim.metadata.generation,
        ..Default::default()
    }
}

/// Maps 404 to `None`. A conflict (another Pod of this name) stays an error, so that the Pod is scheduled again.
async fn ignore_not_found<T>(write: impl Future<Output = kube::Result<T>>) -> kube::Result<Option<T>> {
    match write.await {
        Ok(done) => Ok(Some(done)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(e) => Err(e),
    }
}
