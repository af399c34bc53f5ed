//! Pod control: creates, deletes, adopts and releases the Pods of a workload, and records Events.

use crate::{
    event_recorder::EventRecorder,
    expectations::ExpectedVersion,
    pod_summary::{PodSummary, controller_of},
    worker::is_code,
};
use futures::future::join_all;
use informer::{Cached, SharedInformer, key};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ObjectReference, Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

/// A failed creation or deletion: the reason and the error.
pub(crate) type Failure = (&'static str, kube::Error);

/// Creates, deletes and claims the Pods of one controller.
#[derive(Clone)]
pub(crate) struct PodControl {
    client: Client,
    pub(crate) recorder: EventRecorder,
    /// Finalizer that is added when Pods are adopted, and removed when they are released.
    finalizer: Option<&'static str>,
}

impl PodControl {
    pub(crate) fn new(client: Client, component: &'static str) -> Self {
        Self { recorder: EventRecorder::new(client.clone(), component), client, finalizer: None }
    }

    pub(crate) fn with_finalizer(self, finalizer: &'static str) -> Self {
        Self { finalizer: Some(finalizer), ..self }
    }

    fn api(&self, about: &ObjectReference) -> Api<Pod> {
        Api::namespaced(self.client.clone(), about.namespace.as_deref().unwrap_or_default())
    }

    /// Creates Pods in batches of 1, 2, 4 and so on, so that a persistent error stops after few requests
    /// (`slowStartBatch`). Returns the number of created Pods.
    pub(crate) async fn create_pods(
        &self,
        about: &ObjectReference,
        mut pods: &[Pod],
        expected: &mut ExpectedVersion,
    ) -> (usize, Option<Failure>) {
        let (api, params, mut batch, mut count) = (self.api(about), PostParams::default(), 1, 0);
        while !pods.is_empty() {
            let (batch_pods, later) = pods.split_at(batch.min(pods.len()));
            let mut making = Vec::with_capacity(batch_pods.len());
            for pod in batch_pods {
                making.push(api.create(&params, pod));
            }
            let mut failure = None;
            for result in join_all(making).await {
                match result {
                    Ok(pod) => {
                        expected.observe(&pod.metadata);
                        count += 1;
                        let name = pod.metadata.name.unwrap_or_default();
                        self.recorder.record(about, false, "SuccessfulCreate", &format!("Created pod: {name}")).await;
                    }
                    // The namespace controller deletes the rest.
                    Err(e) if is_namespace_terminating(&e) => return (count, None),
                    Err(e) => failure = Some(e),
                }
            }
            if let Some(e) = failure {
                self.recorder
                    .record(about, true, "FailedCreate", &format!("Error creating: {}", error_message(&e)))
                    .await;
                return (count, Some(("FailedCreate", e)));
            }
            pods = later;
            batch *= 2;
        }
        (count, None)
    }

    /// Deletes a Pod. Returns whether it existed.
    pub(crate) async fn delete_pod(
        &self,
        about: &ObjectReference,
        pod: &PodSummary,
        expected: &mut ExpectedVersion,
    ) -> Result<bool, Failure> {
        let preconditions = Some(Preconditions { uid: Some(pod.uid.clone()), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.api(about).delete(&pod.name, &params).await {
            Ok(deleted) => {
                if let Some(pod) = deleted.left() {
                    expected.observe(&pod.metadata);
                }
                self.recorder.record(about, false, "SuccessfulDelete", &format!("Deleted pod: {}", pod.name)).await;
                Ok(true)
            }
            Err(e) if is_code(&e, 404) || is_code(&e, 409) => Ok(false),
            Err(e) => {
                self.recorder
                    .record(about, true, "FailedDelete", &format!("Error deleting: {}", error_message(&e)))
                    .await;
                Err(("FailedDelete", e))
            }
        }
    }

    /// Returns the owner's Pods: releases those that no longer match the selector, and adopts matching orphans
    /// (`ClaimPods`).
    pub(crate) async fn claim_pods<K: ControllerObject>(
        &self,
        owner: &K,
        selector: &LabelSelector,
        pods: Vec<Arc<PodSummary>>,
    ) -> Result<Vec<Arc<PodSummary>>, kube::Error> {
        self.claim_pods_matching(owner, |pod| selects(selector, &pod.labels), pods).await
    }

    /// Like [`Self::claim_pods`], with a predicate instead of a selector.
    pub(crate) async fn claim_pods_matching<K: ControllerObject>(
        &self,
        owner: &K,
        selects: impl Fn(&PodSummary) -> bool + Send,
        pods: Vec<Arc<PodSummary>>,
    ) -> Result<Vec<Arc<PodSummary>>, kube::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), owner.meta().namespace.as_deref().unwrap_or_default());
        let mut mine = Vec::new();
        for pod in pods {
            match claim_action(owner.meta(), pod.controller.as_ref(), selects(&pod), pod.active) {
                ClaimAction::Ignore => {}
                ClaimAction::Keep => mine.push(pod),
                ClaimAction::Release => release(&api, &pod.name, &pod.uid, owner, self.finalizer).await?,
                ClaimAction::Adopt => {
                    adopt(&api, &pod.name, &pod.uid, owner, self.finalizer).await?;
                    mine.push(pod);
                }
            }
        }
        Ok(mine)
    }

    /// Removes a finalizer from a Pod.
    pub(crate) async fn remove_finalizer(
        &self,
        pod: &PodSummary,
        finalizer: &str,
        expected: &mut ExpectedVersion,
    ) -> Result<(), kube::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let patch = json!({"metadata": {"uid": pod.uid, "$deleteFromPrimitiveList/finalizers": [finalizer]}});
        let patched = api.patch(&pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        if let Ok(pod) = &patched {
            expected.observe(&pod.metadata);
        }
        ignore_missing_or_replaced(patched)
    }
}

