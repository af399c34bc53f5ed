//! What controllers of workloads do to Pods: make, delete, adopt and release them, and tell so.

use crate::cache::{Cache, Kept, key};
use crate::members::{Member, controller};
use crate::recorder::Recorder;
use crate::worker::is_code;
use crate::written::Revision;
use futures::future::join_all;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// Why Pods could not be made or deleted: a reason, and the error.
pub(crate) type Failure = (&'static str, kube::Error);

/// Works with the Pods of one controller.
#[derive(Clone)]
pub(crate) struct PodControl {
    client: Client,
    pub(crate) recorder: Recorder,
    /// What holds the Pods that are adopted, and no longer those that are released.
    finalizer: Option<&'static str>,
}

impl PodControl {
    pub(crate) fn new(client: Client, component: &'static str) -> Self {
        Self { recorder: Recorder::new(client.clone(), component), client, finalizer: None }
    }

    pub(crate) fn holding(self, finalizer: &'static str) -> Self {
        Self { finalizer: Some(finalizer), ..self }
    }

    fn api(&self, about: &ObjectReference) -> Api<Pod> {
        Api::namespaced(self.client.clone(), about.namespace.as_deref().unwrap_or_default())
    }

    /// Makes Pods, first one, then twice as many each time: what fails once is not tried a thousand times. Gives how
    /// many there are now.
    pub(crate) async fn make(
        &self,
        about: &ObjectReference,
        mut pods: &[Pod],
        written: &mut Revision,
    ) -> (usize, Option<Failure>) {
        let (api, params, mut batch, mut count) = (self.api(about), PostParams::default(), 1, 0);
        while !pods.is_empty() {
            let (now, later) = pods.split_at(batch.min(pods.len()));
            let mut making = Vec::with_capacity(now.len());
            for pod in now {
                making.push(api.create(&params, pod));
            }
            let mut failure = None;
            for result in join_all(making).await {
                match result {
                    Ok(pod) => {
                        written.saw(&pod.metadata);
                        count += 1;
                        let name = pod.metadata.name.unwrap_or_default();
                        self.recorder.tell(about, false, "SuccessfulCreate", &format!("Created pod: {name}")).await;
                    }
                    // A namespace that goes takes all with it.
                    Err(e) if is_ending(&e) => return (count, None),
                    Err(e) => failure = Some(e),
                }
            }
            if let Some(e) = failure {
                self.recorder.tell(about, true, "FailedCreate", &format!("Error creating: {}", said(&e))).await;
                return (count, Some(("FailedCreate", e)));
            }
            pods = later;
            batch *= 2;
        }
        (count, None)
    }

    /// Deletes a Pod; gives whether it was there.
    pub(crate) async fn delete(
        &self,
        about: &ObjectReference,
        pod: &Member,
        written: &mut Revision,
    ) -> Result<bool, Failure> {
        let preconditions = Some(Preconditions { uid: Some(pod.uid.clone()), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.api(about).delete(&pod.name, &params).await {
            Ok(deleted) => {
                if let Some(pod) = deleted.left() {
                    written.saw(&pod.metadata);
                }
                self.recorder.tell(about, false, "SuccessfulDelete", &format!("Deleted pod: {}", pod.name)).await;
                Ok(true)
            }
            Err(e) if is_code(&e, 404) || is_code(&e, 409) => Ok(false),
            Err(e) => {
                self.recorder.tell(about, true, "FailedDelete", &format!("Error deleting: {}", said(&e))).await;
                Err(("FailedDelete", e))
            }
        }
    }

    /// Of these Pods, the owner's: those that it controls, but for those that it no longer selects, and those that it
    /// selects and nobody controls.
    pub(crate) async fn claim<K: Claims>(
        &self,
        owner: &K,
        selector: &LabelSelector,
        pods: Vec<Arc<Member>>,
    ) -> Result<Vec<Arc<Member>>, kube::Error> {
        self.claim_if(owner, |pod| selects(selector, &pod.labels), pods).await
    }

    /// The same for an owner that selects otherwise.
    pub(crate) async fn claim_if<K: Claims>(
        &self,
        owner: &K,
        selects: impl Fn(&Member) -> bool + Send,
        pods: Vec<Arc<Member>>,
    ) -> Result<Vec<Arc<Member>>, kube::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), owner.meta().namespace.as_deref().unwrap_or_default());
        let mut mine = Vec::new();
        for pod in pods {
            match claim(owner.meta(), pod.controller.as_ref(), selects(&pod), pod.active) {
                Claim::Not => {}
                Claim::Mine => mine.push(pod),
                Claim::Release => release(&api, &pod.name, &pod.uid, owner, self.finalizer).await?,
                Claim::Adopt => {
                    adopt(&api, &pod.name, &pod.uid, owner, self.finalizer).await?;
                    mine.push(pod);
                }
            }
        }
        Ok(mine)
    }

    /// Removes what holds a Pod.
    pub(crate) async fn unhold(
        &self,
        pod: &Member,
        finalizer: &str,
        written: &mut Revision,
    ) -> Result<(), kube::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let patch = json!({"metadata": {"uid": pod.uid, "$deleteFromPrimitiveList/finalizers": [finalizer]}});
        let patched = api.patch(&pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        if let Ok(pod) = &patched {
            written.saw(&pod.metadata);
        }
        gone_is_fine(patched)
    }
}

/// What may control objects.
pub(crate) trait Claims: Resource<DynamicType = ()> + Sync {}
impl<K: Resource<DynamicType = ()> + Sync> Claims for K {}

/// What an owner has to do with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    Not,
    Mine,
    Adopt,
    Release,
}

