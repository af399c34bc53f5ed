//! Conversion of the result of a strategic merge patch. Upstream converts maps to Go's types without JSON
//! (`runtime.DefaultUnstructuredConverter`), so its error texts differ from the decoder's, and a number without a fraction
//! is an integer.

use super::scalar::{self, InvalidValue};
use crate::protobuf::message_table::{Cardinality, Field, Message, TABLE, ValueType};
use serde_json::{Map, Value};

/// Error of a conversion.
#[derive(Debug)]
pub enum ConversionError {
    /// Error of the converter.
    Converter(ConverterError),
    /// The error is that of the type's own decoder, as in JSON.
    Decoder,
}

/// Error of Go's converter.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConverterError {
    /// The value is not an object.
    #[error("cannot restore struct from: {0}")]
    NotAStruct(&'static str),
    /// The value has another type than the field.
    #[error("cannot restore {expected} from {found}")]
    Restore {
        /// Go's kind of the field.
        expected: &'static str,
        /// Go's kind of the value.
        found: &'static str,
    },
    /// The value cannot be converted to the field's type.
    #[error("cannot convert {from} to {to}")]
    Convert {
        /// Go's kind of the value.
        from: &'static str,
        /// Go's kind of the field.
        to: &'static str,
    },
    /// The field's type has no such value.
    #[error("unrecognized type: {0}")]
    Unrecognized(&'static str),
    /// Error of a type with a JSON decoder of its own.
    #[error("error decoding from json: {0}")]
    Json(InvalidValue),
    /// Error of the type's own decoder.
    #[error(transparent)]
    Value(InvalidValue),
}

impl From<ConverterError> for ConversionError {
    fn from(error: ConverterError) -> Self {
        Self::Converter(error)
    }
}

/// Converts numbers to the integers of a kind's fields.
///
/// # Errors
/// The first value that cannot be converted, in the order of Go's fields.
pub fn convert(api_version: &str, kind: &str, object: &mut Value) -> Result<(), ConversionError> {
    TABLE.kind(api_version, kind).map_or(Ok(()), |found| message(found, object))
}

fn message(message: &Message, value: &mut Value) -> Result<(), ConversionError> {
    match value {
        Value::Object(fields) => members(message, fields),
        Value::Null => Ok(()),
        other => Err(ConverterError::NotAStruct(reflect_kind(other)).into()),
    }
}

fn members(message: &Message, fields: &mut Map<String, Value>) -> Result<(), ConversionError> {
    let mut sorted: Vec<&Field> = message.fields.iter().collect();
    sorted.sort_by_key(|field| field.go_index);
    for member in sorted {
        match (member.cardinality, member.value_type) {
            (Cardinality::Inline, ValueType::Message(index)) => members(&TABLE.messages[index], fields)?,
            _ => fields.get_mut(member.name).map_or(Ok(()), |value| field(member, value))?,
        }
    }
    Ok(())
}

fn field(field: &Field, value: &mut Value) -> Result<(), ConversionError> {
    match (field.cardinality, value) {
        (_, Value::Null) => Ok(()),
        (Cardinality::List, Value::Array(items)) => {
            items.iter_mut().try_for_each(|item| element(field.value_type, item))
        }
        (Cardinality::Map, Value::Object(entries)) => {
            entries.values_mut().try_for_each(|value| element(field.value_type, value))
        }
        (Cardinality::List, other) => Err(not_a("slice", other)),
        (Cardinality::Map, other) => Err(not_a("map", other)),
        (_, value) => element(field.value_type, value),
    }
}

fn element(value_type: ValueType, value: &mut Value) -> Result<(), ConversionError> {
    match (value_type, &*value) {
        (_, Value::Null)
        | (ValueType::Raw | ValueType::Json | ValueType::BoolOr(_) | ValueType::ListOr(_), _)
        | (ValueType::String, Value::String(_))
        | (ValueType::Bool, Value::Bool(_))
        | (ValueType::Double, Value::Number(_))
        | (ValueType::Strings, Value::Array(_)) => Ok(()),
        (ValueType::Message(index), _) => message(&TABLE.messages[index], value),
        (ValueType::Bytes, Value::String(_))
        | (
            ValueType::Time | ValueType::MicroTime | ValueType::Duration | ValueType::Quantity | ValueType::IntOrString,
            _,
        ) => decoded(value_type, value),
        (ValueType::Strings | ValueType::Bytes, other) => Err(not_a("slice", other)),
        (ValueType::String, Value::Number(number)) if !number.is_f64() => {
            Err(ConverterError::Convert { from: "int64", to: "string" }.into())
        }
        (ValueType::String, _) => Err(unrecognized("string")),
        (ValueType::Bool, _) => Err(unrecognized("bool")),
        (ValueType::Double, _) => Err(unrecognized("float64")),
        (ValueType::Int32, _) => integer("int32", value),
        (ValueType::Int64, _) => integer("int64", value),
    }
}

/// Checks a value that upstream decodes from JSON even here.
fn decoded(value_type: ValueType, value: &Value) -> Result<(), ConversionError> {
    scalar::normalize(value_type, &mut value.clone()).map_err(|error| match error {
        scalar::ValueError::Value(error) if value_type == ValueType::Bytes => ConverterError::Json(error).into(),
        scalar::ValueError::Value(error) => ConverterError::Value(error).into(),
        scalar::ValueError::Type | scalar::ValueError::Number => ConversionError::Decoder,
    })
}

/// Converts to an integer type. Upstream truncates an integer that is too large; here the decoder rejects it.
fn integer(to: &'static str, value: &mut Value) -> Result<(), ConversionError> {
    let Value::Number(number) = &*value else { return Err(unrecognized(to)) };
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return Ok(()) };
    if float.fract() != 0.0 {
        return Err(ConverterError::Convert { from: "float64", to }.into());
    }
    // Converted as text: a conversion of numbers would truncate.
    let whole: i64 = format!("{float:.0}").parse().map_err(|_| ConversionError::Decoder)?;
    *value = Value::from(whole);
    Ok(())
}

fn not_a(expected: &'static str, value: &Value) -> ConversionError {
    ConverterError::Restore { expected, found: reflect_kind(value) }.into()
}

fn unrecognized(expected: &'static str) -> ConversionError {
    ConverterError::Unrecognized(expected).into()
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
        let got = match convert("v1", "Pod", &mut object.clone()) {
            Ok(()) => String::new(),
            Err(ConversionError::Converter(error)) => error.to_string(),
            Err(ConversionError::Decoder) => "decoder".to_owned(),
        };
        assert_eq!(got, expected, "{object}");
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
        convert("v1", "Pod", &mut pod).unwrap();
        assert_eq!(pod, json!({"spec": {"activeDeadlineSeconds": 400, "priority": -70}}));
        check(&json!({"spec": {"activeDeadlineSeconds": 1e300}}), "decoder");
    }
}
