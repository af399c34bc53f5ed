//! Partial parsing of a JSON object: only the values at some paths are kept, which takes a fraction of the time of a whole
//! object.

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// Tree of the fields to keep; a leaf keeps the whole value.
#[derive(Debug, Default)]
pub struct Outline(Vec<(Box<str>, Self)>);

impl Outline {
    /// Adds a path to keep.
    pub fn add<'a>(&mut self, mut path: impl Iterator<Item = &'a str>) {
        let Some(name) = path.next() else { return };
        let place = self.0.iter().position(|(n, _)| **n == *name).unwrap_or_else(|| {
            self.0.push((name.into(), Self::default()));
            self.0.len() - 1
        });
        self.0[place].1.add(path);
    }

    /// Parses the values at the paths; null when the text is not JSON.
    pub fn read(&self, json: &[u8]) -> Value {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        self.deserialize(&mut deserializer).unwrap_or_default()
    }
}

impl<'de> DeserializeSeed<'de> for &Outline {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.0.is_empty() { Value::deserialize(deserializer) } else { deserializer.deserialize_any(self) }
    }
}

/// Only objects have nested paths; other values are null.
impl<'de> Visitor<'de> for &Outline {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(found) = map.next_key_seed(Named(self))? {
            match found {
                Some((name, below)) => drop(fields.insert((**name).to_owned(), map.next_value_seed(below)?)),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E>(self, _: &str) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

/// Deserializes a key, if it is in the outline.
struct Named<'a>(&'a Outline);

impl<'de, 'a> DeserializeSeed<'de> for Named<'a> {
    type Value = Option<&'a (Box<str>, Outline)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Named<'a> {
    type Value = Option<&'a (Box<str>, Outline)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.0.iter().find(|(name, _)| **name == *key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(paths: &[&str], object: &Value, expected: &Value) {
        let mut outline = Outline::default();
        paths.iter().for_each(|path| outline.add(path.split('.')));
        assert_eq!(outline.read(object.to_string().as_bytes()), *expected);
    }

    #[test]
    fn values_at_the_paths_are_kept() {
        let object = json!({"a": {"b": {"c": [1, {"d": 2}]}, "e": "x", "f": null}, "g": [1.5, true], "h\n": -1});
        check(&["a.b", "h\n"], &object, &json!({"a": {"b": {"c": [1, {"d": 2}]}}, "h\n": -1}));
        check(&["a.e", "a.f", "a.none", "none"], &object, &json!({"a": {"e": "x", "f": null}}));
        // A path through a value that is not an object is null.
        check(
            &["a.e.x", "g.x", "h\n.x", "a.f.x"],
            &object,
            &json!({"a": {"e": null, "f": null}, "g": null, "h\n": null}),
        );
        check(&["a"], &json!([1]), &json!(null));
    }
}
