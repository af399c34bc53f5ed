//! Annotation of `autoscaling/v1` for the scaling behavior (`pkg/apis/autoscaling/v1/conversion.go`).
//!
//! Upstream encodes its internal type, which has no JSON names: fields have Go's names, and all are present. Decoding ignores
//! the case of names and drops unknown fields.

use api::quantity::Amount;
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::{Map, Value, json};

/// `HorizontalPodAutoscalerBehavior`, with fields in the order of upstream's encoding.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Behavior {
    scale_up: Option<Rules>,
    scale_down: Option<Rules>,
}

/// `HPAScalingRules`.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Rules {
    stabilization_window_seconds: Option<i32>,
    select_policy: Option<String>,
    policies: Option<Vec<Policy>>,
    #[serde(default, deserialize_with = "deserialize_quantity")]
    tolerance: Option<String>,
}

/// `HPAScalingPolicy`.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
struct Policy {
    r#type: String,
    value: i32,
    period_seconds: i32,
}

const FIELD_NAMES: [&str; 9] = [
    "ScaleUp",
    "ScaleDown",
    "StabilizationWindowSeconds",
    "SelectPolicy",
    "Policies",
    "Tolerance",
    "Type",
    "Value",
    "PeriodSeconds",
];

/// Encodes a `v2` behavior as the annotation's value.
pub(super) fn encode_annotation(behavior: Value) -> Option<String> {
    serde_json::to_string(&parse_behavior(behavior)?).ok()
}

/// Decodes an annotation to a `v2` behavior; `None` for an invalid or empty value.
pub(super) fn decode_annotation(annotation: &str) -> Option<Value> {
    let behavior = parse_behavior(serde_json::from_str(annotation).ok()?)?;
    if behavior.scale_up.is_none() && behavior.scale_down.is_none() {
        return None;
    }
    serde_json::to_value(behavior).ok().map(to_v2_field_names)
}

fn parse_behavior(value: Value) -> Option<Behavior> {
    serde_json::from_value(to_go_field_names(value, false)?).ok()
}

/// Renames fields to Go's names and drops nulls. `None` for a list in place of another type.
fn to_go_field_names(value: Value, list: bool) -> Option<Value> {
    Some(match value {
        Value::Object(map) => {
            let mut fields = Map::new();
            for (name, value) in map.into_iter().filter(|(_, value)| !value.is_null()) {
                if let Some(known) = FIELD_NAMES.into_iter().find(|n| n.eq_ignore_ascii_case(&name)) {
                    fields.insert(known.to_owned(), to_go_field_names(value, known == "Policies")?);
                }
            }
            Value::Object(fields)
        }
        Value::Array(_) if !list => return None,
        Value::Array(all) => {
            let element = |e: Value| if e.is_null() { Some(json!({})) } else { to_go_field_names(e, false) };
            Value::Array(all.into_iter().map(element).collect::<Option<_>>()?)
        }
        other => other,
    })
}

/// Renames fields to the names of `v2` and drops nulls.
fn to_v2_field_names(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.into_iter().filter(|(_, value)| !value.is_null());
            fields.map(|(name, value)| (name[..1].to_lowercase() + &name[1..], to_v2_field_names(value))).collect()
        }
        Value::Array(list) => list.into_iter().map(to_v2_field_names).collect(),
        other => other,
    }
}

/// Deserializes a quantity, which is a string or a number.
fn deserialize_quantity<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = match Value::deserialize(from)? {
        Value::String(text) if text.is_empty() => "0".to_owned(),
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        _ => return Err(D::Error::custom("a quantity is text or a number")),
    };
    Amount::parse(&text).map_err(D::Error::custom)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behavior_annotation_has_format_of_internal_type() {
        let policy = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
        let up = json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [policy]});
        let both = json!({"scaleUp": up, "scaleDown": {"tolerance": "100m"}});
        let expected = concat!(
            r#"{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"#,
            r#""PeriodSeconds":15}],"Tolerance":null},"ScaleDown":{"StabilizationWindowSeconds":null,"#,
            r#""SelectPolicy":null,"Policies":null,"Tolerance":"100m"}}"#,
        );
        assert_eq!(encode_annotation(both.clone()).as_deref(), Some(expected));
        assert_eq!(decode_annotation(expected), Some(both));
    }

    #[track_caller]
    fn check(annotation: &str, expected: Value) {
        assert_eq!(decode_annotation(annotation).unwrap_or_default(), expected, "{annotation}");
    }

    #[test]
    fn field_names_are_case_insensitive_and_unknown_dropped() {
        let seven = json!({"scaleUp": {"stabilizationWindowSeconds": 7}});
        check(r#"{"ScaleUp":{"StabilizationWindowSeconds":7}}"#, seven.clone());
        check(r#"{"scaleUp":{"stabilizationwindowSECONDS":7,"what":1},"More":{}}"#, seven);
        check(r#"{"scaleDown":{"tolerance":0.1}}"#, json!({"scaleDown": {"tolerance": "0.1"}}));
        let nothing = json!({"type": "", "value": 0, "periodSeconds": 0});
        check(r#"{"ScaleUp":{"Policies":[null]}}"#, json!({"scaleUp": {"policies": [nothing]}}));
        check(r#"{"ScaleUp":{}}"#, json!({"scaleUp": {}}));
    }

    #[test]
    fn invalid_behavior_annotation_is_ignored() {
        for annotation in [
            "",
            "null",
            "[]",
            "{}",
            r#"{"more":{}}"#,
            "[{},{}]",
            r#"{"ScaleUp":[7,"Max",[],"1"]}"#,
            r#"{"ScaleUp":null}"#,
            r#"{"ScaleUp":{"StabilizationWindowSeconds":"7"}}"#,
            r#"{"ScaleUp":{"StabilizationWindowSeconds":7.0}}"#,
            r#"{"ScaleUp":{"Policies":[{"Value":2147483648}]}}"#,
            r#"{"ScaleUp":{"Tolerance":"much"}}"#,
            r#"{"ScaleUp":{"Tolerance":{}}}"#,
        ] {
            check(annotation, Value::Null);
        }
    }
}
