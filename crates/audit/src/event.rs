//! `audit.k8s.io/v1` `Event`, a line of the audit log, with its fields in upstream's order.

use super::policy::{Level, Stage};
use jiff::Timestamp;
use request::{RequestInfo, RequestTarget, ResourceAttributes, UserInfo};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::{borrow::Cow, collections::BTreeMap};

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) level: Level,
    #[serde(rename = "auditID")]
    pub(super) audit_id: String,
    pub(super) stage: Stage,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: String,
    pub(super) verb: String,
    pub(super) user: User,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<User>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub(super) source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<Value>,
    #[serde(serialize_with = "micros")]
    pub(super) request_received_timestamp: Timestamp,
    #[serde(serialize_with = "micros")]
    pub(super) stage_timestamp: Timestamp,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<Cow<'static, str>, String>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct User {
    #[serde(skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<String, Vec<String>>,
}

impl From<&UserInfo> for User {
    fn from(user: &UserInfo) -> Self {
        let UserInfo { name, uid, groups, extra } = user.clone();
        Self { username: name, uid, groups, extra }
    }
}

/// `ObjectReference` of a request. Empty fields are omitted.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectRef {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subresource: String,
}

impl ObjectRef {
    /// Returns the reference of a resource request.
    pub(super) fn of_request(info: &RequestInfo) -> Option<Self> {
        let (RequestTarget::Resource(resource), Some(path)) = (&info.attributes.target, &info.resource_path) else {
            return None;
        };
        let ResourceAttributes { group, resource, subresource, namespace, name, .. } = resource.clone();
        let api_version = path.api_version.clone();
        Some(Self { resource, namespace, name, api_group: group, api_version, subresource, ..Self::default() })
    }

    /// Sets empty fields from the metadata of the sent object.
    pub(super) fn complete(&mut self, metadata: &Value) {
        let fields = [
            (&mut self.namespace, "namespace"),
            (&mut self.name, "name"),
            (&mut self.uid, "uid"),
            (&mut self.resource_version, "resourceVersion"),
        ];
        for (field, name) in fields {
            if field.is_empty() {
                metadata[name].as_str().unwrap_or_default().clone_into(field);
            }
        }
    }
}

/// Serializes a time as `metav1.MicroTime`.
fn micros<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"))
}
