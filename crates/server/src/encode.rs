//! Objects as bytes in which the revision is still missing: they are made by whoever writes, and not by the store, which
//! makes one write after the other.

use crate::{object, status::ApiError};
use apply::Managers;
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value};
use std::{
    cell::Cell,
    io::{self, Write},
};
use store::Template;

const METADATA: &str = "metadata";
const MANAGED_FIELDS: &str = "managedFields";
const RESOURCE_VERSION: &str = "resourceVersion";

/// An object that is in the form in which it is stored. Who owns what of it stands in its place, unless it does already:
/// keys are sorted, but for those of the object's type.
pub(crate) fn encode(object: &Value, managers: Option<&Managers>) -> Result<Template, ApiError> {
    let (written, hole) = (Cell::new(0), Cell::new(None));
    let mut text = Counted { text: Vec::with_capacity(1 << 10), written: &written };
    let revision = Hole { written: &written, at: &hole };
    let managers = managers.filter(|managers| !managers.is_empty());
    serde_json::to_writer(&mut text, &Whole { object, managers, revision }).map_err(ApiError::internal)?;
    let at = hole.get().ok_or_else(|| ApiError::internal("an object without metadata cannot be stored"))?;
    Ok(Template::new(text.text, at))
}

/// Text, and for others to see how many bytes of it there are.
struct Counted<'a> {
    text: Vec<u8>,
    written: &'a Cell<usize>,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.text.extend_from_slice(bytes);
        self.written.set(self.text.len());
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A text that is empty, and notes where it begins.
struct Hole<'a> {
    written: &'a Cell<usize>,
    at: &'a Cell<Option<usize>>,
}

impl Serialize for Hole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.at.set(Some(self.written.get() + "\"".len()));
        serializer.serialize_str("")
    }
}

struct Whole<'a> {
    object: &'a Value,
    managers: Option<&'a Managers>,
    revision: Hole<'a>,
}

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in object::type_first(self.object) {
            match value.as_object().filter(|_| key == METADATA) {
                Some(fields) => map.serialize_entry(key, &Metadata { fields, whole: self })?,
                None => map.serialize_entry(key, value)?,
            }
        }
        map.end()
    }
}

struct Metadata<'a> {
    fields: &'a Map<String, Value>,
    whole: &'a Whole<'a>,
}

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let managers = self.whole.managers;
        let mut map = serializer.serialize_map(None)?;
        let mut rest = self.fields.iter().filter(|(key, _)| match key.as_str() {
            MANAGED_FIELDS => managers.is_none(),
            key => key != RESOURCE_VERSION,
        });
        let mut next = rest.next();
        while let Some((key, value)) = next.take_if(|(key, _)| key.as_str() < MANAGED_FIELDS) {
            map.serialize_entry(key, value)?;
            next = rest.next();
        }
        if let Some(managers) = managers {
            map.serialize_entry(MANAGED_FIELDS, managers)?;
        }
        while let Some((key, value)) = next.take_if(|(key, _)| key.as_str() < RESOURCE_VERSION) {
            map.serialize_entry(key, value)?;
            next = rest.next();
        }
        map.serialize_entry(RESOURCE_VERSION, &self.whole.revision)?;
        for (key, value) in next.into_iter().chain(rest) {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use store::Data;

    /// Stores an object with this metadata at revision 12.
    #[track_caller]
    fn check(metadata: &Value, managers: Option<&Managers>, expected: &str) {
        let object = json!({"data": {"kind": "a"}, "kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata});
        let stored = Data::new(12, 1, &encode(&object, managers).unwrap());
        let expected =
            format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","data":{{"kind":"a"}},"metadata":{expected}}}"#);
        assert_eq!(std::str::from_utf8(&stored), Ok(&*expected));
    }

    #[test]
    fn what_is_stored_begins_with_its_type_and_names_its_revision() {
        check(&json!({}), None, r#"{"resourceVersion":"12"}"#);
        check(&json!({"resourceVersion": "7"}), None, r#"{"resourceVersion":"12"}"#);
        check(&json!({"uid": "u"}), None, r#"{"resourceVersion":"12","uid":"u"}"#);
        check(&json!({"name": "\"", "uid": "u"}), None, r#"{"name":"\"","resourceVersion":"12","uid":"u"}"#);
        let own = r#"{"managedFields":[],"resourceVersion":"12"}"#;
        check(&json!({"managedFields": []}), None, own);
        check(&json!({"managedFields": []}), Some(&Managers::default()), own);
    }

    #[test]
    fn an_object_without_metadata_is_an_error() {
        assert!(encode(&json!({"kind": "ConfigMap"}), None).is_err());
        assert!(encode(&json!({"metadata": null}), None).is_err());
    }
}
