//! NodeRestriction: a node may write only its own Node and Lease, mirror Pods of its own static Pods, and the status of its own
//! Pods (`plugin/pkg/admission/noderestriction`).

use super::node_identity;
use crate::{
    ApiServer, UserInfo,
    kinds::{certificates, pod::mirror_pod},
    object,
    request::RequestInfo,
    status::ApiError,
};
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;
use std::collections::BTreeSet;
use store::Key;

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
    server: &ApiServer,
    user: &UserInfo,
    resource: &RequestInfo,
    operation: Operation<'_>,
) -> Result<(), ApiError> {
    let Some(node) = node_identity(user) else { return Ok(()) };
    let info = resource.kind.info();
    let (Operation::Create(object)
    | Operation::Update(object, _)
    | Operation::Delete(object)
    | Operation::Evict(object)) = operation;
    let name = object["metadata"]["name"].as_str().unwrap_or("");
    let checked = match (info.group, info.plural) {
        _ if node.is_empty() => Err(format!("could not determine node from user {:?}", user.name)),
        ("", "pods") => check_pod(server, node, resource.subresource.as_deref(), operation),
        ("", "nodes") => check_node(node, name, operation),
        ("", "persistentvolumeclaims") => check_claim_status(node, operation),
        ("certificates.k8s.io", "certificatesigningrequests") => check_certificate_signing_request(node, operation),
        ("coordination.k8s.io", "leases") if &*resource.namespace != super::LEASES => {
            Err(format!("can only access leases in the {:?} system namespace", super::LEASES))
        }
        ("coordination.k8s.io", "leases") if name != node => {
            Err("can only access node lease with the same name as the requesting node".to_owned())
        }
        ("storage.k8s.io", "csinodes") if name != node => {
            Err("can only access CSINode with the same name as the requesting node".to_owned())
        }
        ("resource.k8s.io", "resourceslices") if object["spec"]["nodeName"] != node => {
            Err("can only access ResourceSlice with the same NodeName as the requesting node".to_owned())
        }
        _ => Ok(()),
    };
    checked.map_err(|why| ApiError::forbidden(info, name, &why))
}

/// Returns a Forbidden error if a node may not delete or evict the object. Allows all other users.
pub(crate) fn restrict_removal(
    server: &ApiServer,
    user: &UserInfo,
    resource: &RequestInfo,
    key: &Key,
    removal: Removal,
) -> Result<(), ApiError> {
    if node_identity(user).is_none() {
        return Ok(());
    }
    let Some(current) = server.store.get(key) else { return Ok(()) };
    let object = object::decode(&*resource.kind, &current);
    let operation = match removal {
        Removal::Delete => Operation::Delete(&object),
        Removal::Evict => Operation::Evict(&object),
    };
    restrict(server, user, resource, operation)
}

