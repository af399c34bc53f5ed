//! Stored objects as writes take them: who owns what stands beside the object, as sets of fields, and not in it. As JSON it
//! is most of many objects, and nobody looks at it as that but those who are outside.

use crate::{conversion, encode, kinds::Kind, managed_fields, object, status::ApiError, webhook::Webhooks};
use apply::Managers;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value, value::RawValue};
use std::{fmt, sync::Arc};
use store::{Object, Template};

const METADATA: &str = "metadata";
const MANAGED_FIELDS: &str = "managedFields";

/// An object that is stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct Live {
    /// In the form of its kind, without `managedFields`.
    pub(crate) object: Value,
    /// Who owns what of it.
    pub(crate) managers: Managers,
}

impl Live {
    /// A stored object in this kind's form.
    pub(crate) async fn read(webhooks: &Webhooks, kind: &dyn Kind, stored: &Object) -> Result<Self, ApiError> {
        if kind.conversion().is_some() {
            return Ok(Self::of(conversion::decode(webhooks, kind, stored).await?));
        }
        let mut managers = Managers::default();
        let mut json = serde_json::Deserializer::from_slice(&stored.data);
        let apart = Apart { managers: &mut managers, in_metadata: false };
        let Ok(mut object) = apart.deserialize(&mut json) else { return Ok(Self::of(object::decode(kind, stored))) };
        if let Some(fields) = object.as_object_mut().filter(|_| !kind.is_stored_form(stored.revision)) {
            kind.from_storage(fields);
        }
        Ok(Self { object, managers })
    }

    /// A whole object, taken apart.
    fn of(mut whole: Value) -> Self {
        let managers =
            managed_fields::take(&mut whole).map_or_else(Managers::default, |fields| managed_fields::known(&fields));
        Self { object: whole, managers }
    }

    /// In the form in which it is stored.
    pub(crate) async fn stored(self, webhooks: &Webhooks, kind: &dyn Kind) -> Result<Arc<Self>, ApiError> {
        if kind.conversion().is_some() {
            return conversion::to_stored(webhooks, kind, self.whole()).await.map(|whole| Arc::new(Self::of(whole)));
        }
        let mut stored = self;
        if let Some(fields) = stored.object.as_object_mut() {
            kind.to_storage(fields);
        }
        Ok(Arc::new(stored))
    }

    /// What is in the form in which it is stored, for the store.
    pub(crate) fn encode(&self) -> Result<Template, ApiError> {
        encode::encode(&self.object, Some(&self.managers))
    }

    /// The object as those see it who are outside.
    pub(crate) fn whole(&self) -> Value {
        let mut whole = self.object.clone();
        managed_fields::note(&mut whole, &self.managers);
        whole
    }
}

/// Reads an object, or its metadata, but for who owns what.
struct Apart<'a> {
    managers: &'a mut Managers,
    in_metadata: bool,
}

impl<'de> DeserializeSeed<'de> for Apart<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Apart<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = match (self.in_metadata, key.as_str()) {
                (true, MANAGED_FIELDS) => {
                    *self.managers = managed_fields::known_text(map.next_value::<&RawValue>()?.get());
                    continue;
                }
                (false, METADATA) => map.next_value_seed(Apart { managers: &mut *self.managers, in_metadata: true })?,
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
    fn check(metadata: &Value, owned: &Value) {
        let mut whole =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"a": [1, {"b": null}]}});
        if !owned.is_null() {
            whole["metadata"]["managedFields"] = json!([{"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": owned,
                "manager": "m", "operation": "Apply", "time": "2026-01-01T00:00:00Z"}]);
        }
        let live = Live::of(whole.clone());
        assert!(live.object["metadata"].get("managedFields").is_none());
        assert_eq!(live.whole(), whole);
        whole["metadata"]["resourceVersion"] = json!("7");
        let bytes = Data::new(7, 1, &live.encode().unwrap());
        assert_eq!(&bytes[..], crate::json_order::document(&whole));
        let mut managers = Managers::default();
        let apart = Apart { managers: &mut managers, in_metadata: false };
        let object = apart.deserialize(&mut serde_json::Deserializer::from_slice(&bytes)).unwrap();
        let again = Live::of(whole);
        assert_eq!((object, managers, &again.managers), (again.object.clone(), again.managers.clone(), &live.managers));
    }

    #[test]
    fn an_object_is_taken_apart_and_written_as_it_was() {
        let owned = json!({"f:spec": {"f:a": {"v:1": {}}, "k:{\"n\":9}": {".": {}, "f:n": {}}, "k:{\"n\":80}": {}}});
        check(&json!({"name": "p", "labels": {"managedFields": "x"}, "resourceVersion": "3", "uid": "u"}), &owned);
        check(&json!({"annotations": {}}), &owned);
        check(&json!({"name": "p"}), &owned);
        check(&json!({"name": "p"}), &Value::Null);
        check(&json!({}), &Value::Null);
    }

    #[test]
    fn what_nobody_can_read_of_who_owns_what_is_forgotten() {
        let live = Live::of(json!({"metadata": {"name": "p", "managedFields": [{"manager": "m"}]}}));
        assert_eq!(live.whole(), json!({"metadata": {"name": "p"}}));
    }
}
