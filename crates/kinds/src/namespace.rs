//! Namespace.

use super::{
    AGE, Cell, Column, FieldErrors, FieldPath, Kind, KindInfo, NAME, Subresource, WriteContext, WriteTarget, name_cell,
    text,
};
use serde_json::{Value, json};

pub(super) struct Namespace;

static INFO: KindInfo = KindInfo {
    short_names: &["ns"],
    namespaced: false,
    status: true,
    subresources: &[Subresource { name: "finalize", group: "", version: "v1", kind: "Namespace", verbs: &["update"] }],
    ..KindInfo::core("Namespace", "namespaces", "namespace")
};

const COLUMNS: &[Column] = &[NAME, text("Status", Cell::Pointer("/status/phase")), AGE];

impl Kind for Namespace {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }

    fn set_defaults(&self, object: &mut Value) {
        let name = name_cell(object);
        if object["status"].is_object() && object["status"]["phase"].as_str().unwrap_or("").is_empty() {
            object["status"]["phase"] = json!("Active");
        }
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &WriteContext) {
        // The namespace controller removes this finalizer after it has deleted the content.
        let mut finalizers = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
        if !finalizers.iter().any(|f| f == "kubernetes") {
            finalizers.push(json!("kubernetes"));
        }
        object["spec"] = json!({"finalizers": finalizers});
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

    fn validate_create(&self, object: &Value, _ctx: &WriteContext, errors: &mut FieldErrors) {
        let path = FieldPath::new("spec").child("finalizers");
        for f in object["spec"]["finalizers"].as_array().into_iter().flatten() {
            let name = f.as_str().unwrap_or("");
            api::names::qualified_name(name).iter().for_each(|e| errors.invalid(&path, f, e));
            if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
                let text = "name is neither a standard finalizer name nor is it fully qualified";
                errors.invalid(&path, f, text);
            }
        }
    }

    fn validate_update(&self, object: &Value, _old: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        match ctx.target {
            WriteTarget::Main => {}
            WriteTarget::Sub(_) => self.validate_create(object, ctx, errors),
            WriteTarget::Status => {
                let is_terminating = !object["metadata"]["deletionTimestamp"].is_null();
                let phase = &object["status"]["phase"];
                let (path, expected_phase) =
                    (FieldPath::new("status").child("Phase"), if is_terminating { "Terminating" } else { "Active" });
                if phase != expected_phase {
                    let is = if is_terminating { "is not empty" } else { "is empty" };
                    let text = format!("may only be '{expected_phase}' if `deletionTimestamp` {is}");
                    errors.invalid(&path, &json!(phase.as_str().unwrap_or("")), &text);
                }
            }
        }
    }

    fn validate_name(&self, name: &str) -> Vec<String> {
        api::names::dns1123_label(name)
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.phase"]
    }
}
