//! CustomResourceDefinition. `custom_resource_definitions.rs` serves the defined kinds.

mod approval;
mod names;
mod validate;
mod versions;

pub use approval::Approval;
pub use validate::has_ca_bundle;

use super::{KindInfo, NAME_AND_CREATION, WriteContext, defaulting, generic_kind::GenericKind};
use crate::conditions::set_condition;
use schema::unrecognized_formats;
use serde_json::{Value, json};
use std::collections::BTreeSet;

static INFO: KindInfo = KindInfo {
    requires_resource_version: true,
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    status: true,
    generation: true,
    ..KindInfo::cluster_scoped(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "customresourcedefinition",
    )
};

/// The kind CustomResourceDefinition.
pub(crate) static CUSTOM_RESOURCE_DEFINITION: GenericKind = GenericKind {
    columns: NAME_AND_CREATION,
    default,
    prepare,
    validate: validate::validate_definition,
    validate_change: validate::validate_definition_update,
    begin_deletion,
    warnings: |object, _| {
        let versions = object["spec"]["versions"].as_array().into_iter().flatten();
        let unknown: BTreeSet<String> =
            versions.flat_map(|v| unrecognized_formats(&v["schema"]["openAPIV3Schema"])).collect();
        unknown.into_iter().map(|format| format!("unrecognized format {format:?}")).collect()
    },
    ..GenericKind::new(&INFO)
};

/// Sets the defaults of a definition (`SetDefaults_CustomResourceDefinitionSpec`).
fn default(object: &mut Value) {
    let Some(spec) = object["spec"].as_object_mut() else { return };
    defaulting::set_default(spec, "conversion", json!({"strategy": "None"}));
    if let Some(names) = defaulting::object_field(spec, "names") {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or("").to_owned();
        if !kind.is_empty() {
            defaulting::set_default(names, "singular", json!(kind.to_lowercase()));
            defaulting::set_default(names, "listKind", json!(format!("{kind}List")));
        }
    }
    defaulting::set_defaults_at(object, "/spec/conversion/webhook/clientConfig/service", &[("port", json!(443))]);
}

/// Adds the storage version to `status.storedVersions`.
fn prepare(object: &mut Value, old: Option<&Value>, _ctx: &WriteContext) {
    let versions = object["spec"]["versions"].as_array().into_iter().flatten();
    let stored: Vec<Value> = versions.filter(|v| v["storage"] == true).map(|v| v["name"].clone()).collect();
    if old.is_none() {
        object["status"] = json!({"conditions": [], "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []});
    }
    if !object["status"]["storedVersions"].is_array() {
        object["status"]["storedVersions"] = json!([]);
    }
    if let Some(known) = object["status"]["storedVersions"].as_array_mut() {
        for version in stored {
            if !known.contains(&version) {
                known.push(version);
            }
        }
    }
}

/// Finalizer that keeps a definition until its objects are deleted.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Adds the finalizer for deletion of the custom objects, and the condition `Terminating`.
fn begin_deletion(object: &mut Value, now: jiff::Timestamp) {
    let finalizers = &mut object["metadata"]["finalizers"];
    if !finalizers.is_array() {
        *finalizers = json!([]);
    }
    if let Some(list) = finalizers.as_array_mut().filter(|list| !list.iter().any(|f| f == FINALIZER)) {
        list.push(json!(FINALIZER));
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(&mut object["status"], "Terminating", "True", "InstanceDeletionPending", message, now);
}
