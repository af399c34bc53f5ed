//! Kinds of which nothing is stored: a Binding is carried out, and a ComponentStatus is made when it is asked for.

use crate::kinds::{Cell, KindInfo, NAME, NAME_AND_AGE, checks::items, plain::Plain, text};
use serde_json::{Value, json};

pub(in crate::kinds) static BINDING: Plain = Plain {
    columns: NAME_AND_AGE,
    ..Plain::of(&KindInfo { question: true, ..KindInfo::core("Binding", "bindings", "binding") })
};

pub(in crate::kinds) static COMPONENT_STATUS: Plain = Plain {
    columns: &[
        NAME,
        text("Status", Cell::Of(|c, _| json!(health(c)))),
        text("Message", Cell::Of(|c, _| healthy(c)["message"].clone())),
        text("Error", Cell::Of(|c, _| healthy(c)["error"].clone())),
    ],
    ..Plain::of(&KindInfo {
        short_names: &["cs"],
        computed: true,
        deprecation: Some("v1 ComponentStatus is deprecated in v1.19+"),
        ..KindInfo::of_cluster("", "ComponentStatus", "componentstatuses", "componentstatus")
    })
};

/// The condition that says whether a component is there.
fn healthy(status: &Value) -> Value {
    items(status, "conditions").find(|c| c["type"] == "Healthy").cloned().unwrap_or_default()
}

fn health(status: &Value) -> &'static str {
    match healthy(status)["status"].as_str() {
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
        None => "Unknown",
    }
}
