//! Bodies: JSON or YAML, with every field that stands twice.

mod yaml;

pub(crate) use yaml::{as_warnings, is_of_yaml};

use crate::{kinds::Kind, service::Call, status::ApiError};
use api::findings::Findings;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::{cell::RefCell, fmt, fmt::Write};

/// How long the path of a field may be, in bytes. Errors, warnings and validation write paths out, so each field costs as
/// much as its path is long. Only the field sets in `managedFields` have names that hold whole values.
pub(crate) const MAX_PATH: usize = 16 << 10;

/// A body as it was sent.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) value: Value,
    /// For example `duplicate field "spec.containers[0].image"`: of each, the last one counts. Of YAML, one text for all.
    pub(crate) duplicates: Vec<String>,
}

/// The body of a request as an object, YAML or JSON.
pub(crate) fn parse(call: &Call, kind: &dyn Kind) -> Result<Parsed, ApiError> {
    let error = |e: &dyn fmt::Display| {
        let summary = summary(&call.body);
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {e} ({summary})",
            kind.info().kind
        ))
    };
    let parsed = read(call, &error)?;
    if !parsed.value.is_object() {
        return Err(error(&"couldn't get version/kind; it is no JSON object"));
    }
    // What is built in is known by its path.
    if kind.is_custom() && parsed.value["kind"].as_str().is_none_or(str::is_empty) {
        return Err(error(&format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(&call.body))));
    }
    Ok(parsed)
}

/// A body that is no object of a kind: a Binding, `DeleteOptions`.
pub(crate) fn options(call: &Call, kind: &str) -> Result<Value, ApiError> {
    let error = |e: &dyn fmt::Display| ApiError::bad_request(format!("couldn't decode {kind}: {e}"));
    let value = read(call, &error)?.value;
    match value["kind"].as_str() {
        _ if !value.is_object() => Err(error(&"it is no JSON object")),
        Some(other) if !other.is_empty() && other != kind => Err(error(&format!("it is of kind {other:?}"))),
        _ => Ok(value),
    }
}

