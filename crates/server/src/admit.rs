//! Admission: what other objects make of a write, and whether they allow it. What is decided by the object alone is its
//! kind's; the decisions themselves are in the crate `admission`.

mod admin_access;
mod always_pull_images;
pub(crate) mod connect;
mod default_class;
mod hooks;
mod in_use_protection;
mod limit_ranger;
mod mutations;
mod node_taint;
mod noted;
pub(crate) mod outside;
mod plugins;
mod pod_security;
mod policies;
mod priority;
pub(crate) mod quota;
mod reinvocation;
mod resize;
pub(crate) mod review;
mod service_account;
mod service_external_ips;
pub(crate) mod topology_labels;
mod webhooks;

pub(crate) use hooks::Hooks;
pub use plugins::{AdmissionPlugin, AdmissionPlugins};
pub(crate) use service_account::MOUNTABLE;

use crate::{
    audit::AuditContext,
    kinds::{self, FieldErrors, KindInfo, WriteTarget},
    pods,
    request::RequestInfo,
    service::ApiServer,
    status::ApiError,
};
use serde_json::Value;

/// Fills in what other objects say about a new one, and what the cluster asks of all.
pub(crate) fn complete(server: &ApiServer, resource: &RequestInfo, object: &mut Value) -> Result<(), ApiError> {
    let (info, namespace) = (resource.kind.info(), &resource.namespace);
    if let Some(finalizer) = in_use_protection::finalizer(info.group, info.kind) {
        in_use_protection::admit(object, finalizer);
    }
    let done = match (info.group, info.kind) {
        ("", "Pod") => {
            limit_ranger::give(server, namespace, object);
            topology_labels::admit_pod(server, object);
            complete_pod(server, namespace, object).map(|()| complete_change(server, resource, object, None))
        }
        ("scheduling.k8s.io", "PriorityClass") => priority::admit_class(server, object),
        ("", "Node") => {
            node_taint::admit(object);
            Ok(())
        }
        ("", "PersistentVolumeClaim") => {
            default_class::admit_claim(server, object);
            Ok(())
        }
        ("networking.k8s.io", "Ingress") => {
            default_class::admit_ingress(server, object);
            Ok(())
        }
        _ => Ok(()),
    };
    done.map_err(|why| refused(info, object, &why))
}

/// Fills in what the cluster asks of a Pod, new or changed.
pub(crate) fn complete_change(server: &ApiServer, resource: &RequestInfo, object: &mut Value, old: Option<&Value>) {
    let (info, pulls) = (resource.kind.info(), server.admission_plugins.is_on(AdmissionPlugin::AlwaysPullImages));
    if pulls && info.group.is_empty() && info.kind == "Pod" && resource.subresource.is_none() {
        always_pull_images::admit(object, old);
    }
}

/// A mirror shows what its node runs already, without an account.
fn complete_pod(server: &ApiServer, namespace: &str, pod: &mut Value) -> Result<(), String> {
    priority::admit_pod(server, pod)?;
    if !kinds::pod::mirror_pod::is_mirror_pod(pod) {
        service_account::admit(server, namespace, pod)?;
    }
    pods::admit_runtime_class(server, pod)
}

/// Whether an object that is right by itself may be written; `old` is there for an update. Gives what to warn of.
pub(crate) fn check(
    server: &ApiServer,
    resource: &RequestInfo,
    object: &Value,
    old: Option<&Value>,
    trail: &AuditContext,
) -> Result<Vec<String>, ApiError> {
    let info = resource.kind.info();
    let mut errors = FieldErrors::default();
    admin_access::check(server, resource, object, old, &mut errors);
    if !errors.is_empty() {
        return Err(ApiError::invalid(info, object["metadata"]["name"].as_str().unwrap_or(""), &errors));
    }
    if resource.target() == WriteTarget::Status {
        return Ok(Vec::new());
    }
    let is_main = resource.subresource.is_none();
    let takes_secrets = old.is_none() && is_main || resource.subresource.as_deref() == Some("ephemeralcontainers");
    if (info.group, info.kind) == ("", "Pod") && takes_secrets {
        service_account::check(server, &resource.namespace, object).map_err(|why| refused(info, object, &why))?;
    }
    let denies_external_ips = server.admission_plugins.is_on(AdmissionPlugin::DenyServiceExternalIps);
    if (info.group, info.kind) == ("", "Service") && is_main && denies_external_ips {
        service_external_ips::check(object, old).map_err(|why| refused(info, object, why))?;
    }
    if (info.group, info.kind) == ("", "PersistentVolumeClaim") && is_main {
        resize::check(server, object, old).map_err(|why| refused(info, object, why))?;
    }
    let is_resize = resource.subresource.as_deref() == Some("resize");
    // What is on its way out is not held back, and but for a resize a Pod asks for what it did.
    let ranged = old.is_none_or(|old| old["metadata"]["deletionTimestamp"].is_null())
        && match (info.group, info.kind) {
            ("", "Pod") => old.is_none() || is_resize,
            ("", "PersistentVolumeClaim") => is_main,
            _ => false,
        };
    if ranged {
        let checked = limit_ranger::check(server, info, &resource.namespace, object);
        checked.map_err(|why| refused(info, object, &why))?;
    }
    if info.group.is_empty() && info.kind == "Namespace" && is_main {
        let mut errors = FieldErrors::default();
        let warnings = pod_security::namespace(server, object, old, &mut errors);
        let name = object["metadata"]["name"].as_str().unwrap_or("");
        return if errors.is_empty() { Ok(warnings) } else { Err(ApiError::invalid(info, name, &errors)) };
    }
    pod_security::check(server, resource, object, old, trail)
}

fn refused(info: &KindInfo, object: &Value, why: &str) -> ApiError {
    // One that has no name yet is called by the beginning of it, as upstream does.
    let text = |field: &str| object["metadata"][field].as_str().filter(|name| !name.is_empty());
    ApiError::forbidden(info, text("name").or(text("generateName")).unwrap_or(""), why)
}
