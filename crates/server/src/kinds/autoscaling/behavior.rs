//! How fast a scale may change, as the older version has it: an annotation (`pkg/apis/autoscaling/v1/conversion.go`).
//!
//! Upstream writes its internal type there, which has no names for JSON: fields are called as in Go, and all of them are
//! there. Reading it takes names in whatever case, and drops what it does not know.

use api::quantity::Amount;
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::{Map, Value, json};

/// `HorizontalPodAutoscalerBehavior`; the order of fields is that of upstream's text.
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
    #[serde(default, deserialize_with = "quantity")]
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

const NAMES: [&str; 9] = [
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

/// The annotation's text of a behavior of the stored version.
pub(super) fn written(behavior: Value) -> Option<String> {
    serde_json::to_string(&parsed(behavior)?).ok()
}

/// The behavior of the stored version that an annotation tells. What is not well formed, or is empty, tells none.
pub(super) fn read(note: &str) -> Option<Value> {
    let behavior = parsed(serde_json::from_str(note).ok()?)?;
    if behavior.scale_up.is_none() && behavior.scale_down.is_none() {
        return None;
    }
    serde_json::to_value(behavior).ok().map(newer)
}

fn parsed(value: Value) -> Option<Behavior> {
    serde_json::from_value(as_in_go(value, false)?).ok()
}

/// The same with the names of Go's fields. Null is what a field is without it. None where a list is that cannot be one.
fn as_in_go(value: Value, list: bool) -> Option<Value> {
    Some(match value {
        Value::Object(map) => {
            let mut fields = Map::new();
            for (name, value) in map.into_iter().filter(|(_, value)| !value.is_null()) {
                if let Some(known) = NAMES.into_iter().find(|n| n.eq_ignore_ascii_case(&name)) {
                    fields.insert(known.to_owned(), as_in_go(value, known == "Policies")?);
                }
            }
            Value::Object(fields)
        }
        Value::Array(_) if !list => return None,
        Value::Array(all) => {
            let element = |e: Value| if e.is_null() { Some(json!({})) } else { as_in_go(e, false) };
            Value::Array(all.into_iter().map(element).collect::<Option<_>>()?)
        }
        other => other,
    })
}

/// The same with the stored version's names, without what is not set.
fn newer(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.into_iter().filter(|(_, value)| !value.is_null());
            fields.map(|(name, value)| (name[..1].to_lowercase() + &name[1..], newer(value))).collect()
        }
        Value::Array(list) => list.into_iter().map(newer).collect(),
        other => other,
    }
}

/// A quantity is text or a number.
fn quantity<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
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
    fn an_annotation_is_written_as_upstream_writes_its_internal_type() {
        let policy = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
        let up = json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [policy]});
        let both = json!({"scaleUp": up, "scaleDown": {"tolerance": "100m"}});
        let expected = concat!(
            r#"{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"#,
            r#""PeriodSeconds":15}],"Tolerance":null},"ScaleDown":{"StabilizationWindowSeconds":null,"#,
            r#""SelectPolicy":null,"Policies":null,"Tolerance":"100m"}}"#,
        );
        assert_eq!(written(both.clone()).as_deref(), Some(expected));
        assert_eq!(read(expected), Some(both));
    }

    #[track_caller]
    fn check(note: &str, expected: Value) {
        assert_eq!(read(note).unwrap_or_default(), expected, "{note}");
    }

    #[test]
    fn names_are_read_in_any_case_and_unknown_ones_dropped() {
        let seven = json!({"scaleUp": {"stabilizationWindowSeconds": 7}});
        check(r#"{"ScaleUp":{"StabilizationWindowSeconds":7}}"#, seven.clone());
        check(r#"{"scaleUp":{"stabilizationwindowSECONDS":7,"what":1},"More":{}}"#, seven);
        check(r#"{"scaleDown":{"tolerance":0.1}}"#, json!({"scaleDown": {"tolerance": "0.1"}}));
        let nothing = json!({"type": "", "value": 0, "periodSeconds": 0});
        check(r#"{"ScaleUp":{"Policies":[null]}}"#, json!({"scaleUp": {"policies": [nothing]}}));
        check(r#"{"ScaleUp":{}}"#, json!({"scaleUp": {}}));
    }

    #[test]
    fn what_is_not_well_formed_tells_nothing() {
        for note in [
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
            check(note, Value::Null);
        }
    }
}
