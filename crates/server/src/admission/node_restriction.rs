//! NodeRestriction: a node may write only its own Node and Lease, mirror Pods of its own static Pods, and the status of
//! its own Pods (`plugin/pkg/admission/noderestriction`).

mod token_restriction;

pub(crate) use token_restriction::restrict_token;

use crate::objects::{object, request_scope::RequestScope};
use auth::{
    authorization::node::{LEASES, node_identity},
    stored_object,
};
use errors::ApiError;
use k8s_openapi::api::core::v1::PodSpec;
use kinds::{KindInfo, certificates, pod::mirror_pod};
use request::UserInfo;
use serde_json::Value;
use std::collections::BTreeSet;
use store::{Key, Store};

/// The operation on an object.
#[derive(Clone, Copy)]
pub(crate) enum Operation<'a> {
    Create(&'a Value),
    /// The new and the old object.
    Update(&'a Value, &'a Value),
    Delete(&'a Value),
    Evict(&'a Value),
}

/// How an object is removed.
#[derive(Clone, Copy)]
pub(crate) enum Removal {
    Delete,
    Evict,
}

/// Returns a Forbidden error if a node may not write the object. Allows all other users.
pub(crate) fn restrict(
    store: &Store,
    user: &UserInfo,
    resource: &RequestScope,
    operation: Operation<'_>,
) -> Result<(), ApiError> {
    let Some(node) = node_identity(user) else { return Ok(()) };
    let info = resource.kind.info();
    let (Operation::Create(object)
    | Operation::Update(object, _)
    | Operation::Delete(object)
    | Operation::Evict(object)) = operation;
    let name = object["metadata"]["name"].as_str().unwrap_or("");
    let write = NodeWrite { store, node, info, name, operation };
    match (info.group, info.plural) {
        _ if node.is_empty() => write.forbid(format!("could not determine node from user {:?}", user.name)),
        ("", "pods") => write.check_pod(resource.subresource.as_deref()),
        ("", "nodes") => write.check_node(),
        ("", "persistentvolumeclaims") => write.check_claim_status(),
        ("certificates.k8s.io", "certificatesigningrequests") => write.check_certificate_signing_request(),
        ("coordination.k8s.io", "leases") if &*resource.namespace != LEASES => {
            write.forbid(format!("can only access leases in the {:?} system namespace", LEASES))
        }
        ("coordination.k8s.io", "leases") if name != node => {
            write.forbid("can only access node lease with the same name as the requesting node")
        }
        ("storage.k8s.io", "csinodes") if name != node => {
            write.forbid("can only access CSINode with the same name as the requesting node")
        }
        ("resource.k8s.io", "resourceslices") if object["spec"]["nodeName"] != node => {
            write.forbid("can only access ResourceSlice with the same NodeName as the requesting node")
        }
        _ => Ok(()),
    }
}

/// Returns a Forbidden error if a node may not delete or evict the object. Allows all other users.
pub(crate) fn restrict_removal(
    store: &Store,
    user: &UserInfo,
    resource: &RequestScope,
    key: &Key,
    removal: Removal,
) -> Result<(), ApiError> {
    if node_identity(user).is_none() {
        return Ok(());
    }
    let Some(current) = store.get(key) else { return Ok(()) };
    let object = object::decode(&*resource.kind, &current);
    let operation = match removal {
        Removal::Delete => Operation::Delete(&object),
        Removal::Evict => Operation::Evict(&object),
    };
    restrict(store, user, resource, operation)
}

const UPDATE_CONFIG_SOURCE: &str = "update configSource to a new non-nil configSource";

/// A write of a node.
struct NodeWrite<'a> {
    store: &'a Store,
    node: &'a str,
    /// Kind of the object.
    info: &'a KindInfo,
    /// Name of the object.
    name: &'a str,
    operation: Operation<'a>,
}

impl NodeWrite<'_> {
    fn forbidden(&self, message: impl AsRef<str>) -> ApiError {
        ApiError::forbidden(self.info, self.name, message.as_ref())
    }

    /// Denies the write.
    fn forbid(&self, message: impl AsRef<str>) -> Result<(), ApiError> {
        Err(self.forbidden(message))
    }

    /// Checks a write of a Pod, its status, or its eviction.
    fn check_pod(&self, subresource: Option<&str>) -> Result<(), ApiError> {
        let node = self.node;
        let is_own = |pod: &Value| pod["spec"]["nodeName"] == node;
        match (subresource, self.operation) {
            (None, Operation::Create(pod)) => self.check_mirror_pod(pod),
            (None, Operation::Delete(pod)) if is_own(pod) => Ok(()),
            (None, Operation::Delete(_)) => {
                self.forbid(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
            }
            (_, Operation::Evict(pod)) if is_own(pod) => Ok(()),
            (_, Operation::Evict(_)) => {
                self.forbid(format!("node {node} can only evict pods with spec.nodeName set to itself"))
            }
            (Some("status"), Operation::Update(new, old)) => {
                let claims = |pod: &Value| pod["status"]["resourceClaimStatuses"].clone();
                if !is_own(old) {
                    self.forbid(format!(
                        "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
                    ))
                } else if new["metadata"]["labels"] != old["metadata"]["labels"] {
                    self.forbid(format!("node {node:?} cannot update labels through pod status"))
                } else if claims(new) != claims(old) {
                    self.forbid(format!("node {node:?} cannot update resource claim statues"))
                } else {
                    Ok(())
                }
            }
            (None, _) => self.forbid(format!(
                "unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"
            )),
            (Some(subresource), _) => self.forbid(format!(
                "unexpected pod subresource {subresource:?}, only 'status' and 'eviction' are allowed"
            )),
        }
    }

    /// Checks a new mirror Pod: owned by the node, and without references to API objects.
    fn check_mirror_pod(&self, pod: &Value) -> Result<(), ApiError> {
        let node = self.node;
        let annotation = api::static_pod::CONFIG_MIRROR;
        if !mirror_pod::is_mirror_pod(pod) {
            return self.forbid(format!(
                "pod does not have {annotation:?} annotation, node {node:?} can only create mirror pods"
            ));
        }
        let can_only = |kind: &str| self.forbid(format!("node {node:?} can only create pods with {kind}"));
        if pod["spec"]["nodeName"] != node {
            return can_only("spec.nodeName set to itself");
        }
        let owners = pod["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        let owner = match owners {
            [one] => one,
            [] => return can_only("an owner reference set to itself"),
            _ => return can_only("a single owner reference set to itself"),
        };
        if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
            return can_only("an owner reference set to itself");
        }
        if owner["controller"] != true {
            return can_only("a controller owner reference set to itself");
        }
        if owner["blockOwnerDeletion"] == true {
            return self.forbid(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
        }
        let uid = stored_object::get(self.store, "nodes", "", node).unwrap_or_default()["metadata"]["uid"].clone();
        if owner["uid"] != uid {
            let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
            return self.forbid(format!(
                "node {node} UID mismatch: expected {} got {}",
                text(&owner["uid"]),
                text(&uid)
            ));
        }
        let check_failed = |cause: &dyn std::fmt::Display| {
            self.forbidden(format!("error checking mirror pod for API references: {cause}"))
        };
        let spec: PodSpec = decode::from_value(&pod["spec"]).map_err(|e| check_failed(&e))?;
        match api::static_pod::api_reference(&spec).map_err(|e| check_failed(&e))? {
            Some(kind) => self.forbid(format!("node {node:?} can not create pods that reference {kind}")),
            None => Ok(()),
        }
    }

    /// Checks a write of a Node: its own one, without changed taints, owners, or labels of other kubelets.
    fn check_node(&self) -> Result<(), ApiError> {
        let (node, name) = (self.node, self.name);
        if name != node {
            return self.forbid(format!("node {node:?} is not allowed to modify node {name:?}"));
        }
        let null = Value::Null;
        let (new, old) = match self.operation {
            Operation::Create(new) => (new, &null),
            Operation::Update(new, old) => (new, old),
            Operation::Delete(_) | Operation::Evict(_) => return Ok(()),
        };
        let source = |node: &Value| node["spec"]["configSource"].clone();
        if !source(new).is_null() && source(new) != source(old) {
            let action = if old.is_null() { "create pods with a non-nil configSource" } else { UPDATE_CONFIG_SOURCE };
            return self.forbid(format!("node {node:?} is not allowed to {action}"));
        }
        let changed = |[parent, field]: [&str; 2]| !old.is_null() && new[parent][field] != old[parent][field];
        if changed(["spec", "taints"]) {
            return self.forbid(format!("node {node:?} is not allowed to modify taints"));
        }
        // The garbage collector would delete a Node with an absent owner; the kubelet would recreate it without its
        // taints.
        if changed(["metadata", "ownerReferences"]) {
            return self.forbid(format!("node {node:?} is not allowed to modify ownerReferences"));
        }
        let forbidden = forbidden_labels(&new["metadata"]["labels"], &old["metadata"]["labels"]);
        if forbidden.is_empty() {
            return Ok(());
        }
        let forbidden = forbidden.into_iter().collect::<Vec<_>>().join(", ");
        self.forbid(match self.operation {
            Operation::Create(_) => format!("node {node:?} is not allowed to set the following labels: {forbidden}"),
            _ => format!("is not allowed to modify labels: {forbidden}"),
        })
    }

    /// Checks a new CSR for a kubelet certificate: its subject is the node itself.
    fn check_certificate_signing_request(&self) -> Result<(), ApiError> {
        const KUBELET_SIGNERS: [&str; 2] =
            ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];
        let node = self.node;
        let Operation::Create(request) = self.operation else { return Ok(()) };
        if !KUBELET_SIGNERS.iter().any(|signer| request["spec"]["signerName"] == *signer) {
            return Ok(());
        }
        let user = certificates::requested_user(request["spec"]["request"].as_str().unwrap_or(""));
        let user = user.map_err(|e| self.forbidden(format!("unable to parse csr: {e}")))?;
        if user.name == format!("system:node:{node}") {
            return Ok(());
        }
        self.forbid(format!("can only create a node CSR with CN=system:node:{node}"))
    }

    /// Checks an update of a PersistentVolumeClaim: a node may change its capacity and conditions only.
    fn check_claim_status(&self) -> Result<(), ApiError> {
        let node = self.node;
        let rest = |claim: &Value| {
            let mut rest = claim.clone();
            if let Some(metadata) = rest["metadata"].as_object_mut() {
                ["resourceVersion", "managedFields"].iter().for_each(|field| drop(metadata.remove(*field)));
            }
            if let Some(status) = rest["status"].as_object_mut() {
                let allowed = ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"];
                allowed.iter().for_each(|field| drop(status.remove(*field)));
            }
            rest
        };
        match self.operation {
            Operation::Update(new, old) if rest(new) != rest(old) => self.forbid(format!(
                "node {node:?} is not allowed to update fields other than status.capacity and status.conditions"
            )),
            _ => Ok(()),
        }
    }
}

