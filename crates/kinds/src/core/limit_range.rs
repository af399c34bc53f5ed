//! LimitRange. `admission/limit_ranger.rs` enforces it.

use crate::{
    FieldErrors, FieldPath, KindInfo, NAME_AND_CREATION,
    field_validation::{items, text},
    generic_kind::GenericKind,
    pod::validate_resource_name,
};
use api::quantity::Amount;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

pub(crate) static LIMIT_RANGE: GenericKind = GenericKind {
    columns: NAME_AND_CREATION,
    default: |object| {
        let limits = object.pointer_mut("/spec/limits").and_then(Value::as_array_mut);
        limits.into_iter().flatten().filter(|l| l["type"] == "Container").for_each(set_item_defaults);
    },
    validate,
    ..GenericKind::new(&KindInfo {
        short_names: &["limits"],
        allow_create_on_update: true,
        ..KindInfo::core("LimitRange", "limitranges", "limitrange")
    })
};

/// Sets missing default limits to the maximum, and missing default requests to the default limits or the minimum
/// (`SetDefaults_LimitRangeItem`).
fn set_item_defaults(item: &mut Value) {
    for (into, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
        let source = item[from].as_object().cloned().unwrap_or_default();
        let mut merged = item[into].as_object().cloned().unwrap_or_default();
        source.into_iter().for_each(|(key, value)| {
            merged.entry(key).or_insert(value);
        });
        if !merged.is_empty() {
            item[into] = Value::Object(merged);
        }
    }
}

/// Validates a LimitRange (`ValidateLimitRange`).
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
                names.for_each(|name| validate_resource_name(name, &path.child(list).key(name), errors));
            }
        }
        if kind == "Pod" {
            for list in ["default", "defaultRequest"].into_iter().filter(|l| is_nonempty(&item[l])) {
                errors.forbidden(&path.child(list), "may not be specified when `type` is 'Pod'");
            }
        }
        if kind == "PersistentVolumeClaim" && item["min"]["storage"].is_null() && item["max"]["storage"].is_null() {
            errors.required(
                &path.child("limits"),
                "either minimum or maximum storage value is required, but neither was provided",
            );
        }
        validate_order(item, &path, errors);
        validate_ratios(item, &path.child("maxLimitRequestRatio"), errors);
    }
}

/// Validates `maxLimitRequestRatio`: at least 1 and at most max/min.
fn validate_ratios(item: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let amount = |quantity: &Value| quantity.as_str().and_then(|q| Amount::parse(q).ok());
    for (name, shown) in item["maxLimitRequestRatio"].as_object().into_iter().flatten() {
        let (at, ratio) = (path.key(name), amount(shown).unwrap_or_default());
        if ratio < Amount::units(1) {
            let detail = format!("ratio {} is less than 1", shown.as_str().unwrap_or(""));
            errors.invalid(&at, shown, &detail);
        }
        let (Some(min), Some(max)) = (amount(&item["min"][name]), amount(&item["max"][name])) else { continue };
        #[expect(clippy::cast_precision_loss, reason = "upstream compares and shows a float")]
        let float = |amount: Amount| amount.milli() as f64;
        let max_ratio = float(max) / float(min);
        if float(ratio) / 1000.0 > max_ratio {
            let detail = format!("ratio {} is greater than max/min = {max_ratio:.6}", shown.as_str().unwrap_or(""));
            errors.invalid(&at, shown, &detail);
        }
    }
}

fn is_nonempty(list: &Value) -> bool {
    list.as_object().is_some_and(|l| !l.is_empty())
}

/// Pairs of lists, of which the first must not exceed the second, and the list that the error reports. (Upstream reports a
/// default less than the minimum with the value of the minimum.)
const PAIRS: [(&str, &str, &str); 6] = [
    ("min", "max", "min"),
    ("min", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "max", "defaultRequest"),
    ("defaultRequest", "default", "defaultRequest"),
    ("min", "default", "default"),
    ("default", "max", "default"),
];

/// Validates that minimum, default request, default limit and maximum are in order.
fn validate_order(item: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let lists = ["min", "defaultRequest", "default", "max"];
    let names: BTreeSet<&String> =
        lists.iter().flat_map(|l| item[l].as_object().into_iter().flat_map(Map::keys)).collect();
    let amount = |list: &str, name: &str| item[list][name].as_str().and_then(|q| Amount::parse(q).ok());
    for name in names {
        for (low, high, reported) in PAIRS {
            let (Some(low_amount), Some(high_amount)) = (amount(low, name), amount(high, name)) else { continue };
            if low_amount > high_amount {
                let shown = |list: &str| item[list][name].as_str().unwrap_or("");
                let list_name = |list: &str| match (list, low, high) {
                    ("defaultRequest", ..) => "default request",
                    ("default", "defaultRequest", _) => "default limit",
                    ("default", ..) => "default",
                    ("min", ..) => "min",
                    _ => "max",
                };
                let (low_value, high_value) = (shown(low), shown(high));
                let detail = format!(
                    "{} value {low_value} is greater than {} value {high_value}",
                    list_name(low),
                    list_name(high)
                );
                let value = if (low, high) == ("min", "default") { low } else { reported };
                errors.invalid(&path.child(reported).key(name), &json!(shown(value)), &detail);
            }
        }
    }
}