fn check_pod(
    server: &ApiServer,
    node: &str,
    subresource: Option<&str>,
    operation: Operation<'_>,
) -> Result<(), String> {
    let is_own = |pod: &Value| pod["spec"]["nodeName"] == node;
    match (subresource, operation) {
        (None, Operation::Create(pod)) => check_mirror_pod(server, node, pod),
        (None, Operation::Delete(pod)) if is_own(pod) => Ok(()),
        (None, Operation::Delete(_)) => {
            Err(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
        }
        (_, Operation::Evict(pod)) if is_own(pod) => Ok(()),
        (_, Operation::Evict(_)) => Err(format!("node {node} can only evict pods with spec.nodeName set to itself")),
        (Some("status"), Operation::Update(new, old)) => {
            let claims = |pod: &Value| pod["status"]["resourceClaimStatuses"].clone();
            if !is_own(old) {
                Err(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"))
            } else if new["metadata"]["labels"] != old["metadata"]["labels"] {
                Err(format!("node {node:?} cannot update labels through pod status"))
            } else if claims(new) != claims(old) {
                Err(format!("node {node:?} cannot update resource claim statues"))
            } else {
                Ok(())
            }
        }
        (None, _) => {
            Err(format!("unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"))
        }
        (Some(subresource), _) => {
            Err(format!("unexpected pod subresource {subresource:?}, only 'status' and 'eviction' are allowed"))
        }
    }
}

/// Checks a new mirror Pod: owned by the node, and without references to API objects.
fn check_mirror_pod(server: &ApiServer, node: &str, pod: &Value) -> Result<(), String> {
    let annotation = api::static_pod::CONFIG_MIRROR;
    if !mirror_pod::is_mirror_pod(pod) {
        return Err(format!("pod does not have {annotation:?} annotation, node {node:?} can only create mirror pods"));
    }
    let can_only = |what: &str| Err(format!("node {node:?} can only create pods with {what}"));
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
        return Err(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let uid = read_object(server, "nodes", "", node)["metadata"]["uid"].clone();
    if owner["uid"] != uid {
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        return Err(format!("node {node} UID mismatch: expected {} got {}", text(&owner["uid"]), text(&uid)));
    }
    let check_failed = |why: String| format!("error checking mirror pod for API references: {why}");
    let spec: PodSpec = serde_json::from_value(pod["spec"].clone()).map_err(|e| check_failed(e.to_string()))?;
    match api::static_pod::api_reference(&spec).map_err(|error| check_failed(error.to_string()))? {
        Some(what) => Err(format!("node {node:?} can not create pods that reference {what}")),
        None => Ok(()),
    }
}

const UPDATE_CONFIG_SOURCE: &str = "update configSource to a new non-nil configSource";

fn check_node(node: &str, name: &str, operation: Operation<'_>) -> Result<(), String> {
    if name != node {
        return Err(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    let null = Value::Null;
    let (new, old) = match operation {
        Operation::Create(new) => (new, &null),
        Operation::Update(new, old) => (new, old),
        Operation::Delete(_) | Operation::Evict(_) => return Ok(()),
    };
    let source = |node: &Value| node["spec"]["configSource"].clone();
    if !source(new).is_null() && source(new) != source(old) {
        let what = if old.is_null() { "create pods with a non-nil configSource" } else { UPDATE_CONFIG_SOURCE };
        return Err(format!("node {node:?} is not allowed to {what}"));
    }
    let changed = |[parent, field]: [&str; 2]| !old.is_null() && new[parent][field] != old[parent][field];
    if changed(["spec", "taints"]) {
        return Err(format!("node {node:?} is not allowed to modify taints"));
    }
    // The garbage collector would delete a Node with an absent owner; the kubelet would recreate it without its taints.
    if changed(["metadata", "ownerReferences"]) {
        return Err(format!("node {node:?} is not allowed to modify ownerReferences"));
    }
    let forbidden = forbidden_labels(&new["metadata"]["labels"], &old["metadata"]["labels"]);
    if forbidden.is_empty() {
        return Ok(());
    }
    let forbidden = forbidden.into_iter().collect::<Vec<_>>().join(", ");
    Err(match operation {
        Operation::Create(_) => format!("node {node:?} is not allowed to set the following labels: {forbidden}"),
        _ => format!("is not allowed to modify labels: {forbidden}"),
    })
}

/// Checks a new CSR for a kubelet certificate: its subject is the node itself.
fn check_certificate_signing_request(node: &str, operation: Operation<'_>) -> Result<(), String> {
    const KUBELET_SIGNERS: [&str; 2] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];
    let Operation::Create(request) = operation else { return Ok(()) };
    if !KUBELET_SIGNERS.iter().any(|signer| request["spec"]["signerName"] == *signer) {
        return Ok(());
    }
    let user = certificates::requested_user(request["spec"]["request"].as_str().unwrap_or(""));
    let user = user.map_err(|why| format!("unable to parse csr: {why}"))?;
    if user.name == format!("system:node:{node}") {
        return Ok(());
    }
    Err(format!("can only create a node CSR with CN=system:node:{node}"))
}

/// Checks an update of a PersistentVolumeClaim: a node may change its capacity and conditions only.
fn check_claim_status(node: &str, operation: Operation<'_>) -> Result<(), String> {
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
    match operation {
        Operation::Update(new, old) if rest(new) != rest(old) => Err(format!(
            "node {node:?} is not allowed to update fields other than status.capacity and status.conditions"
        )),
        _ => Ok(()),
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

/// Returns a stored object, or null.
pub(super) fn read_object(server: &ApiServer, resource: &'static str, namespace: &str, name: &str) -> Value {
    let found = server.store.get(&Key::new(resource, namespace, name));
    found.and_then(|object| serde_json::from_slice(&object.data).ok()).unwrap_or_default()
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
