//! Namespace.

use super::{Column, Kind, KindInfo, Row, Subresource, WriteContext, WriteTarget, age_cell, column, name_cell};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) struct Namespace;

static INFO: KindInfo = KindInfo {
    short_names: &["ns"],
    namespaced: false,
    status: true,
    subresources: &[Subresource { name: "finalize", group: "", version: "v1", kind: "Namespace", verbs: &["update"] }],
    ..KindInfo::core("Namespace", "namespaces", "namespace")
};

const COLUMNS: &[Column] = &[
    Column { format: "name", ..column("Name", "string", 0) },
    column("Status", "string", 0),
    column("Age", "string", 0),
];

impl Kind for Namespace {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }

    fn default(&self, object: &mut Value) {
        let name = name_cell(object);
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &WriteContext) {
        // The content goes first; the controller that removed it takes this finalizer away.
        object["spec"] = json!({"finalizers": ["kubernetes"]});
        object["status"] = json!({"phase": "Active"});
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, ctx: &WriteContext) {
        match ctx.target {
            WriteTarget::Main => {
                object["spec"] = old["spec"].clone();
                object["status"] = old["status"].clone();
            }
            WriteTarget::Status => object["spec"] = old["spec"].clone(),
            WriteTarget::Sub(_) => object["status"] = old["status"].clone(),
        }
    }

    fn validate_name(&self, name: &str) -> Vec<String> {
        api::names::dns1123_label(name)
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now: jiff::Timestamp) -> Row {
        Row {
            cells: vec![name_cell(object), object["status"]["phase"].clone(), age_cell(object, now)],
            conditions: Vec::new(),
        }
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.phase"]
    }

    fn field_values(&self, object: &Value) -> BTreeMap<&'static str, String> {
        BTreeMap::from([("status.phase", object["status"]["phase"].as_str().unwrap_or("").to_owned())])
    }
}
