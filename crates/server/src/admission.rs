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
mod plugin;
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
use kinds::{FieldErrors, WriteTarget};
use plugin::AdmittedWrite;
use serde_json::Value;

/// Runs the mutating plugins; `old` is `None` for a new object.
pub(crate) fn admit(
    control: &AdmissionControl,
    resource: &RequestScope,
    object: &mut Value,
    old: Option<&Value>,
    audit: &AuditContext,
) -> Result<(), ApiError> {
    let write = AdmittedWrite { control, resource, old, audit };
    control.plugins.enabled().try_for_each(|plugin| plugin.admit(&write, object))
}

/// Runs the validating plugins on a valid object; `old` is `None` for a new object. Returns warnings.
pub(crate) fn validate(
    control: &AdmissionControl,
    resource: &RequestScope,
    object: &Value,
    old: Option<&Value>,
    audit: &AuditContext,
) -> Result<Vec<String>, ApiError> {
    // Upstream validates this in the storage of these kinds.
    let mut errors = FieldErrors::default();
    admin_access::validate(&control.store, resource, object, old, &mut errors);
    if !errors.is_empty() {
        let name = object["metadata"]["name"].as_str().unwrap_or("");
        return Err(ApiError::invalid(resource.kind.info(), name, &errors));
    }
    if resource.target() == WriteTarget::Status {
        return Ok(Vec::new());
    }
    let write = AdmittedWrite { control, resource, old, audit };
    let mut warnings = Vec::new();
    for plugin in control.plugins.enabled() {
        warnings.extend(plugin.validate(&write, object)?);
    }
    Ok(warnings)
}
