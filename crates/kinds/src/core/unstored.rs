//! Kinds that are not stored: Binding, and ComponentStatus, which is computed for each read.

use crate::{Cell, KindInfo, NAME, NAME_AND_AGE, field_validation::items, generic_kind::GenericKind, text};
use serde_json::{Value, json};

pub(crate) static BINDING: GenericKind = GenericKind {
    columns: NAME_AND_AGE,
    ..GenericKind::new(&KindInfo { create_only: true, ..KindInfo::core("Binding", "bindings", "binding") })
};

pub(crate) static COMPONENT_STATUS: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("Status", Cell::Computed(|c, _| json!(health_cell(c)))),
        text("Message", Cell::Computed(|c, _| healthy_condition(c)["message"].clone())),
        text("Error", Cell::Computed(|c, _| healthy_condition(c)["error"].clone())),
    ],
    ..GenericKind::new(&KindInfo {
        short_names: &["cs"],
        computed: true,
        deprecation: Some("v1 ComponentStatus is deprecated in v1.19+"),
        ..KindInfo::cluster_scoped("", "ComponentStatus", "componentstatuses", "componentstatus")
    })
};

/// Returns the `Healthy` condition.
fn healthy_condition(status: &Value) -> Value {
    items(status, "conditions").find(|c| c["type"] == "Healthy").cloned().unwrap_or_default()
}

fn health_cell(status: &Value) -> &'static str {
    match healthy_condition(status)["status"].as_str() {
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
        None => "Unknown",
    }
}
