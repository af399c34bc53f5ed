//! The interface of the built-in admission plugins (upstream's `admission.Interface`), and their list.

use super::{
    AdmissionControl,
    always_pull_images::AlwaysPullImages,
    default_classes::{DefaultIngressClass, DefaultStorageClass},
    deny_service_external_ips::DenyServiceExternalIps,
    limit_ranger::LimitRanger,
    persistent_volume_claim_resize::PersistentVolumeClaimResize,
    pod_security::PodSecurity,
    pod_topology_labels::PodTopologyLabels,
    priority::Priority,
    runtime_class::RuntimeClass,
    service_account::ServiceAccount,
    storage_object_in_use_protection::StorageObjectInUseProtection,
    taint_nodes_by_condition::TaintNodesByCondition,
};
use crate::objects::request_scope::RequestScope;
use audit::AuditContext;
use errors::ApiError;
use kinds::KindInfo;
use serde_json::Value;
use std::fmt::Display;

/// A built-in admission plugin: a type without fields in a file of its own, listed in [`PLUGINS`].
pub(super) trait Plugin: Sync {
    /// Upstream's name, as in `--enable-admission-plugins`.
    fn name(&self) -> &'static str;

    /// Whether, and how, the flags can change that the plugin runs.
    fn default_state(&self) -> DefaultState {
        DefaultState::AlwaysOn
    }

    /// Changes or denies an object before it is validated (`MutationInterface.Admit`).
    fn admit(&self, _write: &AdmittedWrite<'_>, _object: &mut Value) -> Result<(), ApiError> {
        Ok(())
    }

    /// Denies a valid object, or returns warnings (`ValidationInterface.Validate`).
    fn validate(&self, _write: &AdmittedWrite<'_>, _object: &Value) -> Result<Vec<String>, ApiError> {
        Ok(Vec::new())
    }
}

/// Whether a plugin runs without flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DefaultState {
    /// It cannot be disabled.
    AlwaysOn,
    On,
    Off,
}

/// The built-in plugins in upstream's order (`AllOrderedPlugins`). Mutating plugins run first, then validation, then
/// validating plugins. Policies, webhooks and quotas run after them ([`super::dynamic`], [`super::resource_quota`]).
pub(super) static PLUGINS: &[&dyn Plugin] = &[
    &LimitRanger,
    &ServiceAccount,
    &TaintNodesByCondition,
    &AlwaysPullImages,
    &PodSecurity,
    &Priority,
    &DefaultStorageClass,
    &StorageObjectInUseProtection,
    &PersistentVolumeClaimResize,
    &RuntimeClass,
    &DefaultIngressClass,
    &DenyServiceExternalIps,
    &PodTopologyLabels,
];

/// A create or an update that the plugins admit.
pub(super) struct AdmittedWrite<'a> {
    pub(super) control: &'a AdmissionControl,
    pub(super) resource: &'a RequestScope,
    /// The object before an update; `None` for a new object.
    pub(super) old: Option<&'a Value>,
    pub(super) audit: &'a AuditContext,
}

impl AdmittedWrite<'_> {
    /// Whether the object has this group and kind.
    pub(super) fn is_of(&self, group: &str, kind: &str) -> bool {
        let info = self.resource.kind.info();
        (info.group, info.kind) == (group, kind)
    }

    /// Whether a new object of this group and kind is written.
    pub(super) fn creates(&self, group: &str, kind: &str) -> bool {
        self.old.is_none() && self.is_main() && self.is_of(group, kind)
    }

    /// Whether the object itself is written, and no subresource.
    pub(super) fn is_main(&self) -> bool {
        self.resource.subresource.is_none()
    }

    /// Returns the error of a denied object.
    pub(super) fn forbidden(&self, object: &Value, message: &dyn Display) -> ApiError {
        forbidden(self.resource.kind.info(), object, message)
    }
}

/// Returns the error of a denied object. As upstream, an object without a name is named by its `generateName`.
pub(super) fn forbidden(info: &KindInfo, object: &Value, message: &dyn Display) -> ApiError {
    let text = |field: &str| object["metadata"][field].as_str().filter(|name| !name.is_empty());
    ApiError::forbidden(info, text("name").or(text("generateName")).unwrap_or(""), &message.to_string())
}
