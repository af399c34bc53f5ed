//! The `ResourceQuota` admission. What is used is counted when it is asked: a quota holds from the moment it is there.

use crate::{object, request::RequestInfo, service::ApiServer, status::ApiError};
use admission::quota::{self, Kind, Object};
use k8s_openapi::api::core::v1::ResourceQuota;
use serde_json::Value;
use store::Scope;

/// Held by whoever takes from a quota until it is stored; others would take the same.
pub(crate) struct Turn<'a> {
    quotas: Vec<ResourceQuota>,
    _guard: tokio::sync::MutexGuard<'a, ()>,
}

/// A turn, when quotas of the namespace count objects of this kind.
pub(crate) async fn turn<'a>(server: &'a ApiServer, resource: &RequestInfo) -> Option<Turn<'a>> {
    if resource.namespace.is_empty() || quotas(server, resource).is_empty() {
        return None;
    }
    let guard = server.quota_lock.lock().await;
    Some(Turn { quotas: quotas(server, resource), _guard: guard })
}

impl Turn<'_> {
    /// Whether there is room for `new`, in the place of `old` if that is there.
    pub(crate) fn check(
        &self,
        server: &ApiServer,
        resource: &RequestInfo,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let (info, now) = (resource.kind.info(), crate::write::now());
        let read = |value: &Value| Object::new(kind(resource), value, now);
        let scope = Scope::resource(info.storage).in_namespace(resource.namespace.as_str());
        let all = server.store.list(&scope, None, None).objects;
        let all: Vec<Object> = all.iter().map(|stored| read(&object::decode(&*resource.kind, stored))).collect();
        let (new_object, old) = (read(new), old.map(read));
        for one in &self.quotas {
            let used = quota::used(one, &all);
            quota::check(one, &used, &new_object, old.as_ref()).map_err(|error| {
                ApiError::forbidden(info, new["metadata"]["name"].as_str().unwrap_or(""), &error.to_string())
            })?;
        }
        Ok(())
    }
}

/// Whether an update may take from a quota (`Handles` of upstream's evaluators): of a Pod, a resize, and a change of its
/// deadline, which brings it into the scope `Terminating` or `NotTerminating`.
pub(crate) fn may_take(resource: &RequestInfo, new: &Value, old: &Value) -> bool {
    let is_pod = resource.kind.info().kind == "Pod";
    let handles = match resource.subresource.as_deref() {
        None => !is_pod || is_terminating(new) != is_terminating(old),
        Some(part) => is_pod && part == "resize",
    };
    handles && kind(resource).may_grow()
}

fn is_terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

fn kind(resource: &RequestInfo) -> Kind<'_> {
    let info = resource.kind.info();
    Kind { group: info.group, resource: info.plural }
}

fn quotas(server: &ApiServer, resource: &RequestInfo) -> Vec<ResourceQuota> {
    let scope = Scope::resource("resourcequotas").in_namespace(resource.namespace.as_str());
    let all = server.store.list(&scope, None, None).objects;
    let all = all.iter().filter_map(|stored| serde_json::from_slice(&stored.data).ok());
    all.filter(|one| quota::counts(one, kind(resource))).collect()
}
