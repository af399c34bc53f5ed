//! Kinds: each built-in one is a small file that says only what is particular about it, and [`Custom`] is every kind that a
//! CustomResourceDefinition defines.
//!
//! Everything generic (storage, watches, patches, selectors, tables, discovery, OpenAPI) works through [`Kind`]. Objects
//! are `serde_json::Value`s, so that both go the same way.

mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apps;
mod autoscaling;
mod batch;
pub(crate) mod certificates;
mod checks;
mod conditions;
mod config_map;
mod core;
pub(crate) mod custom;
mod dynamic_resources;
mod endpoint_slice;
mod event;
mod fill;
mod flow_control;
mod info;
mod kind_ref;
mod lease;
mod namespace;
mod networking;
mod node;
mod node_labels;
mod plain;
pub(crate) mod pod;
mod policy;
pub(crate) mod priority_class;
mod rbac;
mod resource_metrics;
mod reviews;
mod runtime_class;
mod secret;
mod secret_pair;
mod secret_rules;
pub(crate) mod selector;
mod service;
mod service_account;
mod storage;
mod table;
mod template;
mod volume_source;
mod webhook_client;

pub use api::field::{FieldError, FieldErrors, FieldPath};
pub(crate) use apiextensions::{Approval, has_ca_bundle};
pub(crate) use custom::Custom;
pub(crate) use event::CORE as CORE_EVENT;
pub use info::{KindInfo, Subresource};
pub(crate) use kind_ref::KindRef;
pub(crate) use plain::path_segment;

pub(crate) use self::core::storage_class;
pub(crate) use runtime_class::{STORAGE as RUNTIME_CLASSES, admit as admit_runtime_class};
pub(crate) use service::{is_told_by_others, needs_health_check, needs_node_ports};
pub(crate) use table::{
    AGE, NAME, NAME_AND_AGE, NAME_AND_CREATION, age, age_cell, boolean, column, duration, integer, name_cell, or_none,
    text,
};
pub use table::{Cell, Column};

use crate::{
    conversion::Conversion,
    managed_fields,
    scale::{self, ScalePaths},
    typed,
};
use admission::policy::Known;
use api::feature_gates::FeatureGates;
use apply::TypeRef;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};
use store::Revision;
use tokio_util::sync::CancellationToken;

/// What a write knows beside the object.
#[derive(Debug, Clone)]
pub struct WriteContext {
    /// Now.
    pub now: jiff::Timestamp,
    /// Which features are on: fields of others are dropped, unless the object had them already.
    pub gates: Arc<FeatureGates>,
    /// Which part of the object the request may change.
    pub target: WriteTarget,
}

/// Which part of an object a request may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteTarget {
    /// Everything but the status.
    Main,
    /// The status, and those parts of the metadata that upstream lets it change.
    Status,
    /// A named subresource of the kind with rules of its own, for example `resize` or `ephemeralcontainers`.
    Sub(&'static str),
}

/// What expressions know of a kind that a client has defined: it is asked with a group, a version, and a plural or a kind.
pub type Defined<'a> = &'a dyn Fn(&str, &str, &str) -> Option<Known>;

/// What is particular about a kind. All methods are pure; `object` is decoded, with `apiVersion`, `kind` and `metadata` present.
pub trait Kind: Send + Sync {
    /// Names and shape.
    fn info(&self) -> &KindInfo;

    /// The kind of its lists.
    fn list_kind(&self) -> String {
        format!("{}List", self.info().kind)
    }

    /// Makes of an object what this kind has of it; gives `unknown field "path"` for each field that it has not.
    ///
    /// # Errors
    /// When a value is of the wrong type: the words of Go's decoder. The object is good for nothing then.
    fn read(&self, object: &mut Value) -> Result<Vec<String>, String> {
        typed::object(&self.info().api_version(), self.info().kind, object)
    }

