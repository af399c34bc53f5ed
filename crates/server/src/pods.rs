//! What is particular about Pods: binding and eviction.

use crate::{
    delete::{self, Options},
    object,
    reply::{self, Reply},
    request::Resource,
    service::{ApiServer, Call},
    status::ApiError,
    write::now,
};
use serde_json::{Value, json};
use store::{Expect, Write, WriteError};

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

fn body(call: &Call) -> Result<Value, ApiError> {
    serde_json::from_slice(&call.body).map_err(|e| ApiError::bad_request(format!("the body cannot be decoded: {e}")))
}

/// Binds a Pod to a node: once, and only when nothing holds it back.
pub(crate) async fn bind(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let (kind, name) = (resource.kind, resource.name.as_deref().unwrap_or(""));
    let target = body(call)?["target"]["name"].as_str().unwrap_or("").to_owned();
    if target.is_empty() {
        return Err(ApiError::new(422, "Invalid", format!("Binding {name:?} is invalid: target.name: Required value")));
    }
    let key = object::key(kind, &resource.namespace, name);
    loop {
        let current = server.store.get(&key).ok_or_else(|| ApiError::not_found(kind.info(), name))?;
        let mut pod = object::decode(kind, &current);
        let why = if !pod["metadata"]["deletionTimestamp"].is_null() {
            Some(format!("pod {name} is being deleted, cannot be assigned to a host"))
        } else if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()) {
            Some(format!("pod {name} is already assigned to node {node:?}"))
        } else if pod["spec"]["schedulingGates"].as_array().is_some_and(|g| !g.is_empty()) {
            Some(format!("pod {name} has non-empty .spec.schedulingGates"))
        } else {
            None
        };
        if let Some(why) = why {
            return Err(ApiError::conflict(kind.info(), name, &why));
        }
        pod["spec"]["nodeName"] = json!(target);
        pod["metadata"]["generation"] = json!(pod["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
        let scheduled = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now(),
                               "observedGeneration": pod["metadata"]["generation"]});
        let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|c| c["type"] != "PodScheduled");
        conditions.push(scheduled);
        pod["status"]["conditions"] = json!(conditions);
        let write = Write::put(key.clone(), Expect::Revision(current.revision), object::encoder(kind, pod));
        match server.store.write(write).await {
            Ok(_) => return Ok(reply::json(201, &success())),
            Err(WriteError::Conflict { .. }) => {}
            Err(e) => return Err(ApiError::from_write(&e, kind.info(), name)),
        }
    }
}

/// Evicts a Pod: a deletion that disruption budgets may forbid, once there are any.
pub(crate) async fn evict(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let options = Options::from_json(&body(call)?["deleteOptions"], call)?;
    let key = object::key(resource.kind, &resource.namespace, resource.name.as_deref().unwrap_or(""));
    delete::delete(server, resource, &key, &options).await?;
    Ok(reply::json(201, &success()))
}
