//! Built-in and custom kinds. Each built-in kind is a small file with its defaults, validation, preparation and table
//! columns; [`Custom`] is a kind that a CustomResourceDefinition defines.
//!
//! Generic handlers (storage, watches, patches, selectors, tables, discovery, OpenAPI) use [`Kind`]. Objects are
//! `serde_json::Value`s, so that built-in and custom kinds share the handlers.

#![forbid(unsafe_code)]

mod admissionregistration;
mod apiextensions;
mod apiregistration;
pub mod apply_types;
mod apps;
mod autoscaling;
mod batch;
pub mod certificates;
pub mod conditions;
mod config_map;
mod conversion_webhook;
mod core;
pub mod custom;
mod defaulting;
mod dynamic_resources;
mod endpoint_slice;
mod enums;
mod event;
mod field_cursor;
mod field_validation;
pub mod flow_control;
mod generic_kind;
mod kind_info;
mod kind_ref;
mod lease;
mod namespace;
mod networking;
mod node;
mod node_labels;
pub mod object_meta;
pub mod pod;
mod pod_template_spec;
mod policy;
pub mod priority_class;
mod rbac;
mod resource_metrics;
mod reviews;
mod runtime_class;
pub mod scale_paths;
mod secret;
mod secret_validation;
pub mod selector;
mod service;
mod service_account;
mod storage;
mod table;
mod tls_key_pair;
mod volume_source;
mod webhook_client;

pub use api::field::{FieldError, FieldErrors, FieldPath};
pub use apiextensions::{Approval, FINALIZER as CUSTOM_RESOURCE_FINALIZER, has_ca_bundle};
pub use conversion_webhook::ConversionWebhook;
pub use custom::Custom;
pub use event::CORE_EVENT;
pub(crate) use generic_kind::validate_path_segment_name;
pub use kind_info::{KindInfo, Subresource};
pub use kind_ref::KindRef;

pub use self::core::storage_class;
pub use runtime_class::STORAGE as RUNTIME_CLASSES;
pub use scale_paths::ScalePaths;
pub use service::{is_headless_without_selector, needs_health_check, needs_node_ports};
pub use service_account::ENFORCE_MOUNTABLE_SECRETS;
pub use table::{AGE, Cell, Column, NAME, integer};
pub(crate) use table::{
    NAME_AND_AGE, NAME_AND_CREATION, age, age_cell, boolean, column, human_duration, name_cell, or_none, text,
};

use ::admission::policy::ResourceType;
use api::feature_gates::FeatureGates;
use apply::TypeRef;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};
use tokio_util::sync::CancellationToken;
use wire::typed::{self, DecodeFieldError};

/// Context of a write.
#[derive(Debug, Clone)]
pub struct WriteContext {
    /// Current time.
    pub now: jiff::Timestamp,
    /// Feature gates. Fields of disabled features are dropped, unless the old object has them.
    pub gates: Arc<FeatureGates>,
    /// The part of the object that the request may change.
    pub target: WriteTarget,
}

/// The part of an object that a request may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteTarget {
    /// Everything except the status.
    Main,
    /// The status, and the metadata that upstream lets status updates change.
    Status,
    /// A named subresource with rules of its own, for example `resize` or `ephemeralcontainers`.
    Sub(&'static str),
}

/// Looks up the schema of a custom kind for CEL type checking, by group, version, and plural or kind.
pub type SchemaResolver<'a> = &'a dyn Fn(&str, &str, &str) -> Option<ResourceType>;

/// Behaviour of a kind, similar to upstream's REST strategies. All methods are pure. `object` is decoded; `apiVersion`,
/// `kind` and `metadata` are present.
pub trait Kind: Send + Sync {
    /// Returns the names, scope and properties of the kind.
    fn info(&self) -> &KindInfo;

    /// Returns the kind of its lists.
    fn list_kind(&self) -> String {
        format!("{}List", self.info().kind)
    }

    /// Decodes an object: removes unknown fields, and returns `unknown field "path"` for each.
    ///
    /// # Errors
    /// If a value has the wrong type. The object must not be used then.
    fn decode(&self, object: &mut Value) -> Result<Vec<String>, DecodeFieldError> {
        typed::decode_object(&self.info().api_version(), self.info().kind, object)
    }

