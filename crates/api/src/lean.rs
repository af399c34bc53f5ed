//! Objects without `metadata.managedFields`, at which no component looks: of a large object they are most of what a watch
//! tells, and as values they would be most of what is remembered of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess, Visitor};
use std::fmt;

/// Where they stand.
const MANAGED_FIELDS: &[&str] = &["metadata", "managedFields"];

/// An object that is read past its `managedFields`.
#[derive(Debug, Clone, PartialEq)]
pub struct Lean<K>(pub K);

impl<'de, K: Deserialize<'de>> Deserialize<'de> for Lean<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        K::deserialize(Past { inner: deserializer, path: MANAGED_FIELDS }).map(Self)
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

/// Reads past what stands at a path, whatever it is that is read; all else goes by.
struct Past<T> {
    inner: T,
    path: &'static [&'static str],
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Past<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(Past { inner: visitor, path: self.path })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(Past { inner: visitor, path: self.path })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Objects are maps, and their metadata is one that may be absent; anything else is an error.
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
        self.inner.visit_some(Past { inner: deserializer, path: self.path })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Fields { map, path: self.path, on_the_way: false })
    }
}

struct Fields<A> {
    map: A,
    path: &'static [&'static str],
    /// Whether the path goes on in the value whose key was read last.
    on_the_way: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<String>()? {
            self.on_the_way = self.path.first().is_some_and(|first| *first == key);
            if !self.on_the_way || self.path.len() > 1 {
                return seed.deserialize(key.into_deserializer()).map(Some);
            }
            self.map.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        match self.path {
            [_, rest @ ..] if self.on_the_way => self.map.next_value_seed(Past { inner: seed, path: rest }),
            _ => self.map.next_value_seed(seed),
        }
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Past<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Past { inner: deserializer, path: self.path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
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
