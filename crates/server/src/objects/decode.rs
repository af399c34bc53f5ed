//! Decoding of request bodies, JSON or YAML, with duplicate fields.

mod yaml;

pub(crate) use yaml::{DecodeYamlError, is_yaml_error, split_warnings};

use crate::objects::call::Call;
use api::bounded_messages::BoundedMessages;
use data_encoding::HEXLOWER;
use errors::ApiError;
use kinds::Kind;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::{cell::RefCell, fmt};

/// Maximal length of a field's path, in bytes. Errors, warnings and validation format paths, so the cost of a field grows
/// with its path. Only field sets in `managedFields` have names that contain whole values.
pub(crate) const MAX_PATH: usize = 16 << 10;

/// A decoded body.
#[derive(Debug)]
pub(crate) struct DecodedBody {
    pub(crate) value: Value,
    /// Messages such as `duplicate field "spec.containers[0].image"`; the last of duplicates wins. YAML has one message for all.
    pub(crate) duplicates: Vec<String>,
}

/// Decodes the body of a request to an object of this kind.
pub(crate) fn parse(call: &Call, kind: &dyn Kind) -> Result<DecodedBody, ApiError> {
    let error = |e: &dyn fmt::Display| {
        let summary = summary(&call.body);
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {e} ({summary})",
            kind.info().kind
        ))
    };
    let parsed = decode_body(call, &error)?;
    if !parsed.value.is_object() {
        return Err(error(&"couldn't get version/kind; it is no JSON object"));
    }
    // The kind of built-in objects follows from the path.
    if kind.is_custom() && parsed.value["kind"].as_str().is_none_or(str::is_empty) {
        return Err(error(&format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(&call.body))));
    }
    Ok(parsed)
}

/// Decodes a body of another kind than the resource's, for example a Binding or `DeleteOptions`.
pub(crate) fn body_of_kind(call: &Call, kind: &str) -> Result<Value, ApiError> {
    let error = |e: &dyn fmt::Display| ApiError::bad_request(format!("couldn't decode {kind}: {e}"));
    let value = decode_body(call, &error)?.value;
    match value["kind"].as_str() {
        _ if !value.is_object() => Err(error(&"it is no JSON object")),
        Some(other) if !other.is_empty() && other != kind => Err(error(&format!("it is of kind {other:?}"))),
        _ => Ok(value),
    }
}

