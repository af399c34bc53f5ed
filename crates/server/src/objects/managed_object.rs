//! Decoded objects with their field managers seed, as field sets. As JSON, `managedFields` is the largest part of many
//! objects, and only clients need it in that form.

use crate::{
    objects::{conversion, encode, managed_fields, object},
    proxy::webhook::WebhookClient,
};
use apply::ManagedFields;
use errors::ApiError;
use kinds::Kind;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value, value::RawValue};
use std::{fmt, sync::Arc};
use store::{Object, Template};

const METADATA: &str = "metadata";
const MANAGED_FIELDS: &str = "managedFields";

/// An object and its field managers (`fieldmanager.Managed`).
#[derive(Debug, Clone, Default)]
pub(crate) struct ManagedObject {
    /// In its kind's version, without `managedFields`.
    pub(crate) object: Value,
    /// Field managers.
    pub(crate) managers: ManagedFields,
}

impl ManagedObject {
    /// Decodes a stored object in this kind's version.
    pub(crate) async fn decode(webhooks: &WebhookClient, kind: &dyn Kind, stored: &Object) -> Result<Self, ApiError> {
        if kind.conversion().is_some() {
            return Ok(Self::from_whole(conversion::decode(webhooks, kind, stored).await?));
        }
        let mut managers = ManagedFields::default();
        let mut json = serde_json::Deserializer::from_slice(&stored.data);
        let seed = SplitManagers { managers: &mut managers, in_metadata: false };
        let Ok(mut object) = seed.deserialize(&mut json) else {
            return Ok(Self::from_whole(object::decode(kind, stored)));
        };
        if let Some(fields) = object.as_object_mut().filter(|_| !kind.is_stored_form(stored.revision)) {
            kind.from_storage(fields);
        }
        Ok(Self { object, managers })
    }

    /// Splits the field managers off an object.
    fn from_whole(mut whole: Value) -> Self {
        let managers = managed_fields::remove_managed_fields(&mut whole)
            .map_or_else(ManagedFields::default, |fields| managed_fields::parse_stored(&fields));
        Self { object: whole, managers }
    }

    /// Converts to the storage version.
    pub(crate) async fn into_storage_form(
        self,
        webhooks: &WebhookClient,
        kind: &dyn Kind,
    ) -> Result<Arc<Self>, ApiError> {
        if kind.conversion().is_some() {
            return conversion::to_storage_version(webhooks, kind, self.whole())
                .await
                .map(|whole| Arc::new(Self::from_whole(whole)));
        }
        let mut stored = self;
        if let Some(fields) = stored.object.as_object_mut() {
            kind.to_storage(fields);
        }
        Ok(Arc::new(stored))
    }

    /// Encodes an object that is in the storage version.
    pub(crate) fn encode(&self) -> Result<Template, ApiError> {
        encode::encode(&self.object, Some(&self.managers))
    }

    /// Returns the object with `managedFields`, as clients see it.
    pub(crate) fn whole(&self) -> Value {
        let mut whole = self.object.clone();
        managed_fields::set_managed_fields(&mut whole, &self.managers);
        whole
    }
}

/// Deserializes an object, or its metadata, and its field managers seed.
struct SplitManagers<'a> {
    managers: &'a mut ManagedFields,
    in_metadata: bool,
}

impl<'de> DeserializeSeed<'de> for SplitManagers<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SplitManagers<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = match (self.in_metadata, key.as_str()) {
                (true, MANAGED_FIELDS) => {
                    *self.managers = managed_fields::parse_stored_text(map.next_value::<&RawValue>()?.get());
                    continue;
                }
                (false, METADATA) => {
                    map.next_value_seed(SplitManagers { managers: &mut *self.managers, in_metadata: true })?
                }
                _ => map.next_value()?,
            };
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use store::Data;

    #[track_caller]
    fn check(metadata: &Value, fields: &Value) {
        let mut whole =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"a": [1, {"b": null}]}});
        if !fields.is_null() {
            whole["metadata"]["managedFields"] = json!([{"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
                "manager": "m", "operation": "Apply", "time": "2026-01-01T00:00:00Z"}]);
        }
        let live = ManagedObject::from_whole(whole.clone());
        assert!(live.object["metadata"].get("managedFields").is_none());
        assert_eq!(live.whole(), whole);
        whole["metadata"]["resourceVersion"] = json!("7");
        let bytes = Data::new(7, 1, &live.encode().unwrap());
        assert_eq!(&bytes[..], wire::json_order::encode_document(&whole));
        let mut managers = ManagedFields::default();
        let seed = SplitManagers { managers: &mut managers, in_metadata: false };
        let object = seed.deserialize(&mut serde_json::Deserializer::from_slice(&bytes)).unwrap();
        let again = ManagedObject::from_whole(whole);
        assert_eq!((object, managers, &again.managers), (again.object.clone(), again.managers.clone(), &live.managers));
    }

    #[test]
    fn managers_are_split_off_and_encoded_unchanged() {
        let fields = json!({"f:spec": {"f:a": {"v:1": {}}, "k:{\"n\":9}": {".": {}, "f:n": {}}, "k:{\"n\":80}": {}}});
        check(&json!({"name": "p", "labels": {"managedFields": "x"}, "resourceVersion": "3", "uid": "u"}), &fields);
        check(&json!({"annotations": {}}), &fields);
        check(&json!({"name": "p"}), &fields);
        check(&json!({"name": "p"}), &Value::Null);
        check(&json!({}), &Value::Null);
    }

    #[test]
    fn invalid_managed_fields_are_dropped() {
        let live = ManagedObject::from_whole(json!({"metadata": {"name": "p", "managedFields": [{"manager": "m"}]}}));
        assert_eq!(live.whole(), json!({"metadata": {"name": "p"}}));
    }
}
