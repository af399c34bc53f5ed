//! Encoding of objects to templates in which the revision is missing. Writers encode concurrently; the store, whose
//! writes are sequential, only fills in the revision.

use apply::{ManagedFields, StructOrderManagedFields};
use errors::ApiError;
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value};
use std::{
    cell::Cell,
    io::{self, Write},
};
use store::Template;
use wire::json_order::{self, InOrder, Type};

const METADATA: &str = "metadata";
const MANAGED_FIELDS: &str = "managedFields";
const RESOURCE_VERSION: &str = "resourceVersion";

/// Encodes an object of the storage version as it is stored and sent: in upstream's field order, with a final newline.
/// `managers` replaces `managedFields`, unless it is `None` or empty.
pub(crate) fn encode(object: &Value, managers: Option<&ManagedFields>) -> Result<Template, ApiError> {
    let (written, offset) = (Cell::new(0), Cell::new(None));
    let mut text = CountingWriter { text: Vec::with_capacity(1 << 10), written: &written };
    let revision = RevisionPlaceholder { written: &written, at: &offset };
    let managers = managers.filter(|managers| !managers.is_empty());
    serde_json::to_writer(&mut text, &ObjectWithManagers { object, managers, revision }).map_err(ApiError::internal)?;
    text.text.push(b'\n');
    let at = offset.get().ok_or_else(|| ApiError::internal("an object without metadata cannot be stored"))?;
    Ok(Template::new(text.text, at))
}

/// A buffer that publishes its length.
struct CountingWriter<'a> {
    text: Vec<u8>,
    written: &'a Cell<usize>,
}

impl Write for CountingWriter<'_> {
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

/// Serializes an empty string, and records the offset of its content.
struct RevisionPlaceholder<'a> {
    written: &'a Cell<usize>,
    at: &'a Cell<Option<usize>>,
}

impl Serialize for RevisionPlaceholder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.at.set(Some(self.written.get() + "\"".len()));
        serializer.serialize_str("")
    }
}

struct ObjectWithManagers<'a> {
    object: &'a Value,
    managers: Option<&'a ManagedFields>,
    revision: RevisionPlaceholder<'a>,
}

impl Serialize for ObjectWithManagers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let fields = self.object.as_object().into_iter().flatten();
        let fields = fields.map(|(key, value)| (key.as_str(), value));
        for (key, value_type, value) in json_order::sorted(Type::of(self.object), fields) {
            match value.as_object().filter(|_| key == METADATA) {
                Some(fields) => map.serialize_entry(key, &Metadata { fields, value_type, whole: self })?,
                None => map.serialize_entry(key, &InOrder { value, value_type })?,
            }
        }
        map.end()
    }
}

struct Metadata<'a> {
    fields: &'a Map<String, Value>,
    value_type: Type,
    whole: &'a ObjectWithManagers<'a>,
}

/// A field of the metadata.
enum Field<'a> {
    Value(&'a Value),
    Managers(&'a ManagedFields),
    Revision,
}

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let managers = self.whole.managers;
        let fields = self.fields.iter().filter(|(key, _)| match key.as_str() {
            MANAGED_FIELDS => managers.is_none(),
            key => key != RESOURCE_VERSION,
        });
        let fields = fields.map(|(key, value)| (key.as_str(), Field::Value(value)));
        let managers = managers.map(|managers| (MANAGED_FIELDS, Field::Managers(managers)));
        let all = fields.chain(managers).chain([(RESOURCE_VERSION, Field::Revision)]);
        let mut map = serializer.serialize_map(None)?;
        for (key, value_type, field) in json_order::sorted(self.value_type, all) {
            match field {
                Field::Value(value) => map.serialize_entry(key, &InOrder { value, value_type })?,
                Field::Managers(managers) if self.value_type == Type::Untyped => map.serialize_entry(key, managers)?,
                Field::Managers(managers) => map.serialize_entry(key, &StructOrderManagedFields(managers))?,
                Field::Revision => map.serialize_entry(key, &self.whole.revision)?,
            }
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
    fn check(metadata: &Value, managers: Option<&ManagedFields>, expected: &str) {
        let object = json!({"data": {"kind": "a"}, "kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata});
        let stored = Data::new(12, 1, &encode(&object, managers).unwrap());
        let head = r#"{"kind":"ConfigMap","apiVersion":"v1""#;
        let expected = format!("{head},\"metadata\":{expected},\"data\":{{\"kind\":\"a\"}}}}\n");
        assert_eq!(std::str::from_utf8(&stored), Ok(&*expected));
    }

    #[test]
    fn encoded_object_is_ordered_and_has_revision() {
        check(&json!({}), None, r#"{"resourceVersion":"12"}"#);
        check(&json!({"resourceVersion": "7"}), None, r#"{"resourceVersion":"12"}"#);
        check(&json!({"uid": "u"}), None, r#"{"uid":"u","resourceVersion":"12"}"#);
        check(&json!({"name": "\"", "uid": "u"}), None, r#"{"name":"\"","uid":"u","resourceVersion":"12"}"#);
        let metadata = r#"{"resourceVersion":"12","managedFields":[]}"#;
        check(&json!({"managedFields": []}), None, metadata);
        check(&json!({"managedFields": []}), Some(&ManagedFields::default()), metadata);
    }

    #[test]
    fn encoded_custom_object_is_sorted() {
        let object = json!({"spec": {}, "kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"uid": "u", "name": "n"}});
        let stored = Data::new(12, 1, &encode(&object, None).unwrap());
        let expected = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"n","resourceVersion":"12","uid":"u"},"spec":{}}"#;
        assert_eq!(std::str::from_utf8(&stored), Ok(&*format!("{expected}\n")));
    }

    #[test]
    fn object_without_metadata_is_an_error() {
        assert!(encode(&json!({"kind": "ConfigMap"}), None).is_err());
        assert!(encode(&json!({"metadata": null}), None).is_err());
    }
}