/// Returns changed labels that kubelets may not set, because Pods could be attracted by them.
fn forbidden_labels<'a>(new: &'a Value, old: &'a Value) -> BTreeSet<&'a str> {
    let keys = |labels: &'a Value| labels.as_object().into_iter().flat_map(|map| map.keys());
    let changed = keys(new).chain(keys(old)).filter(|key| new.get(key.as_str()) != old.get(key.as_str()));
    changed.map(String::as_str).filter(|key| is_forbidden(key)).collect()
}

fn is_forbidden(label: &str) -> bool {
    const KUBELET_LABELS: [&str; 11] = [
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    ];
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let is_in_domain =
        |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    let is_allowed =
        KUBELET_LABELS.contains(&label) || is_in_domain("kubelet.kubernetes.io") || is_in_domain("node.kubernetes.io");
    is_in_domain("node-restriction.kubernetes.io")
        || ((is_in_domain("kubernetes.io") || is_in_domain("k8s.io")) && !is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelets_may_set_only_their_own_kubernetes_labels() {
        for allowed in
            ["own", "example.com/a", "kubernetes.io/hostname", "x.kubelet.kubernetes.io/a", "node.kubernetes.io/a"]
        {
            assert!(!is_forbidden(allowed), "{allowed}");
        }
        for forbidden in [
            "node-restriction.kubernetes.io/a",
            "x.node-restriction.kubernetes.io/a",
            "kubernetes.io/a",
            "node-role.kubernetes.io/a",
            "x.k8s.io/a",
        ] {
            assert!(is_forbidden(forbidden), "{forbidden}");
        }
    }
}