    /// How its fields are merged by server-side apply.
    fn types(&self) -> Option<TypeRef<'_>> {
        managed_fields::types::of(&self.info().api_version(), self.info().kind)
    }

    /// Whether there is a table of how its lists are merged by strategic merge patches.
    fn merges_strategically(&self) -> bool {
        true
    }

    /// Fills in defaults, on every write, exactly as upstream's `SetDefaults_*` do.
    fn default(&self, _object: &mut Value) {}

    /// Fills in what upstream's admission adds on every write to what clients left out: nobody owns it.
    fn complete(&self, _object: &mut Value) {}

    /// What upstream warns of in the object itself, though it takes it; `old` is there for an update.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Before a create: drops what clients may not set (status), sets what the server sets (a Pod's `qosClass`, `phase: Pending`).
    fn prepare_create(&self, _object: &mut Value, _ctx: &WriteContext) {}

    /// Before an update: takes from `old` what this request may not change (status on the main resource, spec on status).
    fn prepare_update(&self, _object: &mut Value, _old: &Value, _ctx: &WriteContext) {}

    /// What the server finds out about an object that is written, once its generation is known.
    fn observe(&self, _object: &mut Value, _defined: Defined<'_>) {}

    /// Which fields a request that changes this part of an object can own: those that [`Kind::prepare_update`] does not
    /// take back (upstream's `GetResetFields`).
    fn owned(&self, target: WriteTarget) -> apply::Filter {
        crate::managed_fields::owned(self.info(), target)
    }

    /// Upstream's validation of a new object, beside the generic checks of `metadata`.
    fn validate_create(&self, _object: &Value, _ctx: &WriteContext, _errors: &mut FieldErrors) {}

    /// Upstream's validation of a change.
    fn validate_update(&self, _object: &Value, _old: &Value, _ctx: &WriteContext, _errors: &mut FieldErrors) {}

    /// What is wrong with a name (`ValidateNameFunc`); empty when nothing is.
    fn validate_name(&self, name: &str) -> Vec<String> {
        api::names::dns1123_subdomain(name)
    }

    /// Columns of the Table.
    fn columns(&self) -> &'static [Column] {
        NAME_AND_AGE
    }

    /// What the Table says of its columns.
    fn column_definitions(&self) -> Vec<Value> {
        let definition = |c: &Column| json!({"name": c.name, "type": c.kind, "format": c.format, "description": c.description, "priority": c.priority});
        self.columns().iter().map(definition).collect()
    }

    /// One row of the Table.
    fn row(&self, object: &Value, now: jiff::Timestamp) -> Row {
        Row { cells: self.columns().iter().map(|c| c.cell(object, now)).collect(), conditions: Vec::new() }
    }

    /// Fields for field selectors beside `metadata.name` and `metadata.namespace`; a selector on another field is a 400.
    fn selectable_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether field selectors may name this field.
    fn selects(&self, field: &str) -> bool {
        self.selectable_fields().contains(&field)
    }

    /// Whether field selectors may name the namespace: also of kinds that have none, unless upstream names their fields one
    /// by one.
    fn selects_namespace(&self) -> bool {
        self.info().namespaced || self.selectable_fields().is_empty()
    }

    /// The field that field selectors mean by this name.
    fn renamed_field<'a>(&self, field: &'a str) -> &'a str {
        field
    }

    /// What is looked at, beside the field itself, for the value that field selectors compare.
    fn looked_at_beside(&self, _field: &str) -> &'static [&'static str] {
        &[]
    }

    /// Why field selectors may not name this field.
    fn not_selectable(&self, field: &str) -> String {
        if self.selectable_fields().is_empty() {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        } else {
            format!("field label not supported: {field}")
        }
    }

    /// The values of these fields, for field selectors (empty string when unset).
    fn selected(&self, object: &Value) -> BTreeMap<String, String> {
        self.field_values(object).into_iter().map(|(field, value)| (field.to_owned(), value)).collect()
    }

    /// The value of each of [`Kind::selectable_fields`] (empty string when unset).
    fn field_values(&self, object: &Value) -> BTreeMap<&'static str, String> {
        let value = |path: &str| match object.pointer(&format!("/{}", path.replace('.', "/"))) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        self.selectable_fields().iter().map(|path| (*path, value(path))).collect()
    }

    /// Grace seconds for a deletion: `None` when the kind is deleted at once. `asked` is `gracePeriodSeconds`.
    /// For a Pod LIFECYCLE.md 3.7, `CheckGracefulDelete`.
    fn graceful_deletion(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// What a deletion that begins changes beside the metadata.
    fn begin_deletion(&self, _object: &mut Value) {}

    /// Where the `scale` subresource finds its numbers.
    fn scale(&self) -> &ScalePaths {
        &scale::BUILT_IN
    }

    /// What every client of this version is told, if the version should not be used any more.
    fn deprecation(&self) -> Option<&str> {
        self.info().deprecation
    }

    /// Whether a client defined it.
    fn is_custom(&self) -> bool {
        false
    }

    /// The webhook that makes this version of what is stored in another one, and the other way round.
    fn conversion(&self) -> Option<&Conversion> {
        None
    }

    /// Whether there will be no more of its objects.
    fn is_terminating(&self) -> bool {
        false
    }

    /// Ends when the kind is no longer served as it is; a built-in one always is.
    fn gone(&self) -> Option<&CancellationToken> {
        None
    }

    /// Whether what was stored at this revision is this version's form already.
    fn is_stored_form(&self, _revision: Revision) -> bool {
        !self.info().converted
    }

    /// Turns the stored form into this version's form (`events.k8s.io/v1` from a stored core `v1` Event), where they differ.
    #[expect(clippy::wrong_self_convention, reason = "the kind converts; the object is the argument")]
    fn from_storage(&self, _object: &mut Map<String, Value>) {}

    /// Turns this version's form into the stored form.
    fn to_storage(&self, _object: &mut Map<String, Value>) {}
}

/// One row of a Table.
#[derive(Debug, Default)]
pub struct Row {
    /// A cell per column.
    pub cells: Vec<Value>,
    /// `Completed` for Pods that are done.
    pub conditions: Vec<Value>,
}

/// The kind of definitions of kinds.
pub(crate) static CUSTOM_RESOURCE_DEFINITION: &dyn Kind = &apiextensions::DEFINITION;

/// The kind of Pods.
pub(crate) static POD: &dyn Kind = &pod::Pod;

/// The kind of nodes.
pub(crate) static NODE: &dyn Kind = &node::Node;

/// The kind of disruption budgets.
pub(crate) static BUDGET: &dyn Kind = &policy::POD_DISRUPTION_BUDGET;

/// Every kind that is served, some only where a feature is on.
pub static ALL: &[&dyn Kind] = &[
    &core::BINDING,
    &core::COMPONENT_STATUS,
    &config_map::ConfigMap,
    &core::ENDPOINTS,
    &event::CORE,
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
    &event::EVENTS,
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
    &apiextensions::DEFINITION,
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
