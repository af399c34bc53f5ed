//! FlowSchema and PriorityLevelConfiguration (`flowcontrol.apiserver.k8s.io/v1`). `flowcontrol` applies them.

pub mod bootstrap;
mod flow_schema;
mod priority_level;

use super::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, defaulting,
    field_validation::{items, text as text_of},
    generic_kind::GenericKind,
    kind_info::METADATA_RESET_FOR_STATUS,
    or_none, text,
};
use serde_json::{Value, json};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

pub(super) static FLOW_SCHEMA: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("PriorityLevel", Cell::Pointer("/spec/priorityLevelConfiguration/name")),
        text("MatchingPrecedence", Cell::Pointer("/spec/matchingPrecedence")),
        text("DistinguisherMethod", Cell::OrNone("/spec/distinguisherMethod/type")),
        AGE,
        text("MissingPL", Cell::Computed(|f, _| json!(dangling_cell(f)))),
    ],
    default: |object| defaulting::set_number_defaults_at(object, "/spec", &[("matchingPrecedence", 1000)]),
    validate: flow_schema::validate,
    ..GenericKind::new(&KindInfo {
        status: true,
        reset_by_status_update: METADATA_RESET_FOR_STATUS,
        generation: true,
        ..KindInfo::cluster_scoped(GROUP, "FlowSchema", "flowschemas", "flowschema")
    })
};
pub(super) static PRIORITY_LEVEL: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("Type", Cell::Pointer("/spec/type")),
        text(
            "NominalConcurrencyShares",
            Cell::Computed(|p, _| number_cell(p, "/spec/limited/nominalConcurrencyShares")),
        ),
        text("Queues", Cell::Computed(|p, _| number_cell(p, "/spec/limited/limitResponse/queuing/queues"))),
        text("HandSize", Cell::Computed(|p, _| number_cell(p, "/spec/limited/limitResponse/queuing/handSize"))),
        text(
            "QueueLengthLimit",
            Cell::Computed(|p, _| number_cell(p, "/spec/limited/limitResponse/queuing/queueLengthLimit")),
        ),
        AGE,
    ],
    default: |object| {
        defaulting::set_defaults_at(
            object,
            "/spec/limited",
            &[("nominalConcurrencyShares", json!(30)), ("lendablePercent", json!(0))],
        );
        let queues = [("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)];
        defaulting::set_number_defaults_at(object, "/spec/limited/limitResponse/queuing", &queues);
    },
    validate: priority_level::validate,
    ..GenericKind::new(&KindInfo {
        status: true,
        reset_by_status_update: METADATA_RESET_FOR_STATUS,
        generation: true,
        ..KindInfo::cluster_scoped(
            GROUP,
            "PriorityLevelConfiguration",
            "prioritylevelconfigurations",
            "prioritylevelconfiguration",
        )
    })
};

fn number_cell(object: &Value, pointer: &str) -> Value {
    object.pointer(pointer).filter(|n| n.is_i64()).cloned().unwrap_or_else(|| or_none(""))
}

fn dangling_cell(schema: &Value) -> &str {
    let found = items(&schema["status"], "conditions").find(|c| c["type"] == "Dangling");
    found.map_or("?", |c| text_of(c, "status"))
}

/// Validates that a mandatory object has its fixed spec, except `exempt` of the exempt level.
fn validate_mandatory_object(object: &Value, all: &[Value], errors: &mut FieldErrors) {
    let Some(fixed) = all.iter().find(|o| o["metadata"]["name"] == object["metadata"]["name"]) else { return };
    let comparable_spec = |object: &Value| {
        let mut spec = object["spec"].clone();
        if spec["type"] == "Exempt" {
            spec["exempt"] = Value::Null;
        }
        spec
    };
    if comparable_spec(object) != comparable_spec(fixed) {
        let detail = format!("spec of '{}' must equal the fixed value", text_of(&fixed["metadata"], "name"));
        errors.invalid(&FieldPath::new("spec"), &object["spec"], &detail);
    }
}
