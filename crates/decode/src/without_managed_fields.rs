//! Deserialization of objects for the components' watch caches.
//!
//! `metadata.managedFields` is dropped: no component reads it, and for large objects it is most of the watch traffic and
//! would be most of the cache's memory.
//!
//! Conditions may lack `lastTransitionTime`: the API accepts this for some kinds, as upstream does, but the types of
//! `k8s-openapi` do not. One such object would break the watch of all others.

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use std::{fmt, marker::PhantomData};

const MANAGED_FIELDS: &str = "managedFields";
const LAST_TRANSITION_TIME: &str = "lastTransitionTime";
/// Go's zero time.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// Deserializes an object of any type, without its `managedFields`. Its conditions may lack `lastTransitionTime`.
///
/// # Errors
///
/// If the object is not of this type.
pub fn deserialize_without_managed_fields<'de, K: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<K, D::Error> {
    K::deserialize(FilteringDeserializer { inner: deserializer, position: FieldPosition::Object })
}

/// Position in an object where deserialization is customized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldPosition {
    Object,
    Metadata,
    Status,
    Conditions,
    Condition,
}

impl FieldPosition {
    /// Returns the position of a child field.
    fn child(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Object, "metadata") => Some(Self::Metadata),
            (Self::Object, "status") => Some(Self::Status),
            (Self::Status, "conditions") => Some(Self::Conditions),
            _ => None,
        }
    }
}

/// Wraps a deserializer, visitor or seed for the value at a position.
struct FilteringDeserializer<T> {
    inner: T,
    position: FieldPosition,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for FilteringDeserializer<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(FilteringDeserializer { inner: visitor, position: self.position })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(FilteringDeserializer { inner: visitor, position: self.position })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Only the types that occur at a [`FieldPosition`] are forwarded: maps, lists and null; others are an error.
impl<'de, V: Visitor<'de>> Visitor<'de> for FilteringDeserializer<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(FilteringDeserializer { inner: deserializer, position: self.position })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        match self.position {
            FieldPosition::Conditions => self.inner.visit_seq(ConditionElements(list)),
            _ => self.inner.visit_seq(list),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(FilteredFields {
            map,
            position: self.position,
            next: NextValue::Unchanged,
            has_transition_time: false,
        })
    }
}

struct ConditionElements<A>(A);

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for ConditionElements<A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        self.0.next_element_seed(FilteringDeserializer { inner: seed, position: FieldPosition::Condition })
    }
}

/// How to deserialize the value that follows the last key.
#[derive(Debug, Clone, Copy)]
enum NextValue {
    Unchanged,
    Nested(FieldPosition),
    Time,
    /// The zero time for a missing field.
    MissingTime,
}

struct FilteredFields<A> {
    map: A,
    position: FieldPosition,
    next: NextValue,
    /// Whether a condition has had its `lastTransitionTime`.
    has_transition_time: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for FilteredFields<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<String>()? {
            if self.position == FieldPosition::Metadata && key == MANAGED_FIELDS {
                self.map.next_value::<IgnoredAny>()?;
                continue;
            }
            let is_transition_time = self.position == FieldPosition::Condition && key == LAST_TRANSITION_TIME;
            self.has_transition_time |= is_transition_time;
            self.next = if is_transition_time {
                NextValue::Time
            } else {
                self.position.child(&key).map_or(NextValue::Unchanged, NextValue::Nested)
            };
            return seed.deserialize(key.into_deserializer()).map(Some);
        }
        if self.position == FieldPosition::Condition && !std::mem::replace(&mut self.has_transition_time, true) {
            self.next = NextValue::MissingTime;
            return seed.deserialize(LAST_TRANSITION_TIME.into_deserializer()).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        match self.next {
            NextValue::Unchanged => self.map.next_value_seed(seed),
            NextValue::Nested(position) => self.map.next_value_seed(FilteringDeserializer { inner: seed, position }),
            NextValue::Time => seed.deserialize(OptionalTime(self.map.next_value()?, PhantomData)),
            NextValue::MissingTime => seed.deserialize(OptionalTime(None, PhantomData)),
        }
    }
}

/// An optional time, which deserializes as Go's zero time where the type requires one.
struct OptionalTime<E>(Option<String>, PhantomData<E>);

impl<'de, E: Error> Deserializer<'de> for OptionalTime<E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_string(self.0.unwrap_or_else(|| ZERO_TIME.to_owned()))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        if self.0.is_some() { visitor.visit_some(self) } else { visitor.visit_none() }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, E> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for FilteringDeserializer<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(FilteringDeserializer { inner: deserializer, position: self.position })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Decode;
    use k8s_openapi::api::core::v1::{Pod, Service};
    use serde_json::{Value, json};

    fn read<K: Decode>(object: &Value) -> serde_json::Result<K> {
        K::from_json_without_managed_fields(&object.to_string())
    }

    #[test]
    fn managed_fields_are_dropped_and_nothing_else() {
        let mut object = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": {"managedFields": "x"}, "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {}}]}, "status": {"phase": "Running"}});
        let bare: Pod = serde_json::from_value(object.clone()).unwrap();
        object["metadata"]["managedFields"] = json!([{"manager": "m", "fieldsV1": {"f:spec": {}}}]);
        let read: Pod = read(&object).unwrap();
        assert_eq!(read, bare);
        assert_ne!(read, serde_json::from_value::<Pod>(object).unwrap());
    }

    #[test]
    fn condition_without_transition_time_has_zero_time() {
        let service = |transition_time: Value| {
            let mut condition = json!({"type": "Ready", "status": "True", "reason": "R", "message": ""});
            if transition_time != json!("absent") {
                condition["lastTransitionTime"] = transition_time;
            }
            let object = json!({"metadata": {"name": "s"}, "status": {"conditions": [condition.clone(), condition]}});
            read(&object).map(|service: Service| {
                let conditions = service.status.unwrap().conditions.unwrap();
                conditions.iter().map(|c| c.last_transition_time.0.to_string()).collect()
            })
        };
        let check = |transition_time: Value, expected: &str| {
            let read: Vec<String> = service(transition_time).unwrap();
            assert_eq!(read, [expected, expected]);
        };
        check(json!("2026-11-23T10:00:00Z"), "2026-11-23T10:00:00Z");
        check(json!(null), ZERO_TIME);
        check(json!("absent"), ZERO_TIME);
        assert!(service(json!("soon")).is_err());
        for conditions in [json!(null), json!([]), json!([{"type": "Ready", "lastTransitionTime": null}, {}])] {
            let object = json!({"status": {"conditions": conditions}});
            assert_eq!(read::<Pod>(&object).unwrap(), serde_json::from_value::<Pod>(object).unwrap());
        }
    }

    #[test]
    fn object_without_metadata_deserializes_as_before() {
        for object in [json!({}), json!({"metadata": null}), json!({"metadata": {}}), json!({"spec": null})] {
            assert_eq!(read::<Pod>(&object).unwrap(), serde_json::from_value::<Pod>(object).unwrap());
        }
        for wrong in [json!(1), json!([]), json!({"metadata": 1}), json!({"metadata": {"name": 1}})] {
            let message = |e: serde_json::Error| e.to_string().split(" at line").next().unwrap_or("").to_owned();
            assert_eq!(
                read::<Pod>(&wrong).map_err(message),
                serde_json::from_str::<Pod>(&wrong.to_string()).map_err(message)
            );
        }
    }
}
