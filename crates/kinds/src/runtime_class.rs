//! RuntimeClass (`node.k8s.io/v1`).

use super::{
    AGE, Cell, Column, FieldErrors, FieldPath, Kind, KindInfo, NAME, WriteContext,
    field_validation::{duplicates, items},
    node_labels, pod, text,
};
use crate::object_meta;
use serde_json::{Value, json};

pub(super) struct RuntimeClass;

/// Storage resource of RuntimeClasses.
pub const STORAGE: &str = "runtimeclasses.node.k8s.io";

static INFO: KindInfo = KindInfo {
    group: "node.k8s.io",
    storage: STORAGE,
    namespaced: false,
    allow_create_on_update: true,
    requires_resource_version: true,
    ..KindInfo::core("RuntimeClass", "runtimeclasses", "runtimeclass")
};

const COLUMNS: &[Column] = &[NAME, text("Handler", Cell::Pointer("/handler")), AGE];

impl Kind for RuntimeClass {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }

    /// Warns of deprecated node labels (`GetWarningsForRuntimeClass`).
    fn warnings(&self, object: &Value, _old: Option<&Value>) -> Vec<String> {
        let labels = node_labels::map_warnings(&object["scheduling"]["nodeSelector"]);
        labels.map(|(_, detail)| format!("scheduling.nodeSelector: {detail}")).collect()
    }

    /// Validates a RuntimeClass (`ValidateRuntimeClass`).
    fn validate_create(&self, object: &Value, _ctx: &WriteContext, errors: &mut FieldErrors) {
        let handler = object["handler"].as_str().unwrap_or("");
        let wrong = api::names::dns1123_label(handler);
        wrong.iter().for_each(|e| errors.invalid(&FieldPath::new("handler"), &json!(handler), e));
        if let Some(overhead) = object.get("overhead") {
            pod::validate_overhead(&overhead["podFixed"], &FieldPath::new("overhead"), errors);
        }
        let (path, scheduling) = (FieldPath::new("scheduling"), &object["scheduling"]);
        object_meta::labels(&scheduling["nodeSelector"], &path.child("nodeSelector"), errors);
        let path = path.child("tolerations");
        pod::validate_tolerations(scheduling, &path, errors);
        for (i, toleration) in duplicates(items(scheduling, "tolerations")) {
            errors.duplicate(&path.index(i), toleration);
        }
    }

    /// Validates an update: the handler is immutable, because running Pods use it (`ValidateRuntimeClassUpdate`).
    fn validate_update(&self, object: &Value, old: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        self.validate_create(object, ctx, errors);
        if object["handler"] != old["handler"] {
            errors.invalid(&FieldPath::new("handler"), &object["handler"], "field is immutable");
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }
}
