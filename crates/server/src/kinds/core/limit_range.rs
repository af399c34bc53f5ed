//! LimitRange. What it asks of others is held by `admit/limit_ranger.rs`.

use crate::kinds::{
    FieldErrors, FieldPath, KindInfo, NAME_AND_CREATION,
    checks::{items, text},
    plain::Plain,
    pod::resource_name,
};
use api::quantity::Amount;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

pub(in crate::kinds) static LIMIT_RANGE: Plain = Plain {
    columns: NAME_AND_CREATION,
    default: |object| {
        let limits = object.pointer_mut("/spec/limits").and_then(Value::as_array_mut);
        limits.into_iter().flatten().filter(|l| l["type"] == "Container").for_each(default);
    },
    validate,
    ..Plain::of(&KindInfo {
        short_names: &["limits"],
        created_by_update: true,
        ..KindInfo::core("LimitRange", "limitranges", "limitrange")
    })
};

/// What a container may have at most is what it gets if it does not say, and what is asked for as well; else what it
/// must have at least is asked for (`SetDefaults_LimitRangeItem`).
fn default(item: &mut Value) {
    for (into, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
        let given = item[from].as_object().cloned().unwrap_or_default();
        let mut filled = item[into].as_object().cloned().unwrap_or_default();
        given.into_iter().for_each(|(key, value)| {
            filled.entry(key).or_insert(value);
        });
        if !filled.is_empty() {
            item[into] = Value::Object(filled);
        }
    }
}

/// `ValidateLimitRange`.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (i, item) in items(&object["spec"], "limits").enumerate() {
        let path = FieldPath::new("spec").child("limits").index(i);
        let kind = text(item, "type");
        if !seen.insert(kind) {
            errors.duplicate(&path.child("type"), &item["type"]);
        }
        let (at, wrong) = (path.child("type"), api::names::qualified_name(kind));
        wrong.iter().for_each(|e| errors.invalid(&at, &json!(kind), e));
        let known = kind.contains('/') || matches!(kind, "Container" | "PersistentVolumeClaim" | "Pod");
        if wrong.is_empty() && !known {
            errors.invalid(&at, &item["type"], "must be a standard limit type or fully qualified");
        }
        if matches!(kind, "Container" | "Pod") {
            for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
                let names = item[list].as_object().into_iter().flat_map(Map::keys);
                names.for_each(|name| resource_name(name, &path.child(list).key(name), errors));
            }
        }
        if kind == "Pod" {
            for list in ["default", "defaultRequest"].into_iter().filter(|l| filled(&item[l])) {
                errors.forbidden(&path.child(list), "may not be specified when `type` is 'Pod'");
            }
        }
        if kind == "PersistentVolumeClaim" && item["min"]["storage"].is_null() && item["max"]["storage"].is_null() {
            errors.required(
                &path.child("limits"),
                "either minimum or maximum storage value is required, but neither was provided",
            );
        }
        order(item, &path, errors);
        ratios(item, &path.child("maxLimitRequestRatio"), errors);
    }
}

/// How much more than it asks for something may have at most: not less than that, and no more than the bounds leave.
fn ratios(item: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let amount = |quantity: &Value| quantity.as_str().and_then(|q| Amount::parse(q).ok());
    for (name, shown) in item["maxLimitRequestRatio"].as_object().into_iter().flatten() {
        let (at, ratio) = (path.key(name), amount(shown).unwrap_or_default());
        if ratio < Amount::units(1) {
            let why = format!("ratio {} is less than 1", shown.as_str().unwrap_or(""));
            errors.invalid(&at, shown, &why);
        }
        let (Some(min), Some(max)) = (amount(&item["min"][name]), amount(&item["max"][name])) else { continue };
        #[expect(clippy::cast_precision_loss, reason = "upstream compares and shows a float")]
        let float = |amount: Amount| amount.milli() as f64;
        let most = float(max) / float(min);
        if float(ratio) / 1000.0 > most {
            let why = format!("ratio {} is greater than max/min = {most:.6}", shown.as_str().unwrap_or(""));
            errors.invalid(&at, shown, &why);
        }
    }
}

fn filled(list: &Value) -> bool {
    list.as_object().is_some_and(|l| !l.is_empty())
}

/// What must not be greater than what, and of which of the two it is told. (Upstream tells of a default that is too small
/// with the value of the least.)
const PAIRS: [(&str, &str, &str); 6] = [
    ("min", "max", "min"),
    ("min", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "max", "defaultRequest"),
    ("defaultRequest", "default", "defaultRequest"),
    ("min", "default", "default"),
    ("default", "max", "default"),
];

/// The least is not above the greatest, and defaults lie between them.
fn order(item: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let lists = ["min", "defaultRequest", "default", "max"];
    let names: BTreeSet<&String> =
        lists.iter().flat_map(|l| item[l].as_object().into_iter().flat_map(Map::keys)).collect();
    let amount = |list: &str, name: &str| item[list][name].as_str().and_then(|q| Amount::parse(q).ok());
    for name in names {
        for (low, high, told) in PAIRS {
            let (Some(least), Some(most)) = (amount(low, name), amount(high, name)) else { continue };
            if least > most {
                let shown = |list: &str| item[list][name].as_str().unwrap_or("");
                let called = |list: &str| match (list, low, high) {
                    ("defaultRequest", ..) => "default request",
                    ("default", "defaultRequest", _) => "default limit",
                    ("default", ..) => "default",
                    ("min", ..) => "min",
                    _ => "max",
                };
                let (low_value, high_value) = (shown(low), shown(high));
                let why =
                    format!("{} value {low_value} is greater than {} value {high_value}", called(low), called(high));
                let value = if (low, high) == ("min", "default") { low } else { told };
                errors.invalid(&path.child(told).key(name), &json!(shown(value)), &why);
            }
        }
    }
}
