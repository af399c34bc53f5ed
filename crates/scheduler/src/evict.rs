//! Making room for a Pod: it is nominated, and those that have to go are told why and deleted.

use crate::cluster::Uid;
use crate::nominations::Named;
use crate::preempt::Preemption;
use crate::write::{Outcome, Writer, in_time, reference};
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;
use std::sync::Arc;

/// How many Pods are deleted at once.
const AT_ONCE: usize = 16;

impl Writer {
    /// Nominates a Pod to a node, and has those go that are in its way and do not go yet.
    pub(crate) async fn preempt(self, uid: Uid, pod: Arc<Pod>, room: Box<Preemption>, victims: Vec<Named>) -> Outcome {
        self.say_unschedulable(&uid, &pod, &room.message, Some(&room.node)).await;
        for outranked in &room.outranked {
            self.clear_nomination(outranked).await;
        }
        let (writer, about) = (&self, (&*pod, room.node.as_str()));
        let failed = stream::iter(victims).map(|victim| async move {
            let gone = writer.evict(&victim, about.0, about.1).await;
            gone.err().map(|why| (victim, why))
        });
        let failed: Vec<(Named, String)> = failed.buffer_unordered(AT_ONCE).filter_map(|f| async { f }).collect().await;
        if failed.is_empty() {
            return Outcome::Reported(uid);
        }
        for (victim, why) in &failed {
            tracing::warn!(namespace = victim.namespace, name = victim.name, "could not be preempted: {why}");
        }
        Outcome::NotPreempted(uid, failed.into_iter().map(|(victim, _)| victim.uid).collect())
    }

    /// Who is gone, or another Pod by now, need not go.
    async fn evict(&self, victim: &Named, preemptor: &Pod, node: &str) -> Result<(), String> {
        let pods: Api<Pod> = Api::namespaced(self.client(), &victim.namespace);
        let found = in_time(pods.get_opt(&victim.name)).await?;
        let is_it = |pod: &Pod| pod.metadata.uid.as_deref() == Some(victim.uid.as_str());
        let Some(pod) = found.filter(|pod| is_it(pod) && pod.metadata.deletion_timestamp.is_none()) else {
            return Ok(());
        };
        let condition = disruption_target(&pod, preemptor);
        let patch = json!({ "metadata": { "uid": victim.uid }, "status": { "conditions": [condition] } });
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        in_time(unless_gone(pods.patch_status(&victim.name, &params, &patch))).await?;
        let preconditions = Preconditions { uid: Some(victim.uid.clone()), ..Default::default() };
        let params = DeleteParams { preconditions: Some(preconditions), ..Default::default() };
        if in_time(unless_gone(pods.delete(&victim.name, &params))).await?.is_some() {
            self.tell(&pod, preemptor, node).await;
        }
        Ok(())
    }

    async fn tell(&self, victim: &Pod, preemptor: &Pod, node: &str) {
        let uid = preemptor.metadata.uid.as_deref().unwrap_or_default();
        let message = format!("Preempted by pod {uid} on node {node}");
        let mut event = self.event(victim, "Normal", "Preempted", "Preempting", &message);
        event.related = Some(reference(preemptor));
        self.create_event(event).await;
    }

    /// A Pod of lower priority was to go where another one goes now.
    async fn clear_nomination(&self, of: &Named) {
        let patch = json!({ "metadata": { "uid": of.uid }, "status": { "nominatedNodeName": null } });
        let pods: Api<Pod> = Api::namespaced(self.client(), &of.namespace);
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        if let Err(e) = in_time(pods.patch_status(&of.name, &params, &patch)).await {
            tracing::debug!(namespace = of.namespace, name = of.name, "its nomination could not be cleared: {e}");
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

/// None when there is no such Pod any more. Another one of its name is a conflict, and a reason to look again.
async fn unless_gone<T>(write: impl Future<Output = kube::Result<T>>) -> kube::Result<Option<T>> {
    match write.await {
        Ok(done) => Ok(Some(done)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(e) => Err(e),
    }
}