    /// Returns the type that server-side apply merges its fields by.
    fn type_ref(&self) -> Option<TypeRef<'_>> {
        apply_types::type_ref(&self.info().api_version(), self.info().kind)
    }

    /// Whether it supports strategic merge patches.
    fn supports_strategic_merge(&self) -> bool {
        true
    }

    /// Sets defaults on every write, like upstream's `SetDefaults_*`.
    fn set_defaults(&self, _object: &mut Value) {}

    /// Sets the defaults of upstream's admission plugins on every write. No field manager owns them.
    fn apply_admission_defaults(&self, _object: &mut Value) {}

    /// Returns upstream's warnings (`WarningsOnCreate`, `WarningsOnUpdate`). `old` is `None` for a create.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Prepares a create (`PrepareForCreate`): drops fields that clients must not set, such as the status, and sets
    /// server-owned fields, such as a Pod's `qosClass` and `phase: Pending`.
    fn prepare_create(&self, _object: &mut Value, _ctx: &WriteContext) {}

    /// Prepares an update (`PrepareForUpdate`): restores from `old` what the request must not change, such as the status for
    /// the main resource, or the spec for the status.
    fn prepare_update(&self, _object: &mut Value, _old: &Value, _ctx: &WriteContext) {}

    /// Sets status fields that the server computes on a write, after the generation is set.
    fn derive_status(&self, _object: &mut Value, _resolver: SchemaResolver<'_>) {}

    /// Returns a filter of the fields that a request to `target` can own: those that [`Kind::prepare_update`] does not
    /// reset (`GetResetFields`).
    fn reset_fields_filter(&self, target: WriteTarget) -> apply::Filter {
        crate::apply_types::reset_fields_filter(self.info(), target)
    }

    /// Validates a create, except the generic part of `metadata`.
    fn validate_create(&self, _object: &Value, _ctx: &WriteContext, _errors: &mut FieldErrors) {}

    /// Validates an update.
    fn validate_update(&self, _object: &Value, _old: &Value, _ctx: &WriteContext, _errors: &mut FieldErrors) {}

    /// Returns the errors of a name (`ValidateNameFunc`).
    fn validate_name(&self, name: &str) -> Vec<String> {
        api::names::dns1123_subdomain(name)
    }

    /// Returns the columns of the Table.
    fn columns(&self) -> &'static [Column] {
        NAME_AND_AGE
    }

    /// Returns the `columnDefinitions` of the Table.
    fn column_definitions(&self) -> Vec<Value> {
        let definition = |c: &Column| json!({"name": c.name, "type": c.kind, "format": c.format, "description": c.description, "priority": c.priority});
        self.columns().iter().map(definition).collect()
    }

    /// Returns the Table row of an object.
    fn row(&self, object: &Value, now: jiff::Timestamp) -> Row {
        Row { cells: self.columns().iter().map(|c| c.cell(object, now)).collect(), conditions: Vec::new() }
    }

    /// Returns the selectable fields other than `metadata.name` and `metadata.namespace`. A selector on another field is a
    /// 400.
    fn selectable_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a field is selectable.
    fn supports_field(&self, field: &str) -> bool {
        self.selectable_fields().contains(&field)
    }

    /// Whether `metadata.namespace` is selectable. Upstream also allows it for cluster-scoped kinds without a list of
    /// selectable fields.
    fn supports_namespace_field(&self) -> bool {
        self.info().namespaced || self.selectable_fields().is_empty()
    }

    /// Returns the current name of a field label (`AddFieldLabelConversionFunc`).
    fn convert_field_label<'a>(&self, field: &'a str) -> &'a str {
        field
    }

    /// Returns the other fields that the value of a selectable field depends on.
    fn field_dependencies(&self, _field: &str) -> &'static [&'static str] {
        &[]
    }

    /// Returns the error message for a field that is not selectable.
    fn unsupported_field_message(&self, field: &str) -> String {
        if self.selectable_fields().is_empty() {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        } else {
            format!("field label not supported: {field}")
        }
    }

    /// Returns the selectable fields of an object with their values (`fields.Set`); an empty string if unset.
    fn field_set(&self, object: &Value) -> BTreeMap<String, String> {
        self.field_values(object).into_iter().map(|(field, value)| (field.to_owned(), value)).collect()
    }

    /// Returns the value of each of [`Kind::selectable_fields`]; an empty string if unset.
    fn field_values(&self, object: &Value) -> BTreeMap<&'static str, String> {
        field_values_at_paths(self.selectable_fields(), object)
    }

    /// Returns the grace period of a deletion in seconds; `None` for a kind without graceful deletion. `requested` is
    /// `gracePeriodSeconds` of the request (`CheckGracefulDelete`).
    fn check_graceful_delete(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Changes the object, except its metadata, when its deletion begins.
    fn begin_deletion(&self, _object: &mut Value, _now: jiff::Timestamp) {}

    /// Returns the paths of the `scale` subresource's fields.
    fn scale(&self) -> &ScalePaths {
        &scale_paths::BUILT_IN
    }

    /// Returns the deprecation warning of the version.
    fn deprecation(&self) -> Option<&str> {
        self.info().deprecation
    }

    /// Whether a CustomResourceDefinition defines it.
    fn is_custom(&self) -> bool {
        false
    }

    /// Returns the conversion webhook between this version and the stored versions.
    fn conversion(&self) -> Option<&ConversionWebhook> {
        None
    }

    /// Whether its definition is being deleted: creates are rejected.
    fn is_terminating(&self) -> bool {
        false
    }

    /// Returns a token that is cancelled when the kind is no longer served or changes; `None` for built-in kinds.
    fn cancellation_token(&self) -> Option<&CancellationToken> {
        None
    }

    /// Whether an object that was stored at a revision needs no conversion to this version.
    fn is_stored_form(&self, _revision: u64) -> bool {
        !self.info().converted
    }

    /// Converts an object from the stored version to this version, for example a core `v1` Event to `events.k8s.io/v1`.
    #[expect(clippy::wrong_self_convention, reason = "the kind converts; the object is the argument")]
    fn from_storage(&self, _object: &mut Map<String, Value>) {}

    /// Converts an object from this version to the stored version.
    fn to_storage(&self, _object: &mut Map<String, Value>) {}
}

