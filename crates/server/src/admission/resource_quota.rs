//! The `ResourceQuota` admission plugin. Usage is computed from the stored objects of each write, so that a quota takes
//! effect at its creation.

use crate::{
    admission::admission_control::AdmissionControl,
    objects::{object, request_scope::RequestScope},
};
use ::admission::quota::{self, Kind, Object};
use auth::stored_object;
use errors::ApiError;
use k8s_openapi::api::core::v1::ResourceQuota;
use serde_json::Value;
use store::{Scope, Store};

/// Lock of the quotas of a write, held until the object is stored, so that concurrent writes do not use the same quota.
pub(crate) struct QuotaLock<'a> {
    quotas: Vec<ResourceQuota>,
    _guard: tokio::sync::MutexGuard<'a, ()>,
}

/// Locks the quotas of the namespace that limit objects of this kind; `None` without any.
pub(crate) async fn lock<'a>(control: &'a AdmissionControl, resource: &RequestScope) -> Option<QuotaLock<'a>> {
    if resource.namespace.is_empty() || quotas(&control.store, resource).is_empty() {
        return None;
    }
    let guard = control.quota_lock.lock().await;
    Some(QuotaLock { quotas: quotas(&control.store, resource), _guard: guard })
}

impl QuotaLock<'_> {
    /// Checks that the creation of `new`, or the update from `old`, does not exceed a quota.
    pub(crate) fn check(
        &self,
        store: &Store,
        resource: &RequestScope,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let (info, now) = (resource.kind.info(), crate::http::clock::now());
        let read = |value: &Value| Object::new(kind(resource), value, now);
        let scope = Scope::resource(info.storage).in_namespace(resource.namespace.as_str());
        let all = store.list(&scope, None, None).objects;
        let all: Vec<Object> = all.iter().map(|stored| read(&object::decode(&*resource.kind, stored))).collect();
        let (new_object, old) = (read(new), old.map(read));
        for quota in &self.quotas {
            let used = quota::used(quota, &all);
            quota::check(quota, &used, &new_object, old.as_ref()).map_err(|error| {
                ApiError::forbidden(info, new["metadata"]["name"].as_str().unwrap_or(""), &error.to_string())
            })?;
        }
        Ok(())
    }
}

/// Whether an update may increase usage (`Handles` of upstream's evaluators): of a Pod, a resize, and a change of its deadline,
/// which moves it between the scopes `Terminating` and `NotTerminating`.
pub(crate) fn handles_update(resource: &RequestScope, new: &Value, old: &Value) -> bool {
    let is_pod = resource.kind.info().kind == "Pod";
    let handles = match resource.subresource.as_deref() {
        None => !is_pod || is_terminating(new) != is_terminating(old),
        Some(subresource) => is_pod && subresource == "resize",
    };
    handles && kind(resource).can_increase_on_update()
}

fn is_terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

fn kind(resource: &RequestScope) -> Kind<'_> {
    let info = resource.kind.info();
    Kind { group: info.group, resource: info.plural }
}

fn quotas(store: &Store, resource: &RequestScope) -> Vec<ResourceQuota> {
    let scope = Scope::resource("resourcequotas").in_namespace(resource.namespace.as_str());
    stored_object::list(store, &scope).filter(|quota| quota::counts(quota, kind(resource))).collect()
}
