//! Serialization of sets as `fieldsV1`.

use super::{Node, Set};
use crate::path_element::{PathElement, PathElementError};
use serde::{
    Deserialize,
    de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor},
    ser::{Serialize, SerializeMap, Serializer},
};
use serde_json::{Map, Value};
use std::fmt;

/// Key that marks its parent as a member of the set.
const MEMBER: &str = ".";

/// Serializes a set with its keys sorted as strings, as all JSON maps here. The order of upstream differs but is equivalent.
impl Serialize for Set {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        NodeSerializer { set: self, member: false }.serialize(serializer)
    }
}

struct NodeSerializer<'a> {
    set: &'a Set,
    /// Whether the parent is a member of the set.
    member: bool,
}

impl Serialize for NodeSerializer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        // A member without nested fields is `{}`.
        if self.member && !self.set.is_empty() {
            map.serialize_entry(MEMBER, &Map::new())?;
        }
        let mut nodes: Vec<(String, &Node)> = self.set.nodes().iter().map(|n| (n.element.to_text(), n)).collect();
        // Most elements are sorted already, but numbers are not.
        nodes.sort_by(|l, r| l.0.cmp(&r.0));
        for (text, node) in nodes {
            map.serialize_entry(&text, &Self { set: &node.nested, member: node.member })?;
        }
        map.end()
    }
}

/// Deserializes a serialized set. Only [`Set::from_json`] has upstream's error messages.
impl<'de> Deserialize<'de> for Set {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        NodeSeed.deserialize(deserializer).map(|(set, _)| set)
    }
}

/// Deserializes the nested fields of a field, and whether it is a member of the set.
struct NodeSeed;

impl<'de> DeserializeSeed<'de> for NodeSeed {
    type Value = (Set, bool);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for NodeSeed {
    type Value = (Set, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut nodes, mut member) = (Vec::new(), false);
        while let Some(key) = map.next_key()? {
            match key {
                Key::Element(element) => {
                    let (nested, member) = map.next_value_seed(Self)?;
                    nodes.push(Node { element, member, nested });
                }
                Key::Member => {
                    member = true;
                    map.next_value::<IgnoredAny>()?;
                }
                Key::Unknown => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let set = Set::of_unsorted(nodes);
        let member = member || set.is_empty();
        Ok((set, member))
    }
}

/// A key of `fieldsV1`.
enum Key {
    Element(PathElement),
    /// The `.` of a field that is a member of the set.
    Member,
    /// An element of an unknown type, which is skipped.
    Unknown,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an element of a path")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Key, E> {
        if text == MEMBER {
            return Ok(Key::Member);
        }
        match PathElement::from_text(text) {
            Ok(element) => Ok(Key::Element(element)),
            Err(PathElementError::UnknownType) => Ok(Key::Unknown),
            Err(error) => Err(E::custom(error)),
        }
    }
}

impl Set {
    /// Serializes the set to JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Parses the output of [`Self::to_json`].
    ///
    /// # Errors
    /// When the value is not a map, or a key is not a valid [`PathElement`]; elements of unknown types are skipped.
    pub fn from_json(json: &Value) -> Result<Self, PathElementError> {
        parse_node(json).map(|(set, _)| set)
    }
}

/// Parses the nested fields of a field, and whether it is a member of the set.
fn parse_node(json: &Value) -> Result<(Set, bool), PathElementError> {
    let Value::Object(map) = json else { return Err(PathElementError::Content("fields must be a map".to_owned())) };
    let mut nodes = Vec::new();
    for (key, value) in map.iter().filter(|(k, _)| *k != MEMBER) {
        match PathElement::from_text(key) {
            Ok(element) => {
                let (nested, member) = parse_node(value)?;
                nodes.push(Node { element, member, nested });
            }
            Err(PathElementError::UnknownType) => {}
            Err(error) => return Err(error),
        }
    }
    let set = Set::of_unsorted(nodes);
    let member = set.is_empty() || map.contains_key(MEMBER);
    Ok((set, member))
}
