//! Writes the Pods and claims of a StatefulSet and records Events (`StatefulPodControl`).

use super::{
    StatefulSetController,
    identity::{claims, pod, storage_matches, update_identity, update_storage},
    name, namespace,
    plan::Step,
    retention::RetentionPolicy,
};
use crate::{
    controller_history::{revision_name, revision_template},
    expectations::ExpectedVersion,
    pod_control::{error_message, is_namespace_terminating, new_controller_ref},
    pod_summary::PodSummary,
    worker::is_code,
};
use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, StatefulSet},
        core::v1::{PersistentVolumeClaim, Pod},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Resource,
    api::{DeleteParams, PostParams, Preconditions},
};

/// Versions of the written objects, for expectations.
#[derive(Default)]
struct Writes {
    pods: ExpectedVersion,
    claims: ExpectedVersion,
}

impl StatefulSetController {
    /// Applies the steps up to the first that fails or has to wait.
    pub(super) async fn apply_steps(
        &self,
        key: &str,
        set: &StatefulSet,
        current: &ControllerRevision,
        update: &ControllerRevision,
        steps: &[Step],
    ) -> Result<(), kube::Error> {
        let mut writes = Writes::default();
        let mut done = Ok(true);
        for step in steps {
            done = match step {
                Step::CreatePod { ordinal, updated } => {
                    let revision = if *updated { update } else { current };
                    self.create_pod(set, revision, *ordinal, &mut writes).await
                }
                Step::CreateClaims { ordinal, pod } => {
                    self.create_claims(set, *ordinal, &pod.name, None, &mut writes).await
                }
                Step::UpdateClaimOwners { claim, owners, conflict } => {
                    self.update_claim_owners(set, claim, owners.as_ref(), *conflict, &mut writes).await
                }
                Step::UpdatePod { ordinal, pod } => self.update_pod(set, *ordinal, pod, &mut writes).await,
                Step::DeletePod(pod) => self.delete_pod(set, pod, &mut writes).await,
            };
            if !matches!(done, Ok(true)) {
                break;
            }
        }
        // Expect the writes whatever fails.
        self.pod_expectations.set(key, writes.pods);
        self.claim_expectations.set(key, writes.claims);
        match done {
            // The namespace controller deletes the rest.
            Err(e) if is_namespace_terminating(&e) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Records an Event such as `SuccessfulCreate`, `create Pod web-0 in StatefulSet web successful`
    /// (`recordPodEvent`).
    async fn record_pod_event(&self, set: &StatefulSet, verb: &str, pod: &str, failure: Option<&str>) {
        let (set_name, about) = (name(set), set.object_ref(&()));
        let (result, end) = match failure {
            Some(error) => ("Failed", format!("failed error: {error}")),
            None => ("Successful", "successful".to_owned()),
        };
        let reason = format!("{result}{}{}", verb[..1].to_uppercase(), &verb[1..]);
        let message = format!("{verb} Pod {pod} in StatefulSet {set_name} {end}");
        self.control.recorder.record(&about, failure.is_some(), &reason, &message).await;
    }

    /// Creates a Pod after its claims.
    async fn create_pod(
        &self,
        set: &StatefulSet,
        revision: &ControllerRevision,
        ordinal: i64,
        writes: &mut Writes,
    ) -> Result<bool, kube::Error> {
        let template = revision_template(revision).unwrap_or_default();
        let pod = pod(set, &template, revision_name(revision), ordinal);
        let pod_name = pod.metadata.name.clone().unwrap_or_default();
        if !self.create_claims(set, ordinal, &pod_name, Some("create"), writes).await? {
            return Ok(false);
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace(set));
        match api.create(&PostParams::default(), &pod).await {
            Ok(made) => {
                writes.pods.observe(&made.metadata);
                self.record_pod_event(set, "create", &pod_name, None).await;
                Ok(true)
            }
            // Another object's Pod has the name: retry with a back-off.
            Err(e) if is_code(&e, 409) => Err(e),
            Err(e) => {
                self.record_pod_event(set, "create", &pod_name, Some(&error_message(&e))).await;
                Err(e)
            }
        }
    }

    /// Creates the missing claims of a Pod. Returns `false` if a claim is terminating. `verb` is the action on the
    /// Pod that a failure is reported for.
    async fn create_claims(
        &self,
        set: &StatefulSet,
        ordinal: i64,
        pod: &str,
        verb: Option<&str>,
        writes: &mut Writes,
    ) -> Result<bool, kube::Error> {
        let Some(spec) = set.spec.as_ref() else { return Ok(true) };
        for mut claim in claims(name(set), spec, ordinal) {
            let claim_name = claim.metadata.name.clone().unwrap_or_default();
            match self.claims.get(namespace(set), &claim_name) {
                Some(there) if there.terminating => {
                    if let Some(verb) = verb {
                        self.record_pod_event(set, verb, pod, Some(&format!("pvc {claim_name} is being deleted")))
                            .await;
                    }
                    return Ok(false);
                }
                Some(_) => continue,
                None => {}
            }
            claim.metadata.owner_references = RetentionPolicy::from_spec(spec).initial_owners(&new_controller_ref(set));
            if let Err(e) = self.create_claim(set, &claim, &claim_name, pod, writes).await {
                if let Some(verb) = verb {
                    let error = format!("failed to create PVC {claim_name}: {}", error_message(&e));
                    self.record_pod_event(set, verb, pod, Some(&error)).await;
                }
                return Err(e);
            }
        }
        Ok(true)
    }

    async fn create_claim(
        &self,
        set: &StatefulSet,
        claim: &PersistentVolumeClaim,
        claim_name: &str,
        pod: &str,
        writes: &mut Writes,
    ) -> Result<(), kube::Error> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace(set));
        let (set_name, about) = (name(set), set.object_ref(&()));
        match api.create(&PostParams::default(), claim).await {
            Ok(made) => {
                writes.claims.observe(&made.metadata);
                let message = format!("create Claim {claim_name} Pod {pod} in StatefulSet {set_name} success");
                self.control.recorder.record(&about, false, "SuccessfulCreate", &message).await;
                Ok(())
            }
            Err(e) if is_code(&e, 409) => Err(e),
            Err(e) => {
                let message = format!(
                    "create Claim {claim_name} for Pod {pod} in StatefulSet {set_name} failed error: {}",
                    error_message(&e)
                );
                self.control.recorder.record(&about, true, "FailedCreate", &message).await;
                Err(e)
            }
        }
    }