/// An object that can be a controller of others.
pub(crate) trait ControllerObject: Resource<DynamicType = ()> + Sync {}
impl<K: Resource<DynamicType = ()> + Sync> ControllerObject for K {}

/// What [`claim_action`] decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimAction {
    Ignore,
    Keep,
    Adopt,
    Release,
}

/// Decides what an owner does with an object that has this controller (`ClaimObject`).
pub(crate) fn claim_action(
    owner: &ObjectMeta,
    controller: Option<&OwnerReference>,
    selected: bool,
    alive: bool,
) -> ClaimAction {
    let ending = owner.deletion_timestamp.is_some();
    match controller {
        Some(reference) if Some(&reference.uid) != owner.uid.as_ref() => ClaimAction::Ignore,
        Some(_) if selected => ClaimAction::Keep,
        Some(_) if ending => ClaimAction::Ignore,
        Some(_) => ClaimAction::Release,
        None if selected && alive && !ending => ClaimAction::Adopt,
        None => ClaimAction::Ignore,
    }
}

/// Like [`PodControl::claim_pods`], for other objects.
pub(crate) async fn claim_objects<T, K>(
    api: &Api<T>,
    owner: &K,
    selector: &LabelSelector,
    objects: Vec<Arc<T>>,
) -> Result<Vec<Arc<T>>, kube::Error>
where
    T: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    K: ControllerObject,
{
    let mut mine = Vec::new();
    for object in objects {
        let meta = object.meta();
        let (name, uid) = (meta.name.as_deref().unwrap_or_default(), meta.uid.as_deref().unwrap_or_default());
        let selected = meta.labels.as_ref().is_some_and(|labels| selects(selector, labels));
        let known = controller_of(meta.owner_references.as_deref().unwrap_or_default());
        match claim_action(owner.meta(), known, selected, meta.deletion_timestamp.is_none()) {
            ClaimAction::Ignore => {}
            ClaimAction::Keep => mine.push(object),
            ClaimAction::Release => release(api, name, uid, owner, None).await?,
            ClaimAction::Adopt => {
                adopt(api, name, uid, owner, None).await?;
                mine.push(object);
            }
        }
    }
    Ok(mine)
}

