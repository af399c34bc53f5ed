//! `flowcontrol.apiserver.k8s.io/v1`. What follows from these is in `flow`.

mod level;
mod schema;

use super::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME,
    checks::{items, text as text_of},
    fill,
    info::METADATA,
    or_none,
    plain::Plain,
    text,
};
use serde_json::{Value, json};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

pub(super) static FLOW_SCHEMA: Plain = Plain {
    columns: &[
        NAME,
        text("PriorityLevel", Cell::At("/spec/priorityLevelConfiguration/name")),
        text("MatchingPrecedence", Cell::At("/spec/matchingPrecedence")),
        text("DistinguisherMethod", Cell::OrNone("/spec/distinguisherMethod/type")),
        AGE,
        text("MissingPL", Cell::Of(|f, _| json!(dangling(f)))),
    ],
    default: |object| fill::numbers_at(object, "/spec", &[("matchingPrecedence", 1000)]),
    validate: schema::validate,
    ..Plain::of(&KindInfo {
        status: true,
        kept_by_status: METADATA,
        generation: true,
        ..KindInfo::of_cluster(GROUP, "FlowSchema", "flowschemas", "flowschema")
    })
};
pub(super) static PRIORITY_LEVEL: Plain = Plain {
    columns: &[
        NAME,
        text("Type", Cell::At("/spec/type")),
        text("NominalConcurrencyShares", Cell::Of(|p, _| number(p, "/spec/limited/nominalConcurrencyShares"))),
        text("Queues", Cell::Of(|p, _| number(p, "/spec/limited/limitResponse/queuing/queues"))),
        text("HandSize", Cell::Of(|p, _| number(p, "/spec/limited/limitResponse/queuing/handSize"))),
        text("QueueLengthLimit", Cell::Of(|p, _| number(p, "/spec/limited/limitResponse/queuing/queueLengthLimit"))),
        AGE,
    ],
    default: |object| {
        fill::at(object, "/spec/limited", &[("nominalConcurrencyShares", json!(30)), ("lendablePercent", json!(0))]);
        let queues = [("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)];
        fill::numbers_at(object, "/spec/limited/limitResponse/queuing", &queues);
    },
    validate: level::validate,
    ..Plain::of(&KindInfo {
        status: true,
        kept_by_status: METADATA,
        generation: true,
        ..KindInfo::of_cluster(
            GROUP,
            "PriorityLevelConfiguration",
            "prioritylevelconfigurations",
            "prioritylevelconfiguration",
        )
    })
};

fn number(object: &Value, pointer: &str) -> Value {
    object.pointer(pointer).filter(|n| n.is_i64()).cloned().unwrap_or_else(|| or_none(""))
}

fn dangling(schema: &Value) -> &str {
    let found = items(&schema["status"], "conditions").find(|c| c["type"] == "Dangling");
    found.map_or("?", |c| text_of(c, "status"))
}

/// What must be there stays as it is, but for how much of the server those take that nothing holds up.
fn check_mandatory(object: &Value, all: &[Value], errors: &mut FieldErrors) {
    let Some(fixed) = all.iter().find(|o| o["metadata"]["name"] == object["metadata"]["name"]) else { return };
    let matters = |object: &Value| {
        let mut spec = object["spec"].clone();
        if spec["type"] == "Exempt" {
            spec["exempt"] = Value::Null;
        }
        spec
    };
    if matters(object) != matters(fixed) {
        let why = format!("spec of '{}' must equal the fixed value", text_of(&fixed["metadata"], "name"));
        errors.invalid(&FieldPath::new("spec"), &object["spec"], &why);
    }
}
