//! Conversion of the result of a strategic merge patch. Upstream converts maps to Go's types without JSON
//! (`runtime.DefaultUnstructuredConverter`), so its error texts differ from the decoder's, and a number without a fraction
//! is an integer.

use super::leaf;
use crate::protobuf::table::{Field, Kind, Message, Shape, TABLE};
use serde_json::{Map, Value};

/// Error of a conversion.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unconvertible {
    /// Error text of the converter.
    Converter(String),
    /// The error is that of the type's own decoder, as in JSON.
    Decoder,
}

/// Converts numbers to the integers of a kind's fields.
///
/// # Errors
/// The first value that cannot be converted, in the order of Go's fields.
pub(crate) fn convert(api_version: &str, kind: &str, object: &mut Value) -> Result<(), Unconvertible> {
    TABLE.kind(api_version, kind).map_or(Ok(()), |found| message(found, object))
}

fn message(message: &Message, value: &mut Value) -> Result<(), Unconvertible> {
    match value {
        Value::Object(fields) => members(message, fields),
        Value::Null => Ok(()),
        other => Err(words(format!("cannot restore struct from: {}", reflect_kind(other)))),
    }
}

fn members(message: &Message, fields: &mut Map<String, Value>) -> Result<(), Unconvertible> {
    let mut in_order: Vec<&Field> = message.fields.iter().collect();
    in_order.sort_by_key(|field| field.place);
    for of in in_order {
        match (of.shape, of.kind) {
            (Shape::Inline, Kind::Message(place)) => members(&TABLE.messages[place], fields)?,
            _ => fields.get_mut(of.name).map_or(Ok(()), |value| field(of, value))?,
        }
    }
    Ok(())
}

fn field(field: &Field, value: &mut Value) -> Result<(), Unconvertible> {
    match (field.shape, value) {
        (_, Value::Null) => Ok(()),
        (Shape::List, Value::Array(items)) => items.iter_mut().try_for_each(|item| one(field.kind, item)),
        (Shape::Map, Value::Object(entries)) => entries.values_mut().try_for_each(|value| one(field.kind, value)),
        (Shape::List, other) => Err(not_a("slice", other)),
        (Shape::Map, other) => Err(not_a("map", other)),
        (_, value) => one(field.kind, value),
    }
}

fn one(kind: Kind, value: &mut Value) -> Result<(), Unconvertible> {
    match (kind, &*value) {
        (_, Value::Null)
        | (Kind::Raw | Kind::Json | Kind::BoolOr(_) | Kind::ListOr(_), _)
        | (Kind::String, Value::String(_))
        | (Kind::Bool, Value::Bool(_))
        | (Kind::Double, Value::Number(_))
        | (Kind::Strings, Value::Array(_)) => Ok(()),
        (Kind::Message(place), _) => message(&TABLE.messages[place], value),
        (Kind::Bytes, Value::String(_))
        | (Kind::Time | Kind::MicroTime | Kind::Duration | Kind::Quantity | Kind::IntOrString, _) => {
            decoded(kind, value)
        }
        (Kind::Strings | Kind::Bytes, other) => Err(not_a("slice", other)),
        (Kind::String, Value::Number(number)) if !number.is_f64() => {
            Err(words("cannot convert int64 to string".to_owned()))
        }
        (Kind::String, _) => Err(unrecognized("string")),
        (Kind::Bool, _) => Err(unrecognized("bool")),
        (Kind::Double, _) => Err(unrecognized("float64")),
        (Kind::Int32, _) => integer("int32", value),
        (Kind::Int64, _) => integer("int64", value),
    }
}

/// Checks a value that upstream decodes from JSON even here.
fn decoded(kind: Kind, value: &Value) -> Result<(), Unconvertible> {
    leaf::clean(kind, &mut value.clone()).map_err(|wrong| match wrong {
        leaf::Wrong::Value(why) if kind == Kind::Bytes => words(format!("error decoding from json: {why}")),
        leaf::Wrong::Value(why) => words(why),
        leaf::Wrong::Type | leaf::Wrong::Number => Unconvertible::Decoder,
    })
}

/// Converts to an integer type. Upstream truncates an integer that is too large; here the decoder rejects it.
fn integer(to: &str, value: &mut Value) -> Result<(), Unconvertible> {
    let Value::Number(number) = &*value else { return Err(unrecognized(to)) };
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return Ok(()) };
    if float.fract() != 0.0 {
        return Err(words(format!("cannot convert float64 to {to}")));
    }
    // Converted as text: a conversion of numbers would truncate.
    let whole: i64 = format!("{float:.0}").parse().map_err(|_| Unconvertible::Decoder)?;
    *value = Value::from(whole);
    Ok(())
}

fn not_a(what: &str, value: &Value) -> Unconvertible {
    words(format!("cannot restore {what} from {}", reflect_kind(value)))
}

fn unrecognized(wanted: &str) -> Unconvertible {
    words(format!("unrecognized type: {wanted}"))
}

fn words(words: String) -> Unconvertible {
    Unconvertible::Converter(words)
}

/// Go's `reflect.Kind` of a value.
fn reflect_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(object: &Value, expected: &str) {
        let said = match convert("v1", "Pod", &mut object.clone()) {
            Ok(()) => String::new(),
            Err(Unconvertible::Converter(words)) => words,
            Err(Unconvertible::Decoder) => "decoder".to_owned(),
        };
        assert_eq!(said, expected, "{object}");
    }

    #[test]
    fn values_of_wrong_type_have_errors_of_go_converter() {
        for (metadata, expected) in [
            (json!("x"), "cannot restore struct from: string"),
            (json!({"labels": "x"}), "cannot restore map from string"),
            (json!({"annotations": ["a"]}), "cannot restore map from slice"),
            (json!({"labels": 1}), "cannot restore map from int64"),
            (json!({"labels": 1.5}), "cannot restore map from float64"),
            (json!({"labels": true}), "cannot restore map from bool"),
            (json!({"finalizers": {"a": "b"}}), "cannot restore slice from map"),
            (json!({"labels": {"a": 1}}), "cannot convert int64 to string"),
            (json!({"labels": {"a": true}}), "unrecognized type: string"),
            (json!({"labels": null, "name": null}), ""),
            // The error is that of the first of Go's fields.
            (json!({"annotations": 1, "labels": "x"}), "cannot restore map from string"),
        ] {
            check(&json!({"metadata": metadata}), expected);
        }
        for (spec, expected) in [
            (json!({"hostNetwork": "yes"}), "unrecognized type: bool"),
            (json!({"activeDeadlineSeconds": "1"}), "unrecognized type: int64"),
            (json!({"activeDeadlineSeconds": 1.5}), "cannot convert float64 to int64"),
            (json!({"containers": [{"name": "c", "ports": [{"containerPort": "http"}]}]}), "unrecognized type: int32"),
            (json!({"containers": ["c"]}), "cannot restore struct from: string"),
            (json!({"overhead": {"cpu": true}}), "decoder"),
        ] {
            check(&json!({"spec": spec}), expected);
        }
    }

    #[test]
    fn numbers_without_a_fraction_become_integers() {
        let mut pod = json!({"spec": {"activeDeadlineSeconds": 400.0, "priority": -7e1}});
        assert_eq!(convert("v1", "Pod", &mut pod), Ok(()));
        assert_eq!(pod, json!({"spec": {"activeDeadlineSeconds": 400, "priority": -70}}));
        check(&json!({"spec": {"activeDeadlineSeconds": 1e300}}), "decoder");
    }
}