    async fn update_claim_owners(
        &self,
        set: &StatefulSet,
        claim: &str,
        owners: Option<&Vec<OwnerReference>>,
        conflict: bool,
        writes: &mut Writes,
    ) -> Result<bool, kube::Error> {
        if conflict {
            let message = format!(
                "PersistentVolumeClaim {claim} has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim"
            );
            self.control.recorder.record(&set.object_ref(&()), true, "ConflictingController", &message).await;
        }
        let Some(owners) = owners else { return Ok(true) };
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace(set));
        // A deleted claim needs no owners. A changed claim is retried after a conflict.
        let Some(mut there) = api.get_opt(claim).await? else { return Ok(true) };
        there.metadata.owner_references = Some(owners.clone());
        let changed = api.replace(claim, &PostParams::default(), &there).await?;
        writes.claims.observe(&changed.metadata);
        Ok(true)
    }

    /// Updates identity and storage of an adopted Pod. Immutable fields cause an Event at each sync, as upstream.
    async fn update_pod(
        &self,
        set: &StatefulSet,
        ordinal: i64,
        pod: &PodSummary,
        writes: &mut Writes,
    ) -> Result<bool, kube::Error> {
        if !self.create_claims(set, ordinal, &pod.name, Some("update"), writes).await? {
            return Ok(false);
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace(set));
        let Some(mut there) = api.get_opt(&pod.name).await? else { return Ok(true) };
        update_identity(&mut there.metadata, name(set), ordinal);
        if let (Some(inner), Some(spec)) = (&mut there.spec, &set.spec)
            && !storage_matches(pod, name(set), spec, ordinal)
        {
            update_storage(inner, name(set), spec, ordinal);
        }
        match api.replace(&pod.name, &PostParams::default(), &there).await {
            Ok(changed) => {
                writes.pods.observe(&changed.metadata);
                self.record_pod_event(set, "update", &pod.name, None).await;
                Ok(true)
            }
            Err(e) => {
                self.record_pod_event(set, "update", &pod.name, Some(&error_message(&e))).await;
                Err(e)
            }
        }
    }

    async fn delete_pod(&self, set: &StatefulSet, pod: &PodSummary, writes: &mut Writes) -> Result<bool, kube::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace(set));
        let preconditions = Some(Preconditions { uid: Some(pod.uid.clone()), resource_version: None });
        match api.delete(&pod.name, &DeleteParams { preconditions, ..DeleteParams::default() }).await {
            Ok(deleted) => {
                if let Some(last) = deleted.left() {
                    writes.pods.observe(&last.metadata);
                }
                self.pending_deletions.insert(pod, &self.pods);
                self.record_pod_event(set, "delete", &pod.name, None).await;
                Ok(true)
            }
            // The Pod is deleted already, or replaced by another of its name.
            Err(e) if is_code(&e, 404) || is_code(&e, 409) => Ok(true),
            Err(e) => {
                self.record_pod_event(set, "delete", &pod.name, Some(&error_message(&e))).await;
                Err(e)
            }
        }
    }
}
