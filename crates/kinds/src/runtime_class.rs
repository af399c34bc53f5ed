//! RuntimeClass (`node.k8s.io/v1`).

use super::{
    AGE, Cell, Column, FieldErrors, Kind, KindInfo, NAME, WriteContext, field_cursor::FieldCursor, node_labels, pod,
    text,
};
use crate::object_meta;
use serde_json::Value;

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
        let object = FieldCursor::object(object);
        object.at("handler").validate_text(api::names::dns1123_label, errors);
        let (overhead, scheduling) = (object.at("overhead"), object.at("scheduling"));
        // Upstream's path lacks `podFixed`.
        pod::validate_overhead(&overhead.with_value(overhead.at("podFixed").value()), errors);
        object_meta::labels(&scheduling.at("nodeSelector"), errors);
        let tolerations = scheduling.at("tolerations");
        pod::validate_tolerations(&tolerations, errors);
        tolerations.duplicates().for_each(|toleration| toleration.duplicate(errors));
    }

    /// Validates an update: the handler is immutable, because running Pods use it (`ValidateRuntimeClassUpdate`).
    fn validate_update(&self, object: &Value, old: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        self.validate_create(object, ctx, errors);
        FieldCursor::object(object).at("handler").validate_immutable(&FieldCursor::object(old).at("handler"), errors);
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }
}
