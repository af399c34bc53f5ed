//! Admission plugins that read other objects, and dynamic admission (webhooks and policies). The pure functions are in the
//! crate `admission`; what depends on an object alone is validated by its kind.

mod admin_access;
pub(crate) mod admission_control;
mod admission_webhooks;
mod always_pull_images;
pub(crate) mod certificates;
mod connect_options;
mod context;
mod default_classes;
mod deny_service_external_ips;
pub(crate) mod dynamic;
mod limit_ranger;
mod mutating_admission_policy;
pub(crate) mod node_restriction;
mod persistent_volume_claim_resize;
mod plugins;
mod pod_security;
pub(crate) mod pod_topology_labels;
mod policy_matching;
mod priority;
mod registrations;
mod reinvocation;
pub(crate) mod resource_quota;
mod runtime_class;
mod service_account;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;
mod validating_admission_policy;
mod webhook_annotations;

pub(crate) use connect_options::connect_options;
pub(crate) use context::{AdmissionContext, operation_options};
pub use plugins::{AdmissionPlugin, AdmissionPlugins, OverlappingPlugins, ParsePluginError};
pub(crate) use registrations::RegistrationInformer;

pub(crate) use admission_control::AdmissionControl;

use crate::objects::request_scope::RequestScope;
use audit::AuditContext;
use errors::ApiError;
use kinds::{FieldErrors, KindInfo, WriteTarget, priority_class::PodPriorityError};
use runtime_class::RuntimeClassError;
use serde_json::Value;
use service_account::ServiceAccountError;
use std::fmt::Display;

/// Runs the mutating admission plugins on a new object.
pub(crate) fn admit(control: &AdmissionControl, resource: &RequestScope, object: &mut Value) -> Result<(), ApiError> {
    let (info, namespace) = (resource.kind.info(), &resource.namespace);
    if let Some(finalizer) = storage_object_in_use_protection::finalizer(info.group, info.kind) {
        storage_object_in_use_protection::admit(object, finalizer);
    }
    match (info.group, info.kind) {
        ("", "Pod") => {
            limit_ranger::admit(&control.store, namespace, object);
            pod_topology_labels::admit_pod(control, object);
            admit_pod(control, namespace, object).map_err(|error| forbidden(info, object, &error))?;
            admit_update(control, resource, object, None);
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            priority::admit_class(&control.store, object).map_err(|error| forbidden(info, object, &error))?;
        }
        ("", "Node") => {
            taint_nodes_by_condition::admit(object);
        }
        ("", "PersistentVolumeClaim") => {
            default_classes::admit_claim(&control.store, object);
        }
        ("networking.k8s.io", "Ingress") => {
            default_classes::admit_ingress(&control.store, object);
        }
        _ => {}
    }
    Ok(())
}

/// Runs the mutating admission plugins that also handle updates; `old` is `None` for a new object.
pub(crate) fn admit_update(
    control: &AdmissionControl,
    resource: &RequestScope,
    object: &mut Value,
    old: Option<&Value>,
) {
    let (info, pulls_always) = (resource.kind.info(), control.plugins.is_enabled(AdmissionPlugin::AlwaysPullImages));
    if pulls_always && info.group.is_empty() && info.kind == "Pod" && resource.subresource.is_none() {
        always_pull_images::admit(object, old);
    }
}

/// Denial of a new Pod by a mutating admission plugin.
#[derive(Debug, thiserror::Error)]
enum PodAdmissionError {
    #[error(transparent)]
    Priority(#[from] PodPriorityError),
    #[error(transparent)]
    ServiceAccount(#[from] ServiceAccountError),
    #[error(transparent)]
    RuntimeClass(#[from] RuntimeClassError),
}

/// Runs the mutating admission plugins on a new Pod. A mirror Pod has no service account.
fn admit_pod(control: &AdmissionControl, namespace: &str, pod: &mut Value) -> Result<(), PodAdmissionError> {
    priority::admit_pod(&control.store, pod)?;
    if !kinds::pod::mirror_pod::is_mirror_pod(pod) {
        service_account::admit(control, namespace, pod)?;
    }
    Ok(runtime_class::admit(&control.store, pod)?)
}

/// Runs the validating admission plugins on a valid object; `old` is `None` for a new object. Returns warnings.
pub(crate) fn validate(
    control: &AdmissionControl,
    resource: &RequestScope,
    object: &Value,
    old: Option<&Value>,
    audit: &AuditContext,
) -> Result<Vec<String>, ApiError> {
    let info = resource.kind.info();
    let mut errors = FieldErrors::default();
    admin_access::validate(&control.store, resource, object, old, &mut errors);
    if !errors.is_empty() {
        return Err(ApiError::invalid(info, object["metadata"]["name"].as_str().unwrap_or(""), &errors));
    }
    if resource.target() == WriteTarget::Status {
        return Ok(Vec::new());
    }
    let is_main = resource.subresource.is_none();
    let references_secrets = old.is_none() && is_main || resource.subresource.as_deref() == Some("ephemeralcontainers");
    if (info.group, info.kind) == ("", "Pod") && references_secrets {
        service_account::validate(control, &resource.namespace, object)
            .map_err(|error| forbidden(info, object, &error))?;
    }
    let denies_external_ips = control.plugins.is_enabled(AdmissionPlugin::DenyServiceExternalIps);
    if (info.group, info.kind) == ("", "Service") && is_main && denies_external_ips {
        deny_service_external_ips::validate(object, old).map_err(|error| forbidden(info, object, &error))?;
    }
    if (info.group, info.kind) == ("", "PersistentVolumeClaim") && is_main {
        persistent_volume_claim_resize::validate(&control.store, object, old)
            .map_err(|error| forbidden(info, object, &error))?;
    }
    let is_resize = resource.subresource.as_deref() == Some("resize");
    // Terminating objects are not limited. Of the updates of a Pod, only a resize changes its resources.
    let is_limited = old.is_none_or(|old| old["metadata"]["deletionTimestamp"].is_null())
        && match (info.group, info.kind) {
            ("", "Pod") => old.is_none() || is_resize,
            ("", "PersistentVolumeClaim") => is_main,
            _ => false,
        };
    if is_limited {
        let validated = limit_ranger::validate(&control.store, info, &resource.namespace, object);
        validated.map_err(|error| forbidden(info, object, &error))?;
    }
    if info.group.is_empty() && info.kind == "Namespace" && is_main {
        let mut errors = FieldErrors::default();
        let warnings = pod_security::validate_namespace(&control.store, object, old, &mut errors);
        let name = object["metadata"]["name"].as_str().unwrap_or("");
        return if errors.is_empty() { Ok(warnings) } else { Err(ApiError::invalid(info, name, &errors)) };
    }
    pod_security::validate(&control.store, resource, object, old, audit)
}

fn forbidden(info: &KindInfo, object: &Value, message: &dyn Display) -> ApiError {
    // As upstream, an object without a name is named by its `generateName`.
    let text = |field: &str| object["metadata"][field].as_str().filter(|name| !name.is_empty());
    ApiError::forbidden(info, text("name").or(text("generateName")).unwrap_or(""), &message.to_string())
}
