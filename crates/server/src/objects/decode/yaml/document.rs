//! Conversion of a YAML document to JSON (`sigs.k8s.io/yaml`): a key that is a number or a boolean becomes a string, and a
//! whole number is written without a decimal point.

use api::float;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Integers below this, 2^53, are exact in `f64`.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// A YAML document, converted to JSON.
pub(super) struct Document(pub(super) Value);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor).map(Self)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Value, E> {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole, and not large")]
        let whole = (v.fract() == 0.0 && v.abs() < MAX_EXACT).then_some(v as i64);
        let number = whole.map(Number::from).or_else(|| Number::from_f64(v));
        number.map(Value::Number).ok_or_else(|| E::custom(format!("json: unsupported value: {v}")))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Value, E> {
        Ok(Value::from(v))
    }

    fn visit_string<E: Error>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Document(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(KeyText(name)) = map.next_key()? {
            let Document(value) = map.next_value()?;
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

/// Key of a mapping, as text.
struct KeyText(String);

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyVisitor).map(Self)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that is text, a number or a flag")
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<String, E> {
        Ok(v.to_string())
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<String, E> {
        Ok(v.to_string())
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<String, E> {
        Ok(v.to_string())
    }

    /// Upstream formats float keys as `float32`.
    fn visit_f64<E: Error>(self, v: f64) -> Result<String, E> {
        #[expect(clippy::cast_possible_truncation, reason = "as upstream does")]
        let short = v as f32;
        Ok(match short {
            f32::INFINITY => ".inf".to_owned(),
            f32::NEG_INFINITY => "-.inf".to_owned(),
            _ if short.is_nan() => ".nan".to_owned(),
            _ => float::format_float(short),
        })
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<String, E> {
        Ok(v.to_owned())
    }

    fn visit_string<E: Error>(self, v: String) -> Result<String, E> {
        Ok(v)
    }
}
