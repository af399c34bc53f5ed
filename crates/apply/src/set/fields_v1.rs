//! `fieldsV1`: a set as `managedFields` holds it.

use super::Set;
use crate::element::{Element, ElementError};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// The set as JSON in upstream's order: `.` first, then the elements.
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
            map.serialize_entry(".", &Value::Object(serde_json::Map::new()))?;
        }
        for node in self.set.nodes() {
            map.serialize_entry(&node.element.to_text(), &Self { set: &node.below, member: node.member })?;
        }
        map.end()
    }
}

impl Set {
    /// The set as JSON. In this form keys are sorted as text, which means the same.
    #[must_use]
    pub fn to_json(&self) -> Value {
        below(self, false)
    }

    /// Reads what [`Self::to_json`] makes.
    ///
    /// # Errors
    /// When it is no map, or a key of it is not of the form of an [`Element`]; those of unknown types are left out.
    pub fn from_json(json: &Value) -> Result<Self, ElementError> {
        read(json).map(|(set, _)| set)
    }
}

fn below(set: &Set, member: bool) -> Value {
    let mut map: serde_json::Map<String, Value> =
        set.nodes().iter().map(|n| (n.element.to_text(), below(&n.below, n.member))).collect();
    if member && !map.is_empty() {
        map.insert(".".to_owned(), Value::Object(serde_json::Map::new()));
    }
    Value::Object(map)
}

/// The fields below a field, and whether it is in the set itself.
fn read(json: &Value) -> Result<(Set, bool), ElementError> {
    let Value::Object(map) = json else { return Err(ElementError::Content("fields must be a map".to_owned())) };
    let mut set = Set::default();
    for (key, value) in map.iter().filter(|(k, _)| *k != ".") {
        match Element::from_text(key) {
            Ok(element) => {
                let (below, member) = read(value)?;
                set.put(element, member, below);
            }
            Err(ElementError::UnknownType) => {}
            Err(error) => return Err(error),
        }
    }
    let member = set.is_empty() || map.contains_key(".");
    Ok((set, member))
}
