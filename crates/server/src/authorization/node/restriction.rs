//! What a node may write of what it may write at all: its own Node and Lease, mirrors of its own Pods, and their status
//! (`plugin/pkg/admission/noderestriction`).

use super::name as node_of;
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

/// What is done to an object.
#[derive(Clone, Copy)]
pub(crate) enum Operation<'a> {
    Create(&'a Value),
    /// The new one, then the old one.
    Update(&'a Value, &'a Value),
    Delete(&'a Value),
    Evict(&'a Value),
}

/// How an object goes.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Delete,
    Evict,
}

/// Refuses what a node may not write; others are not concerned.
pub(crate) fn restrict(
    server: &ApiServer,
    user: &UserInfo,
    resource: &RequestInfo,
    operation: Operation<'_>,
) -> Result<(), ApiError> {
    let Some(node) = node_of(user) else { return Ok(()) };
    let info = resource.kind.info();
    let (Operation::Create(object)
    | Operation::Update(object, _)
    | Operation::Delete(object)
    | Operation::Evict(object)) = operation;
    let name = object["metadata"]["name"].as_str().unwrap_or("");
    let checked = match (info.group, info.plural) {
        _ if node.is_empty() => Err(format!("could not determine node from user {:?}", user.name)),
        ("", "pods") => pod(server, node, resource.subresource.as_deref(), operation),
        ("", "nodes") => own_node(node, name, operation),
        ("", "persistentvolumeclaims") => claim(node, operation),
        ("certificates.k8s.io", "certificatesigningrequests") => own_certificate(node, operation),
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

/// Refuses a node that an object goes which is not its own.
pub(crate) fn restrict_end(
    server: &ApiServer,
    user: &UserInfo,
    resource: &RequestInfo,
    key: &Key,
    end: End,
) -> Result<(), ApiError> {
    if node_of(user).is_none() {
        return Ok(());
    }
    let Some(current) = server.store.get(key) else { return Ok(()) };
    let object = object::decode(&*resource.kind, &current);
    let operation = match end {
        End::Delete => Operation::Delete(&object),
        End::Evict => Operation::Evict(&object),
    };
    restrict(server, user, resource, operation)
}

fn pod(server: &ApiServer, node: &str, part: Option<&str>, operation: Operation<'_>) -> Result<(), String> {
    let is_own = |pod: &Value| pod["spec"]["nodeName"] == node;
    match (part, operation) {
        (None, Operation::Create(pod)) => mirror_of_own(server, node, pod),
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
        (Some(part), _) => {
            Err(format!("unexpected pod subresource {part:?}, only 'status' and 'eviction' are allowed"))
        }
    }
}

/// A node shows what it runs, and reaches nothing through that.
fn mirror_of_own(server: &ApiServer, node: &str, pod: &Value) -> Result<(), String> {
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
    let uid = stored(server, "nodes", "", node)["metadata"]["uid"].clone();
    if owner["uid"] != uid {
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        return Err(format!("node {node} UID mismatch: expected {} got {}", text(&owner["uid"]), text(&uid)));
    }
    let checking = |why: String| format!("error checking mirror pod for API references: {why}");
    let spec: PodSpec = serde_json::from_value(pod["spec"].clone()).map_err(|e| checking(e.to_string()))?;
    match api::static_pod::api_reference(&spec).map_err(|error| checking(error.to_string()))? {
        Some(what) => Err(format!("node {node:?} can not create pods that reference {what}")),
        None => Ok(()),
    }
}

const UPDATE_SOURCE: &str = "update configSource to a new non-nil configSource";

fn own_node(node: &str, name: &str, operation: Operation<'_>) -> Result<(), String> {
    if name != node {
        return Err(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    let nothing = Value::Null;
    let (new, old) = match operation {
        Operation::Create(new) => (new, &nothing),
        Operation::Update(new, old) => (new, old),
        Operation::Delete(_) | Operation::Evict(_) => return Ok(()),
    };
    let source = |node: &Value| node["spec"]["configSource"].clone();
    if !source(new).is_null() && source(new) != source(old) {
        let what = if old.is_null() { "create pods with a non-nil configSource" } else { UPDATE_SOURCE };
        return Err(format!("node {node:?} is not allowed to {what}"));
    }
    let changed = |[part, field]: [&str; 2]| !old.is_null() && new[part][field] != old[part][field];
    if changed(["spec", "taints"]) {
        return Err(format!("node {node:?} is not allowed to modify taints"));
    }
    // The garbage collector takes what has an owner that is not there: the node would be made anew, without its taints.
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

/// A certificate for a node is asked for by that node.
fn own_certificate(node: &str, operation: Operation<'_>) -> Result<(), String> {
    const OF_NODES: [&str; 2] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];
    let Operation::Create(request) = operation else { return Ok(()) };
    if !OF_NODES.iter().any(|signer| request["spec"]["signerName"] == *signer) {
        return Ok(());
    }
    let user = certificates::requested_user(request["spec"]["request"].as_str().unwrap_or(""));
    let user = user.map_err(|why| format!("unable to parse csr: {why}"))?;
    if user.name == format!("system:node:{node}") {
        return Ok(());
    }
    Err(format!("can only create a node CSR with CN=system:node:{node}"))
}

/// Of a claim to storage a node tells how large it is, and nothing else.
fn claim(node: &str, operation: Operation<'_>) -> Result<(), String> {
    let rest = |claim: &Value| {
        let mut rest = claim.clone();
        if let Some(metadata) = rest["metadata"].as_object_mut() {
            ["resourceVersion", "managedFields"].iter().for_each(|field| drop(metadata.remove(*field)));
        }
        if let Some(status) = rest["status"].as_object_mut() {
            let told = ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"];
            told.iter().for_each(|field| drop(status.remove(*field)));
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

/// Labels by which a node would draw Pods to itself: those of Kubernetes that are not for kubelets to set.
fn forbidden_labels<'a>(new: &'a Value, old: &'a Value) -> BTreeSet<&'a str> {
    let keys = |labels: &'a Value| labels.as_object().into_iter().flat_map(|map| map.keys());
    let changed = keys(new).chain(keys(old)).filter(|key| new.get(key.as_str()) != old.get(key.as_str()));
    changed.map(String::as_str).filter(|key| is_forbidden(key)).collect()
}

fn is_forbidden(label: &str) -> bool {
    const FREE: [&str; 11] = [
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
    let within = |of: &str| domain == of || domain.strip_suffix(of).is_some_and(|rest| rest.ends_with('.'));
    let kubelets = FREE.contains(&label) || within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    within("node-restriction.kubernetes.io") || ((within("kubernetes.io") || within("k8s.io")) && !kubelets)
}

pub(super) fn stored(server: &ApiServer, resource: &'static str, namespace: &str, name: &str) -> Value {
    let found = server.store.get(&Key::new(resource, namespace, name));
    found.and_then(|object| serde_json::from_slice(&object.data).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_draw_pods_are_not_for_nodes_to_set() {
        for free in
            ["own", "example.com/a", "kubernetes.io/hostname", "x.kubelet.kubernetes.io/a", "node.kubernetes.io/a"]
        {
            assert!(!is_forbidden(free), "{free}");
        }
        for bad in [
            "node-restriction.kubernetes.io/a",
            "x.node-restriction.kubernetes.io/a",
            "kubernetes.io/a",
            "node-role.kubernetes.io/a",
            "x.k8s.io/a",
        ] {
            assert!(is_forbidden(bad), "{bad}");
        }
    }
}