/// Returns the keys of the owners that an object affects: its controller, or all owners that select it if it has
/// none.
pub(crate) fn affected_owners<K: ControllerObject + Cached>(
    known: &SharedInformer<K>,
    namespace: &str,
    controller: Option<&OwnerReference>,
    selects: impl Fn(&K) -> bool,
) -> Vec<String> {
    if let Some(owner) = controller {
        let controller = known.get(namespace, &owner.name).filter(|_| owner.kind == K::kind(&()));
        return controller.iter().map(|object| key(object.as_ref())).collect();
    }
    let all = known.in_namespace(namespace).into_iter();
    all.filter(|object| selects(object)).map(|object| key(object.as_ref())).collect()
}

/// Sets the owner as controller, and adds the finalizer if there is one.
pub(crate) async fn adopt<T, K>(
    api: &Api<T>,
    name: &str,
    uid: &str,
    by: &K,
    finalizer: Option<&str>,
) -> Result<(), kube::Error>
where
    T: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    K: ControllerObject,
{
    let mut patch = json!({"metadata": {"uid": uid, "ownerReferences": [new_controller_ref(by)]}});
    if let Some(finalizer) = finalizer {
        patch["metadata"]["finalizers"] = json!([finalizer]);
    }
    ignore_missing_or_replaced(api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await)
}

/// Removes the owner's reference, and the finalizer if there is one.
pub(crate) async fn release<T, K>(
    api: &Api<T>,
    name: &str,
    uid: &str,
    by: &K,
    finalizer: Option<&str>,
) -> Result<(), kube::Error>
where
    T: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    K: ControllerObject,
{
    // Owner references are merged by UID. The object's UID is a precondition.
    let owners = json!([{"$patch": "delete", "uid": by.meta().uid}]);
    let mut patch = json!({"metadata": {"uid": uid, "ownerReferences": owners}});
    if let Some(finalizer) = finalizer {
        patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
    }
    ignore_missing_or_replaced(api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await)
}

/// Returns an owner reference to the controller (`NewControllerRef`).
pub(crate) fn new_controller_ref<K: ControllerObject>(object: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: object.meta().name.clone().unwrap_or_default(),
        uid: object.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Returns a Pod of the template, with `name` as its `generateName` (`GetPodFromTemplate`).
pub(crate) fn pod_from_template<K: ControllerObject>(object: &K, template: &PodTemplateSpec, name: String) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(name),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![new_controller_ref(object)]),
            ..Default::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Returns whether the selector matches. An empty selector matches nothing.
pub(crate) fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let is_empty = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    !is_empty && matches(selector, labels)
}

/// Returns whether the selector matches. An empty selector matches everything.
pub(crate) fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let parsed = api::selector::LabelRequirements::from_object(selector);
    parsed.is_ok_and(|s| s.matches(|key| labels.get(key).map(String::as_str)))
}

/// Returns whether a creation failed because the namespace is terminating.
pub(crate) fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|d| &d.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Returns the message of the API server's Status.
pub(crate) fn error_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

fn ignore_missing_or_replaced<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(e) if is_code(&e, 404) || is_code(&e, 409) || is_code(&e, 422) => Ok(()),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(controller: Option<&str>, selected: bool, alive: bool, ending: bool, expected: ClaimAction) {
        let deleted = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
        let me = ObjectMeta {
            uid: Some("me".into()),
            deletion_timestamp: ending.then_some(deleted),
            ..ObjectMeta::default()
        };
        let controller = controller.map(|uid| OwnerReference { uid: uid.into(), ..OwnerReference::default() });
        assert_eq!(claim_action(&me, controller.as_ref(), selected, alive), expected);
    }

    #[test]
    fn owner_adopts_matching_orphans_and_releases_others() {
        check(Some("other"), true, true, false, ClaimAction::Ignore);
        check(Some("me"), true, false, true, ClaimAction::Keep);
        check(Some("me"), false, true, false, ClaimAction::Release);
        check(Some("me"), false, true, true, ClaimAction::Ignore);
        check(None, true, true, false, ClaimAction::Adopt);
        check(None, true, true, true, ClaimAction::Ignore);
        check(None, true, false, false, ClaimAction::Ignore);
        check(None, false, true, false, ClaimAction::Ignore);
    }
}