/// What an owner has to do with an object that has this controller (`ClaimObject`).
pub(crate) fn claim(owner: &ObjectMeta, controller: Option<&OwnerReference>, selected: bool, alive: bool) -> Claim {
    let ending = owner.deletion_timestamp.is_some();
    match controller {
        Some(reference) if Some(&reference.uid) != owner.uid.as_ref() => Claim::Not,
        Some(_) if selected => Claim::Mine,
        Some(_) if ending => Claim::Not,
        Some(_) => Claim::Release,
        None if selected && alive && !ending => Claim::Adopt,
        None => Claim::Not,
    }
}

/// Of these objects, the owner's, by the same rules.
pub(crate) async fn claim_all<T, K>(
    api: &Api<T>,
    owner: &K,
    selector: &LabelSelector,
    objects: Vec<Arc<T>>,
) -> Result<Vec<Arc<T>>, kube::Error>
where
    T: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    K: Claims,
{
    let mut mine = Vec::new();
    for object in objects {
        let meta = object.meta();
        let (name, uid) = (meta.name.as_deref().unwrap_or_default(), meta.uid.as_deref().unwrap_or_default());
        let selected = meta.labels.as_ref().is_some_and(|labels| selects(selector, labels));
        let known = controller(meta.owner_references.as_deref().unwrap_or_default());
        match claim(owner.meta(), known, selected, meta.deletion_timestamp.is_none()) {
            Claim::Not => {}
            Claim::Mine => mine.push(object),
            Claim::Release => release(api, name, uid, owner, None).await?,
            Claim::Adopt => {
                adopt(api, name, uid, owner, None).await?;
                mine.push(object);
            }
        }
    }
    Ok(mine)
}

/// The keys of those that an object is a matter of: of the one that controls it, or of all that select it when nobody
/// does.
pub(crate) fn concerned<K: Claims + Kept>(
    known: &Cache<K>,
    namespace: &str,
    controller: Option<&OwnerReference>,
    selects: impl Fn(&K) -> bool,
) -> Vec<String> {
    if let Some(owner) = controller {
        let own = known.get(namespace, &owner.name).filter(|_| owner.kind == K::kind(&()));
        return own.iter().map(|object| key(object.as_ref())).collect();
    }
    let all = known.in_namespace(namespace).into_iter();
    all.filter(|object| selects(object)).map(|object| key(object.as_ref())).collect()
}

/// The owner controls the object from now on; a finalizer may hold it for that.
pub(crate) async fn adopt<T, K>(
    api: &Api<T>,
    name: &str,
    uid: &str,
    by: &K,
    finalizer: Option<&str>,
) -> Result<(), kube::Error>
where
    T: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    K: Claims,
{
    let mut patch = json!({"metadata": {"uid": uid, "ownerReferences": [owner(by)]}});
    if let Some(finalizer) = finalizer {
        patch["metadata"]["finalizers"] = json!([finalizer]);
    }
    gone_is_fine(api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await)
}

/// The owner controls the object no longer.
pub(crate) async fn release<T, K>(
    api: &Api<T>,
    name: &str,
    uid: &str,
    by: &K,
    finalizer: Option<&str>,
) -> Result<(), kube::Error>
where
    T: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    K: Claims,
{
    // Owners are merged by their UID; that of the object makes sure that it is this one.
    let owners = json!([{"$patch": "delete", "uid": by.meta().uid}]);
    let mut patch = json!({"metadata": {"uid": uid, "ownerReferences": owners}});
    if let Some(finalizer) = finalizer {
        patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
    }
    gone_is_fine(api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await)
}

/// How an object names the one that controls it.
pub(crate) fn owner<K: Claims>(object: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: object.meta().name.clone().unwrap_or_default(),
        uid: object.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A Pod as a template has it. Its name begins with this.
pub(crate) fn pod_of<K: Claims>(object: &K, template: &PodTemplateSpec, name: String) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(name),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![owner(object)]),
            ..Default::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Whether a label selector selects these labels; one that is empty selects nothing here.
pub(crate) fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let is_empty = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    !is_empty && matches(selector, labels)
}

/// Whether a label selector selects these labels; one that is empty selects all.
pub(crate) fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let parsed = api::selector::Selector::from_object(selector);
    parsed.is_ok_and(|s| s.matches(|key| labels.get(key).map(String::as_str)))
}

/// Whether nothing can be made because the namespace goes.
pub(crate) fn is_ending(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|d| &d.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// What the API server said.
pub(crate) fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

fn gone_is_fine<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(e) if is_code(&e, 404) || is_code(&e, 409) || is_code(&e, 422) => Ok(()),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(controller: Option<&str>, selected: bool, alive: bool, ending: bool, expected: Claim) {
        let deleted = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
        let me = ObjectMeta {
            uid: Some("me".into()),
            deletion_timestamp: ending.then_some(deleted),
            ..ObjectMeta::default()
        };
        let controller = controller.map(|uid| OwnerReference { uid: uid.into(), ..OwnerReference::default() });
        assert_eq!(claim(&me, controller.as_ref(), selected, alive), expected);
    }

    #[test]
    fn an_owner_adopts_what_nobody_controls_and_releases_what_it_does_not_select() {
        check(Some("other"), true, true, false, Claim::Not);
        check(Some("me"), true, false, true, Claim::Mine);
        check(Some("me"), false, true, false, Claim::Release);
        check(Some("me"), false, true, true, Claim::Not);
        check(None, true, true, false, Claim::Adopt);
        check(None, true, true, true, Claim::Not);
        check(None, true, false, false, Claim::Not);
        check(None, false, true, false, Claim::Not);
    }
}
