//! `fieldsV1`: a set as `managedFields` holds it.

use super::{Node, Set};
use crate::element::{Element, ElementError};
use serde::{
    Deserialize,
    de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor},
    ser::{Serialize, SerializeMap, Serializer},
};
use serde_json::{Map, Value};
use std::fmt;

/// The key that says that what it stands below of is in the set itself.
const MEMBER: &str = ".";

/// The set as JSON, with its keys sorted as text, as JSON maps are everywhere here. That means the same as upstream's order.
impl Serialize for Set {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Below { set: self, member: false }.serialize(serializer)
    }
}

struct Below<'a> {
    set: &'a Set,
    /// Whether what it is below of is in the set.
    member: bool,
}

impl Serialize for Below<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        // A member with nothing below is `{}`: nothing else can be.
        if self.member && !self.set.is_empty() {
            map.serialize_entry(MEMBER, &Map::new())?;
        }
        let mut nodes: Vec<(String, &Node)> = self.set.nodes().iter().map(|n| (n.element.to_text(), n)).collect();
        // Most are, but numbers are not.
        nodes.sort_by(|l, r| l.0.cmp(&r.0));
        for (text, node) in nodes {
            map.serialize_entry(&text, &Self { set: &node.below, member: node.member })?;
        }
        map.end()
    }
}

/// Reads what is written. What is no set of fields is an error in words of no importance: [`Set::from_json`] has
/// upstream's.
impl<'de> Deserialize<'de> for Set {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ReadBelow.deserialize(deserializer).map(|(set, _)| set)
    }
}

/// Reads the fields below a field, and whether it is in the set itself.
struct ReadBelow;

impl<'de> DeserializeSeed<'de> for ReadBelow {
    type Value = (Set, bool);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ReadBelow {
    type Value = (Set, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut nodes, mut member) = (Vec::new(), false);
        while let Some(key) = map.next_key()? {
            match key {
                Key::Element(element) => {
                    let (below, member) = map.next_value_seed(Self)?;
                    nodes.push(Node { element, member, below });
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
    Element(Element),
    /// The `.` of a field that is in the set itself.
    Member,
    /// An element of a type that is not known, which is left out.
    Unknown,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(ReadKey)
    }
}

struct ReadKey;

impl Visitor<'_> for ReadKey {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an element of a path")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Key, E> {
        if text == MEMBER {
            return Ok(Key::Member);
        }
        match Element::from_text(text) {
            Ok(element) => Ok(Key::Element(element)),
            Err(ElementError::UnknownType) => Ok(Key::Unknown),
            Err(error) => Err(E::custom(error)),
        }
    }
}

impl Set {
    /// The set as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Reads what [`Self::to_json`] makes.
    ///
    /// # Errors
    /// When it is no map, or a key of it is not of the form of an [`Element`]; those of unknown types are left out.
    pub fn from_json(json: &Value) -> Result<Self, ElementError> {
        read(json).map(|(set, _)| set)
    }
}

/// The fields below a field, and whether it is in the set itself.
fn read(json: &Value) -> Result<(Set, bool), ElementError> {
    let Value::Object(map) = json else { return Err(ElementError::Content("fields must be a map".to_owned())) };
    let mut nodes = Vec::new();
    for (key, value) in map.iter().filter(|(k, _)| *k != MEMBER) {
        match Element::from_text(key) {
            Ok(element) => {
                let (below, member) = read(value)?;
                nodes.push(Node { element, member, below });
            }
            Err(ElementError::UnknownType) => {}
            Err(error) => return Err(error),
        }
    }
    let set = Set::of_unsorted(nodes);
    let member = set.is_empty() || map.contains_key(MEMBER);
    Ok((set, member))
}
