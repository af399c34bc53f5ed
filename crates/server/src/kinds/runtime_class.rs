//! RuntimeClass (`node.k8s.io/v1`): which handler of the runtime runs a Pod, where that may be, and what it costs.

mod admit;

pub(crate) use admit::admit;

use super::{
    AGE, Cell, Column, FieldErrors, FieldPath, Kind, KindInfo, NAME, WriteContext,
    checks::{items, repeated},
    node_labels, pod, text,
};
use crate::object_meta;
use serde_json::{Value, json};

pub(super) struct RuntimeClass;

/// Where RuntimeClasses are stored.
pub(crate) const STORAGE: &str = "runtimeclasses.node.k8s.io";

static INFO: KindInfo = KindInfo {
    group: "node.k8s.io",
    storage: STORAGE,
    namespaced: false,
    created_by_update: true,
    needs_version: true,
    ..KindInfo::core("RuntimeClass", "runtimeclasses", "runtimeclass")
};

const COLUMNS: &[Column] = &[NAME, text("Handler", Cell::At("/handler")), AGE];

impl Kind for RuntimeClass {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }

    /// `GetWarningsForRuntimeClass`.
    fn warnings(&self, object: &Value, _old: Option<&Value>) -> Vec<String> {
        let labels = node_labels::of_map(&object["scheduling"]["nodeSelector"]);
        labels.map(|(_, why)| format!("scheduling.nodeSelector: {why}")).collect()
    }

    /// `ValidateRuntimeClass`.
    fn validate_create(&self, object: &Value, _ctx: &WriteContext, errors: &mut FieldErrors) {
        let handler = object["handler"].as_str().unwrap_or("");
        let wrong = api::names::dns1123_label(handler);
        wrong.iter().for_each(|e| errors.invalid(&FieldPath::new("handler"), &json!(handler), e));
        if let Some(overhead) = object.get("overhead") {
            pod::overhead(&overhead["podFixed"], &FieldPath::new("overhead"), errors);
        }
        let (path, scheduling) = (FieldPath::new("scheduling"), &object["scheduling"]);
        object_meta::labels(&scheduling["nodeSelector"], &path.child("nodeSelector"), errors);
        let path = path.child("tolerations");
        pod::tolerations(scheduling, &path, errors);
        for (i, toleration) in repeated(items(scheduling, "tolerations")) {
            errors.duplicate(&path.index(i), toleration);
        }
    }

    /// `ValidateRuntimeClassUpdate`: running Pods were made with the handler that it had.
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
