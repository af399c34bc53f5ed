//! Objects as the components read them.
//!
//! Without `metadata.managedFields`, at which none of them looks: of a large object they are most of what a watch tells,
//! and as values they would be most of what is remembered of it.
//!
//! With conditions that do not say when they began: the API takes such for some kinds, as upstream's does, and the types
//! of `k8s-openapi` do not. One such object would stop the watch of all others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use std::fmt;
use std::marker::PhantomData;

const MANAGED_FIELDS: &str = "managedFields";
const LAST_TRANSITION_TIME: &str = "lastTransitionTime";
/// The time that is none, in Go.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// An object that is read past its `managedFields`, and whose conditions need not say when they began.
#[derive(Debug, Clone, PartialEq)]
pub struct Lean<K>(pub K);

impl<'de, K: Deserialize<'de>> Deserialize<'de> for Lean<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        K::deserialize(Past { inner: deserializer, place: Place::Object }).map(Self)
    }
}

impl<K: k8s_openapi::Resource> k8s_openapi::Resource for Lean<K> {
    const API_VERSION: &'static str = K::API_VERSION;
    const GROUP: &'static str = K::GROUP;
    const KIND: &'static str = K::KIND;
    const VERSION: &'static str = K::VERSION;
    const URL_PATH_SEGMENT: &'static str = K::URL_PATH_SEGMENT;
    type Scope = K::Scope;
}

impl<K: k8s_openapi::Metadata<Ty = ObjectMeta>> k8s_openapi::Metadata for Lean<K> {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        self.0.metadata()
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        self.0.metadata_mut()
    }
}

/// Where in an object something stands, as far as it is read in another way there than its type would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Object,
    Metadata,
    Status,
    Conditions,
    Condition,
}

impl Place {
    /// What stands below a key.
    fn below(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Object, "metadata") => Some(Self::Metadata),
            (Self::Object, "status") => Some(Self::Status),
            (Self::Status, "conditions") => Some(Self::Conditions),
            _ => None,
        }
    }
}

/// Reads what stands at a place, whatever it is that is read.
struct Past<T> {
    inner: T,
    place: Place,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Past<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(Past { inner: visitor, place: self.place })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(Past { inner: visitor, place: self.place })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Objects are maps, and their metadata is one that may be absent; conditions are a list; anything else is an error.
impl<'de, V: Visitor<'de>> Visitor<'de> for Past<V> {
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
        self.inner.visit_some(Past { inner: deserializer, place: self.place })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        match self.place {
            Place::Conditions => self.inner.visit_seq(Elements(list)),
            _ => self.inner.visit_seq(list),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Fields { map, place: self.place, next: Next::Plain, is_timed: false })
    }
}

struct Elements<A>(A);

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Elements<A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        self.0.next_element_seed(Past { inner: seed, place: Place::Condition })
    }
}

/// How the value is read whose key was read last.
#[derive(Debug, Clone, Copy)]
enum Next {
    Plain,
    Below(Place),
    Time,
    /// A time that is not there.
    NoTime,
}

struct Fields<A> {
    map: A,
    place: Place,
    next: Next,
    /// Whether a condition has said when it began.
    is_timed: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<String>()? {
            if self.place == Place::Metadata && key == MANAGED_FIELDS {
                self.map.next_value::<IgnoredAny>()?;
                continue;
            }
            let is_time = self.place == Place::Condition && key == LAST_TRANSITION_TIME;
            self.is_timed |= is_time;
            self.next = if is_time { Next::Time } else { self.place.below(&key).map_or(Next::Plain, Next::Below) };
            return seed.deserialize(key.into_deserializer()).map(Some);
        }
        if self.place == Place::Condition && !std::mem::replace(&mut self.is_timed, true) {
            self.next = Next::NoTime;
            return seed.deserialize(LAST_TRANSITION_TIME.into_deserializer()).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        match self.next {
            Next::Plain => self.map.next_value_seed(seed),
            Next::Below(place) => self.map.next_value_seed(Past { inner: seed, place }),
            Next::Time => seed.deserialize(Moment(self.map.next_value()?, PhantomData)),
            Next::NoTime => seed.deserialize(Moment(None, PhantomData)),
        }
    }
}

/// A time, or none: where the type wants one, the first of Go's.
struct Moment<E>(Option<String>, PhantomData<E>);

impl<'de, E: Error> Deserializer<'de> for Moment<E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_string(self.0.unwrap_or_else(|| NEVER.to_owned()))
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

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Past<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Past { inner: deserializer, place: self.place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Pod, Service};
    use serde_json::{Value, json};

    #[test]
    fn who_owns_what_is_left_out_and_nothing_else() {
        let mut object = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": {"managedFields": "x"}, "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {}}]}, "status": {"phase": "Running"}});
        let bare: Pod = serde_json::from_value(object.clone()).unwrap();
        object["metadata"]["managedFields"] = json!([{"manager": "m", "fieldsV1": {"f:spec": {}}}]);
        let Lean(read) = serde_json::from_str::<Lean<Pod>>(&object.to_string()).unwrap();
        assert_eq!(read, bare);
        assert_ne!(read, serde_json::from_value::<Pod>(object).unwrap());
    }

    #[test]
    fn a_condition_need_not_say_when_it_began() {
        let service = |began: Value| {
            let mut condition = json!({"type": "Ready", "status": "True", "reason": "R", "message": ""});
            if began != json!("absent") {
                condition["lastTransitionTime"] = began;
            }
            let object = json!({"metadata": {"name": "s"}, "status": {"conditions": [condition.clone(), condition]}});
            serde_json::from_str::<Lean<Service>>(&object.to_string()).map(|Lean(service)| {
                service
                    .status
                    .unwrap()
                    .conditions
                    .unwrap()
                    .iter()
                    .map(|c| c.last_transition_time.0.to_string())
                    .collect()
            })
        };
        let check = |began: Value, expected: &str| {
            let read: Vec<String> = service(began).unwrap();
            assert_eq!(read, [expected, expected]);
        };
        check(json!("2026-11-23T10:00:00Z"), "2026-11-23T10:00:00Z");
        check(json!(null), NEVER);
        check(json!("absent"), NEVER);
        assert!(service(json!("soon")).is_err());
        for conditions in [json!(null), json!([]), json!([{"type": "Ready", "lastTransitionTime": null}, {}])] {
            let object = json!({"status": {"conditions": conditions}});
            let Lean(read) = serde_json::from_str::<Lean<Pod>>(&object.to_string()).unwrap();
            assert_eq!(read, serde_json::from_value::<Pod>(object).unwrap());
        }
    }

    #[test]
    fn what_has_no_metadata_or_is_no_object_is_read_as_without() {
        let read = |object: &Value| serde_json::from_str::<Lean<Pod>>(&object.to_string()).map(|lean| lean.0);
        for object in [json!({}), json!({"metadata": null}), json!({"metadata": {}}), json!({"spec": null})] {
            assert_eq!(read(&object).unwrap(), serde_json::from_value::<Pod>(object).unwrap());
        }
        for wrong in [json!(1), json!([]), json!({"metadata": 1}), json!({"metadata": {"name": 1}})] {
            let words = |e: serde_json::Error| e.to_string().split(" at line").next().unwrap_or("").to_owned();
            assert_eq!(read(&wrong).map_err(words), serde_json::from_str::<Pod>(&wrong.to_string()).map_err(words));
        }
    }
}
