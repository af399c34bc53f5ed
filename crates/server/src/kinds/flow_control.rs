//! `flowcontrol.apiserver.k8s.io/v1`. What follows from these is in `flow`.

use super::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME,
    checks::{items, text as text_of},
    fill,
    info::METADATA,
    or_none,
    plain::Plain,
    text,
};
use crate::flow::defaults;
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
    validate: flow_schema,
    ..Plain::of(&KindInfo {
        needs_version: true,
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
    validate: priority_level,
    ..Plain::of(&KindInfo {
        needs_version: true,
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

/// `ValidateFlowSchemaSpec`.
fn flow_schema(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let precedence = spec["matchingPrecedence"].as_i64().unwrap_or(0);
    if precedence <= 0 || precedence > 10_000 {
        let why = if precedence <= 0 { "must be a positive value" } else { "must not be greater than 10000" };
        errors.invalid(&path.child("matchingPrecedence"), &json!(precedence), why);
    }
    if precedence == 1 && object["metadata"]["name"] != "exempt" {
        let why = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.invalid(&path.child("matchingPrecedence"), &json!(1), why);
    }
    check_mandatory(object, &defaults::mandatory().0, &path, errors);
    let method = &spec["distinguisherMethod"];
    if !method.is_null() && !matches!(text_of(method, "type"), "ByNamespace" | "ByUser") {
        let at = path.child("distinguisherMethod");
        errors.not_supported(&at, method, &["ByNamespace", "ByUser"]);
    }
    if text_of(&spec["priorityLevelConfiguration"], "name").is_empty() {
        let at = path.child("priorityLevelConfiguration").child("name");
        errors.required(&at, "must reference a priority level");
    }
    for (i, rule) in items(spec, "rules").enumerate() {
        let path = path.child("rules").index(i);
        if items(rule, "subjects").next().is_none() {
            errors.required(&path.child("subjects"), "subjects must contain at least one value");
        }
        if ["resourceRules", "nonResourceRules"].iter().all(|list| items(rule, list).next().is_none()) {
            let why = "at least one of resourceRules and nonResourceRules has to be non-empty";
            errors.required(&path, why);
        }
    }
}

/// What must be there stays as it is, but for how much of the server those take that nothing holds up.
fn check_mandatory(object: &Value, all: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
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
        errors.invalid(path, &object["spec"], &why);
    }
}

/// `ValidatePriorityLevelConfigurationSpec`.
fn priority_level(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    check_mandatory(object, &defaults::mandatory().1, &path, errors);
    match text_of(spec, "type") {
        "Exempt" if !spec["limited"].is_null() => {
            errors.forbidden(&path.child("limited"), "must be nil if the type is not Limited");
        }
        "Limited" if spec["limited"].is_null() => {
            errors.required(&path.child("limited"), "must not be empty when type is Limited");
        }
        "Exempt" => {}
        "Limited" => {
            let at = path.child("limited");
            if spec["limited"]["nominalConcurrencyShares"].as_i64().is_some_and(|n| n < 0) {
                let shares = &spec["limited"]["nominalConcurrencyShares"];
                errors.invalid(&at.child("nominalConcurrencyShares"), shares, "must be a non-negative integer");
            }
            let response = &spec["limited"]["limitResponse"];
            if !matches!(text_of(response, "type"), "Queue" | "Reject") {
                let at = at.child("limitResponse").child("type");
                errors.not_supported(&at, &json!(text_of(response, "type")), &["Queue", "Reject"]);
            }
        }
        other => errors.not_supported(&path.child("type"), &json!(other), &["Exempt", "Limited"]),
    }
}