/// Returns the value at a path such as `status.phase`.
fn value_at_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, name| value.get(name))
}

/// Returns the value at each path; an empty string if it is absent.
fn field_values_at_paths(paths: &'static [&'static str], object: &Value) -> BTreeMap<&'static str, String> {
    let value = |path: &str| match value_at_path(object, path) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    paths.iter().map(|path| (*path, value(path))).collect()
}

/// One row of a Table.
#[derive(Debug, Default)]
pub struct Row {
    /// One cell for each column.
    pub cells: Vec<Value>,
    /// Row conditions: `Completed` for terminal Pods.
    pub conditions: Vec<Value>,
}

/// The kind CustomResourceDefinition.
pub static CUSTOM_RESOURCE_DEFINITION: &dyn Kind = &apiextensions::CUSTOM_RESOURCE_DEFINITION;

/// The kind Pod.
pub static POD: &dyn Kind = &pod::Pod;

/// The kind Node.
pub static NODE: &dyn Kind = &node::Node;

/// The kind PodDisruptionBudget.
pub static POD_DISRUPTION_BUDGET: &dyn Kind = &policy::POD_DISRUPTION_BUDGET;

/// All built-in kinds. Some are served only if a feature gate is enabled.
pub static ALL: &[&dyn Kind] = &[
    &core::BINDING,
    &core::COMPONENT_STATUS,
    &config_map::ConfigMap,
    &core::ENDPOINTS,
    &event::CORE_EVENT,
    &core::LIMIT_RANGE,
    &namespace::Namespace,
    &node::Node,
    &core::PERSISTENT_VOLUME_CLAIM,
    &core::PERSISTENT_VOLUME,
    &pod::Pod,
    &core::POD_TEMPLATE,
    &core::REPLICATION_CONTROLLER,
    &core::RESOURCE_QUOTA,
    &secret::Secret,
    &service_account::ServiceAccount,
    &service::Service,
    &apiregistration::API_SERVICE,
    &apps::CONTROLLER_REVISION,
    &apps::DAEMON_SET,
    &apps::DEPLOYMENT,
    &apps::REPLICA_SET,
    &apps::STATEFUL_SET,
    &event::EVENTS_EVENT,
    &reviews::SELF_SUBJECT_REVIEW,
    &reviews::TOKEN_REVIEW,
    &reviews::LOCAL_SUBJECT_ACCESS_REVIEW,
    &reviews::SELF_SUBJECT_ACCESS_REVIEW,
    &reviews::SELF_SUBJECT_RULES_REVIEW,
    &reviews::SUBJECT_ACCESS_REVIEW,
    &autoscaling::V2,
    &autoscaling::V1,
    &batch::CRON_JOB,
    &batch::JOB,
    &certificates::CERTIFICATE_SIGNING_REQUEST,
    &networking::INGRESS_CLASS,
    &networking::INGRESS,
    &networking::IP_ADDRESS,
    &networking::NETWORK_POLICY,
    &networking::SERVICE_CIDR,
    &policy::POD_DISRUPTION_BUDGET,
    &rbac::CLUSTER_ROLE_BINDING,
    &rbac::CLUSTER_ROLE,
    &rbac::ROLE_BINDING,
    &rbac::ROLE,
    &storage::CSI_DRIVER,
    &storage::CSI_NODE,
    &storage::CSI_STORAGE_CAPACITY,
    &storage::STORAGE_CLASS,
    &storage::VOLUME_ATTACHMENT,
    &storage::VOLUME_ATTRIBUTES_CLASS,
    &apiextensions::CUSTOM_RESOURCE_DEFINITION,
    &admissionregistration::MUTATING_WEBHOOKS,
    &admissionregistration::VALIDATING_POLICY_BINDING,
    &admissionregistration::VALIDATING_POLICY,
    &admissionregistration::VALIDATING_WEBHOOKS,
    &admissionregistration::MUTATING_POLICY_BINDING,
    &admissionregistration::MUTATING_POLICY,
    &admissionregistration::MUTATING_POLICY_BINDING_ALPHA,
    &admissionregistration::MUTATING_POLICY_ALPHA,
    &priority_class::PRIORITY_CLASS,
    &lease::Lease,
    &runtime_class::RuntimeClass,
    &endpoint_slice::ENDPOINT_SLICE,
    &flow_control::FLOW_SCHEMA,
    &flow_control::PRIORITY_LEVEL,
    &dynamic_resources::DEVICE_CLASS,
    &dynamic_resources::RESOURCE_CLAIM,
    &dynamic_resources::RESOURCE_CLAIM_TEMPLATE,
    &dynamic_resources::RESOURCE_SLICE,
    &resource_metrics::NODE_METRICS,
    &resource_metrics::POD_METRICS,
];