fn decode_body(call: &Call, error: &dyn Fn(&dyn fmt::Display) -> ApiError) -> Result<DecodedBody, ApiError> {
    match call.content_type.as_str() {
        "" | "application/json" => json(&call.body).map_err(|e| error(&e)),
        "application/yaml" => {
            let text = std::str::from_utf8(&call.body).map_err(|e| error(&e))?;
            yaml::decode(text).map_err(|e| error(&e))
        }
        _ => Err(ApiError::unsupported_media_type(
            "the body of the request was in an unknown format",
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// Decodes JSON. `serde_json` limits the depth to 128.
pub(crate) fn json(body: &[u8]) -> Result<DecodedBody, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let duplicates = RefCell::default();
    let value = ValueSeed::root(&duplicates).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(DecodedBody { value, duplicates: duplicates.into_inner().into_messages() })
}

/// The path of a field is too long.
#[derive(Debug, thiserror::Error)]
#[error("the path of a field is longer than {MAX_PATH} bytes")]
pub(crate) struct PathTooLong;

/// Rejects an object with fields whose paths are too long.
pub(crate) fn check_paths(object: &Value) -> Result<(), PathTooLong> {
    fn is_longer(value: &Value, limit: usize) -> bool {
        match value {
            Value::Object(fields) => fields
                .iter()
                .any(|(name, value)| limit.checked_sub(name.len() + 1).is_none_or(|rest| is_longer(value, rest))),
            Value::Array(items) => items.iter().any(|item| is_longer(item, limit)),
            _ => false,
        }
    }
    let is_long = match (object, object.get("metadata")) {
        (Value::Object(fields), Some(Value::Object(metadata))) => {
            fields.iter().filter(|(name, _)| *name != "metadata").chain(metadata).any(|(name, value)| {
                name != "managedFields" && (name.len() >= MAX_PATH || is_longer(value, MAX_PATH - name.len() - 1))
            })
        }
        _ => is_longer(object, MAX_PATH),
    };
    if is_long { Err(PathTooLong) } else { Ok(()) }
}

/// Decodes YAML, of which JSON is a subset; duplicate fields in JSON get YAML's messages.
pub(crate) fn yaml_or_json(body: &[u8]) -> Result<DecodedBody, DecodeYamlError> {
    let is_json = body.trim_ascii_start().first() == Some(&b'{');
    let parsed = is_json.then(|| json(body).ok()).flatten();
    match parsed {
        Some(parsed) if parsed.duplicates.is_empty() => Ok(parsed),
        parsed => {
            let text = std::str::from_utf8(body)?;
            match (yaml::decode(text), parsed) {
                (Ok(yaml), Some(parsed)) => Ok(DecodedBody { duplicates: yaml.duplicates, ..parsed }),
                // JSON with tabs is not valid YAML, but accepted.
                (Err(_), Some(parsed)) => Ok(parsed),
                (decoded, None) => decoded,
            }
        }
    }
}

/// Summarizes a body for an error, in hexadecimal unless it starts as JSON (`summarizeData`).
fn summary(data: &[u8]) -> String {
    const MAX: usize = 30;
    let head = &data[..data.len().min(MAX)];
    let text = match head.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(head).into_owned(),
        Some(_) => HEXLOWER.encode(head),
    };
    if data.len() > MAX { text + " ..." } else { text }
}

/// Path of a value; formatted only for duplicate fields.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// Whether this is a field set of `metadata.managedFields`.
    fn is_field_set(&self) -> bool {
        matches!(
            self,
            Self::Field(Self::Item(Self::Field(Self::Field(Self::Root, "metadata"), "managedFields"), _), "fieldsV1")
        )
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Deserializes the value at a path, and collects its duplicate fields.
#[derive(Clone, Copy)]
struct ValueSeed<'a> {
    duplicates: &'a RefCell<BoundedMessages>,
    at: &'a Path<'a>,
    /// Remaining length of the path, in bytes, without indexes.
    left: usize,
}

impl<'a> ValueSeed<'a> {
    fn root(duplicates: &'a RefCell<BoundedMessages>) -> Self {
        Self { duplicates, at: &Path::Root, left: MAX_PATH }
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Value, E> {
        Number::from_f64(v).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let at = Path::Item(self.at, items.len());
            match seq.next_element_seed(ValueSeed { at: &at, ..self })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let at = Path::Field(self.at, &key);
            let left = if at.is_field_set() { usize::MAX } else { self.left };
            let left = left.checked_sub(key.len() + 1).ok_or_else(|| A::Error::custom(PathTooLong))?;
            if fields.contains_key(&key) {
                self.duplicates.borrow_mut().push(|| format!("duplicate field {:?}", at.to_string()));
            }
            let value = map.next_value_seed(ValueSeed { at: &at, left, ..self })?;
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn duplicate_fields_are_reported_with_paths() {
        let parsed = json(br#"{"a": [{"b": 1, "b": 2}], "a.c": {}, "d": 1, "d": 3}"#).unwrap();
        assert_eq!(parsed.value, json!({"a": [{"b": 2}], "a.c": {}, "d": 3}));
        assert_eq!(parsed.duplicates, [r#"duplicate field "a[0].b""#, r#"duplicate field "d""#]);
    }

    #[test]
    fn reported_duplicates_are_bounded_by_path_length() {
        let duplicates = "\"a\":1,".repeat(200_000);
        let below = |key: &str| format!("{{\"{key}\":{{{duplicates}\"a\":1}}}}");
        assert!(json(below(&"k".repeat(MAX_PATH)).as_bytes()).unwrap_err().to_string().contains("longer than"));
        let duplicates = json(below(&"k".repeat(MAX_PATH - 10)).as_bytes()).unwrap().duplicates;
        assert!(duplicates.len() < 100, "{}", duplicates.len());
    }

    #[test]
    fn field_sets_have_no_path_limit() {
        let key = format!("v:\\\"{}\\\"", "k".repeat(MAX_PATH));
        let text = format!(r#"{{"metadata": {{"managedFields": [{{"fieldsV1": {{"f:spec": {{"{key}": {{}}}}}}}}]}}}}"#);
        let parsed = json(text.as_bytes()).unwrap();
        assert!(check_paths(&parsed.value).is_ok());
        assert!(json(text.replace("fieldsV1", "fields").as_bytes()).is_err());
        assert!(check_paths(&json!({"metadata": {"k".repeat(MAX_PATH): 1}})).is_err());
        assert!(check_paths(&json!({"k".repeat(MAX_PATH): 1})).is_err());
    }

    #[test]
    fn yaml_with_long_paths_is_rejected() {
        // The length of a single key is limited in YAML.
        let nested = |levels: usize| {
            let key = "k".repeat(999);
            let lines = (0..levels).map(|level| format!("{}{key}:\n", " ".repeat(level)));
            let text: String = lines.chain([format!("{}a: 1\n", " ".repeat(levels))]).collect();
            yaml_or_json(text.as_bytes()).map(|parsed| parsed.value)
        };
        assert!(nested(16).is_ok());
        assert!(nested(17).unwrap_err().to_string().contains("longer than"));
    }

    #[test]
    fn invalid_json_is_rejected() {
        for bad in ["", "{", "[1,]", "{} {}", "nul", "1e999", "\"\\ud800\"", &"[".repeat(1000)] {
            assert!(json(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
