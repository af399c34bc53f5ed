//! Binding of Pods (`pods/binding`).

use crate::{
    admission::{dynamic, pod_topology_labels},
    http::clock::now,
    objects::{
        call::Call, decode, object, object_identity::set_request_namespace, request_scope::RequestScope,
        storage_errors, write::dry_run,
    },
    rest::{generic_registry::GenericRegistry, store_quota::Purpose},
};
use errors::{ApiError, GroupKind, GroupResource};
use kinds::{FieldErrors, FieldPath, KindRef, POD};
use response::HandlerResult;
use serde_json::{Value, json};
use store::{Precondition, Write, WriteError};

/// Attempts of a binding when other writes come first.
const MAX_ATTEMPTS: usize = 20;

pub(crate) fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// Parses the body of a Pod's subresource, which must be of a kind and have the Pod's name.
pub(crate) fn body(resource: &RequestScope, call: &Call, kind: &str) -> Result<Value, ApiError> {
    let (mut value, name) = (decode::body_of_kind(call, kind)?, resource.name.as_deref().unwrap_or(""));
    set_request_namespace(resource, &mut value)?;
    if value["metadata"]["name"].as_str().unwrap_or("") != name {
        return Err(ApiError::bad_request(format!("name in URL does not match name in {kind} object")));
    }
    Ok(value)
}

/// Returns the target node of a Binding.
fn target(binding: &Value, name: &str) -> Result<String, ApiError> {
    let (mut errors, path) = (FieldErrors::default(), FieldPath::new("target"));
    let kind = &binding["target"]["kind"];
    if !matches!(kind.as_str(), None | Some("" | "Node")) {
        errors.not_supported(&path.child("kind"), kind, &["Node", "<empty>"]);
    }
    let target = binding["target"]["name"].as_str().unwrap_or("");
    if target.is_empty() {
        errors.required(&path.child("name"), "");
    }
    if errors.is_empty() {
        Ok(target.to_owned())
    } else {
        Err(ApiError::invalid(GroupKind::new("", "Binding"), name, &errors))
    }
}

/// Returns why a Pod cannot be bound (upstream's `setPodNodeAndMetadata`).
fn binding_conflict(pod: &Value, name: &str, binding: &Value) -> Option<String> {
    for (field, label) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (expected, found) = (&binding["metadata"][field], &pod["metadata"][field]);
        if expected.as_str().is_some_and(|w| !w.is_empty()) && expected != found {
            let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
            return Some(format!(
                "Precondition failed: {label} in precondition: {}, {label} in object meta: {}",
                text(expected),
                text(found)
            ));
        }
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return Some(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()) {
        return Some(format!("pod {name} is already assigned to node {node:?}"));
    }
    let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|g| !g.is_empty());
    gated.then(|| format!("pod {name} has non-empty .spec.schedulingGates"))
}

/// Binds the Pod of a Binding that is sent to `bindings`.
pub(crate) async fn bind_any(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> HandlerResult {
    if call.method != http::Method::POST || resource.name.is_some() || resource.namespace.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    let binding = decode::body_of_kind(call, "Binding")?;
    let name = binding["metadata"]["name"].as_str().unwrap_or("");
    // Admission webhooks need the name of the object.
    let named = RequestScope { name: Some(name.to_owned()), ..resource.clone() };
    bind_as(registry, &named, call, &KindRef::BuiltIn(POD)).await
}

/// Binds a Pod to a node (`pods/binding`).
pub(crate) async fn bind(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> HandlerResult {
    bind_as(registry, resource, call, &resource.kind).await
}

async fn bind_as(registry: &GenericRegistry, resource: &RequestScope, call: &Call, kind: &KindRef) -> HandlerResult {
    let (kind, name) = (&**kind, resource.name.as_deref().unwrap_or(""));
    let dry = dry_run(&call.query, "CreateOptions")?;
    let mut binding = body(resource, call, "Binding")?;
    pod_topology_labels::admit_binding(&registry.admission, &mut binding);
    dynamic::admit_body(&registry.admission, resource, call, ["", "v1", "Binding"], &mut binding, dry).await?;
    let target = target(&binding, name)?;
    let key = object::key(kind, &resource.namespace, name);
    for _ in 0..MAX_ATTEMPTS {
        let current = registry.store.get(&key).ok_or_else(|| ApiError::not_found(kind.info(), name))?;
        let mut pod = object::decode(kind, &current);
        if let Some(message) = binding_conflict(&pod, name, &binding) {
            return Err(ApiError::conflict(GroupResource::core("pods/binding"), name, &message));
        }
        if dry {
            return Ok(response::json(201, &success()));
        }
        assign(&mut pod, &target, &binding);
        let write = Write::put(key.clone(), Precondition::Revision(current.revision), object::encode(kind, pod)?);
        match registry.store_object(&call.user, kind, Purpose::Update, write).await {
            Ok(_) => return Ok(response::json(201, &success())),
            Err(WriteError::Conflict { .. }) => {}
            Err(e) => return Err(storage_errors::from_write_error(&e, kind.info(), name)),
        }
    }
    Err(ApiError::optimistic_lock_conflict(kind.info(), name))
}

fn assign(pod: &mut Value, target: &str, binding: &Value) {
    pod["spec"]["nodeName"] = json!(target);
    // The scheduler can set annotations and labels with the Binding.
    for field in ["annotations", "labels"] {
        for (key, value) in binding["metadata"][field].as_object().into_iter().flatten() {
            if value.is_string() {
                pod["metadata"][field][key] = value.clone();
            }
        }
    }
    // Feature gate `ClearingNominatedNodeNameAfterBinding`.
    if let Some(status) = pod["status"].as_object_mut() {
        status.remove("nominatedNodeName");
    }
    // A binding does not increase the generation: upstream's storage bypasses the update strategy.
    let scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now(),
        "observedGeneration": pod["metadata"]["generation"]});
    set_condition(pod, scheduled);
}

pub(crate) fn set_condition(pod: &mut Value, condition: Value) {
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|c| c["type"] != condition["type"]);
    conditions.push(condition);
    pod["status"]["conditions"] = json!(conditions);
}
