//! LimitRange. `admission/limit_ranger.rs` enforces it.

use crate::{
    FieldErrors, KindInfo, NAME_AND_CREATION, field_cursor::FieldCursor, generic_kind::GenericKind,
    pod::validate_resource_name,
};
use api::quantity::Amount;
use serde_json::{Value, json};
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
    for item in FieldCursor::object(object).at("spec").at("limits").items() {
        let limit_type = item.at("type");
        let kind = limit_type.text();
        if !seen.insert(kind) {
            limit_type.duplicate(errors);
        }
        limit_type.validate_text(api::names::qualified_name, errors);
        let known = kind.contains('/') || matches!(kind, "Container" | "PersistentVolumeClaim" | "Pod");
        if api::names::qualified_name(kind).is_empty() && !known {
            limit_type.invalid("must be a standard limit type or fully qualified", errors);
        }
        if matches!(kind, "Container" | "Pod") {
            for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
                item.at(list).entries().for_each(|(name, entry)| validate_resource_name(name, &entry, errors));
            }
        }
        if kind == "Pod" {
            for list in [item.at("default"), item.at("defaultRequest")].iter().filter(|l| l.entries().next().is_some())
            {
                list.forbidden("may not be specified when `type` is 'Pod'", errors);
            }
        }
        let has_storage = |bound: &str| item.at(bound).at("storage").is_set();
        if kind == "PersistentVolumeClaim" && !has_storage("min") && !has_storage("max") {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            errors.required(&item.path().child("limits"), detail);
        }
        validate_order(&item, errors);
        validate_ratios(&item, errors);
    }
}

/// Validates `maxLimitRequestRatio`: at least 1 and at most max/min.
fn validate_ratios(item: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let amount = |quantity: &FieldCursor<'_, '_>| Amount::parse(quantity.text()).ok();
    for (name, ratio) in item.at("maxLimitRequestRatio").entries() {
        let (shown, ratio_amount) = (ratio.text(), amount(&ratio).unwrap_or_default());
        if ratio_amount < Amount::units(1) {
            ratio.invalid(&format!("ratio {shown} is less than 1"), errors);
        }
        let (min, max) = (amount(&item.at("min").key(name)), amount(&item.at("max").key(name)));
        let (Some(min), Some(max)) = (min, max) else { continue };
        #[expect(clippy::cast_precision_loss, reason = "upstream compares and shows a float")]
        let float = |amount: Amount| amount.milli() as f64;
        let max_ratio = float(max) / float(min);
        if float(ratio_amount) / 1000.0 > max_ratio {
            ratio.invalid(&format!("ratio {shown} is greater than max/min = {max_ratio:.6}"), errors);
        }
    }
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
fn validate_order(item: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let mut names = BTreeSet::new();
    for list in ["min", "defaultRequest", "default", "max"] {
        names.extend(item.at(list).entries().map(|(name, _)| name));
    }
    let amount = |list: &str, name: &str| Amount::parse(item.at(list).key(name).text()).ok();
    for name in names {
        for (low, high, reported) in PAIRS {
            let (Some(low_amount), Some(high_amount)) = (amount(low, name), amount(high, name)) else { continue };
            if low_amount > high_amount {
                let shown = |list: &str| item.at(list).key(name).text();
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
                errors.invalid(&item.at(reported).key(name).path(), &json!(shown(value)), &detail);
            }
        }
    }
}