fn read(call: &Call, error: &dyn Fn(&dyn fmt::Display) -> ApiError) -> Result<Parsed, ApiError> {
    match call.content_type.as_str() {
        "" | "application/json" => json(&call.body).map_err(|e| error(&e)),
        "application/yaml" => {
            let text = std::str::from_utf8(&call.body).map_err(|e| error(&e))?;
            yaml::read(text).map_err(|e| error(&e))
        }
        _ => Err(ApiError::unsupported_media_type(
            "the body of the request was in an unknown format",
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// JSON. The depth is bounded by `serde_json` (128).
pub(crate) fn json(body: &[u8]) -> Result<Parsed, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let duplicates = RefCell::default();
    let value = Seed::root(&duplicates).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(Parsed { value, duplicates: duplicates.into_inner().into_texts() })
}

/// Refuses an object with fields whose paths are too long.
pub(crate) fn check_paths(object: &Value) -> Result<(), String> {
    fn is_longer(value: &Value, than: usize) -> bool {
        match value {
            Value::Object(fields) => fields
                .iter()
                .any(|(name, value)| than.checked_sub(name.len() + 1).is_none_or(|rest| is_longer(value, rest))),
            Value::Array(items) => items.iter().any(|item| is_longer(item, than)),
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
    if is_long { Err(too_long()) } else { Ok(()) }
}

fn too_long() -> String {
    format!("the path of a field is longer than {MAX_PATH} bytes")
}

/// YAML, of which JSON is a part: what stands twice in that is told as of YAML.
pub(crate) fn yaml_or_json(body: &[u8]) -> Result<Parsed, String> {
    let is_json = body.trim_ascii_start().first() == Some(&b'{');
    let parsed = is_json.then(|| json(body).ok()).flatten();
    match parsed {
        Some(parsed) if parsed.duplicates.is_empty() => Ok(parsed),
        parsed => {
            let text = std::str::from_utf8(body).map_err(|e| e.to_string())?;
            match (yaml::read(text), parsed) {
                (Ok(told), Some(parsed)) => Ok(Parsed { duplicates: told.duplicates, ..parsed }),
                // JSON that is no YAML, by its tabs, is read all the same.
                (Err(_), Some(parsed)) => Ok(parsed),
                (read, None) => read,
            }
        }
    }
}

/// As upstream's `summarizeData`: what JSON could be as it is, anything else in hexadecimal.
fn summary(data: &[u8]) -> String {
    const MAX: usize = 30;
    let head = &data[..data.len().min(MAX)];
    let text = match head.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(head).into_owned(),
        Some(_) => head.iter().fold(String::new(), |mut text, b| {
            let _ = write!(text, "{b:02x}");
            text
        }),
    };
    if data.len() > MAX { text + " ..." } else { text }
}

/// Where a value stands; made into text only when a field stands twice.
enum At<'a> {
    Root,
    Field(&'a At<'a>, &'a str),
    Item(&'a At<'a>, usize),
}

impl At<'_> {
    /// Whether it is a field set of `metadata.managedFields`.
    fn is_field_set(&self) -> bool {
        matches!(
            self,
            Self::Field(Self::Item(Self::Field(Self::Field(Self::Root, "metadata"), "managedFields"), _), "fieldsV1")
        )
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(above, name) => write!(f, "{above}.{name}"),
            Self::Item(above, place) => write!(f, "{above}[{place}]"),
        }
    }
}

/// Reads the value at a place, and notes which fields in it stand twice.
#[derive(Clone, Copy)]
struct Seed<'a> {
    duplicates: &'a RefCell<Findings>,
    at: &'a At<'a>,
    /// How much longer the path may become, not counting indexes.
    left: usize,
}

impl<'a> Seed<'a> {
    fn root(duplicates: &'a RefCell<Findings>) -> Self {
        Self { duplicates, at: &At::Root, left: MAX_PATH }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
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
            let at = At::Item(self.at, items.len());
            match seq.next_element_seed(Seed { at: &at, ..self })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let at = At::Field(self.at, &key);
            let left = if at.is_field_set() { usize::MAX } else { self.left };
            let left = left.checked_sub(key.len() + 1).ok_or_else(|| A::Error::custom(too_long()))?;
            if fields.contains_key(&key) {
                self.duplicates.borrow_mut().push(|| format!("duplicate field {:?}", at.to_string()));
            }
            let value = map.next_value_seed(Seed { at: &at, left, ..self })?;
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
    fn fields_that_stand_twice_are_named() {
        let parsed = json(br#"{"a": [{"b": 1, "b": 2}], "a.c": {}, "d": 1, "d": 3}"#).unwrap();
        assert_eq!(parsed.value, json!({"a": [{"b": 2}], "a.c": {}, "d": 3}));
        assert_eq!(parsed.duplicates, [r#"duplicate field "a[0].b""#, r#"duplicate field "d""#]);
    }

    #[test]
    fn duplicates_below_a_long_key_are_bounded() {
        let twice = "\"a\":1,".repeat(200_000);
        let below = |key: &str| format!("{{\"{key}\":{{{twice}\"a\":1}}}}");
        assert!(json(below(&"k".repeat(MAX_PATH)).as_bytes()).unwrap_err().to_string().contains("longer than"));
        let duplicates = json(below(&"k".repeat(MAX_PATH - 10)).as_bytes()).unwrap().duplicates;
        assert!(duplicates.len() < 100, "{}", duplicates.len());
    }

    #[test]
    fn field_sets_hold_values_of_any_length() {
        let key = format!("v:\\\"{}\\\"", "k".repeat(MAX_PATH));
        let text = format!(r#"{{"metadata": {{"managedFields": [{{"fieldsV1": {{"f:spec": {{"{key}": {{}}}}}}}}]}}}}"#);
        let parsed = json(text.as_bytes()).unwrap();
        assert!(check_paths(&parsed.value).is_ok());
        assert!(json(text.replace("fieldsV1", "fields").as_bytes()).is_err());
        assert!(check_paths(&json!({"metadata": {"k".repeat(MAX_PATH): 1}})).is_err());
        assert!(check_paths(&json!({"k".repeat(MAX_PATH): 1})).is_err());
    }

    #[test]
    fn long_paths_are_refused_in_yaml_too() {
        // Keys of YAML are shorter themselves.
        let nested = |levels: usize| {
            let key = "k".repeat(999);
            let lines = (0..levels).map(|level| format!("{}{key}:\n", " ".repeat(level)));
            let text: String = lines.chain([format!("{}a: 1\n", " ".repeat(levels))]).collect();
            yaml_or_json(text.as_bytes()).map(|parsed| parsed.value)
        };
        assert!(nested(16).is_ok());
        assert!(nested(17).unwrap_err().contains("longer than"));
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for bad in ["", "{", "[1,]", "{} {}", "nul", "1e999", "\"\\ud800\"", &"[".repeat(1000)] {
            assert!(json(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
