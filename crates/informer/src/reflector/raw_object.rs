//! Objects of any kind as text, so that the code of a watch is compiled once and not for each kind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Resource, core::DynamicResourceScope};
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// An object's text, and its name and version. `METADATA`: the server is requested to send only the metadata.
#[derive(Debug, Clone)]
pub(super) struct RawObject<const METADATA: bool> {
    metadata: ObjectMeta,
    text: Box<RawValue>,
}

impl<const METADATA: bool> RawObject<METADATA> {
    pub(super) fn text(&self) -> &str {
        self.text.get()
    }
}

#[derive(Deserialize)]
struct Head {
    metadata: Option<HeadMetadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMetadata {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
}

/// Only for deserializers of `serde_json` that read a string or a slice, which have the object's text. In a watch event, the
/// text is there if the object follows the event's type, as API servers send it.
impl<'de, const METADATA: bool> Deserialize<'de> for RawObject<METADATA> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?;
        let Head { metadata } = serde_json::from_str(text.get()).map_err(Error::custom)?;
        let metadata = metadata.map_or_else(ObjectMeta::default, |head| ObjectMeta {
            name: head.name,
            namespace: head.namespace,
            resource_version: head.resource_version,
            ..ObjectMeta::default()
        });
        Ok(Self { metadata, text: text.to_owned() })
    }
}

/// Its dynamic type is the URL of the objects: a watch needs nothing else.
impl<const METADATA: bool> Resource for RawObject<METADATA> {
    type DynamicType = String;
    type Scope = DynamicResourceScope;

    fn metadata_api() -> bool {
        METADATA
    }

    fn kind(_: &String) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn group(_: &String) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn version(_: &String) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn plural(_: &String) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn url_path(url: &String, _: Option<&str>) -> String {
        url.clone()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Returns the same objects as text.
pub(super) fn raw_api<K: Resource, const METADATA: bool>(api: Api<K>) -> Api<RawObject<METADATA>> {
    let url = api.resource_url().to_owned();
    Api::all_with(api.into_client(), &url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn raw_object_has_its_text_name_and_version() {
        let text = r#"{"spec": {"metadata": 1}, "metadata": {"uid": "u", "namespace": "x", "name": "a", "resourceVersion": "7"}}"#;
        let object: RawObject<false> = serde_json::from_str(text).unwrap();
        assert_eq!(object.text(), text);
        let expected = ObjectMeta {
            name: Some("a".into()),
            namespace: Some("x".into()),
            resource_version: Some("7".into()),
            ..ObjectMeta::default()
        };
        assert_eq!(*object.meta(), expected);
    }

    #[test]
    fn raw_object_may_lack_metadata() {
        for object in [json!({}), json!({"metadata": null}), json!({"metadata": {}})] {
            let read: RawObject<false> = serde_json::from_str(&object.to_string()).unwrap();
            assert_eq!(*read.meta(), ObjectMeta::default(), "{object}");
        }
        for wrong in [json!(1), json!({"metadata": 1}), json!({"metadata": {"name": 1}})] {
            assert!(serde_json::from_str::<RawObject<false>>(&wrong.to_string()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn watch_event_contains_object_after_type() {
        #[derive(Deserialize)]
        #[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
        enum WatchEvent {
            Added(RawObject<false>),
        }
        let read = |line: &str| serde_json::from_str(line).map(|WatchEvent::Added(object)| object.metadata.name);
        let object = r#"{"metadata":{"name":"p"}}"#;
        let name = read(&format!(r#"{{"type":"ADDED","object":{object}}}"#)).unwrap();
        assert_eq!(name.as_deref(), Some("p"));
        assert!(read(&format!(r#"{{"object":{object},"type":"ADDED"}}"#)).is_err());
    }
}
