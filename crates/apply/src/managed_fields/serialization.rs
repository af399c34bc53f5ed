//! Serialization of `managedFields` for stored objects, without intermediate `serde_json::Value`s.

use super::{ManagedFields, ManagedFieldsEntry, Operation};
use crate::set::Set;
use serde::{Deserialize, Serialize, Serializer};

/// The only supported `fieldsType`.
const FIELDS_TYPE: &str = "FieldsV1";

/// Serialized entry with sorted keys.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SortedEntry<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    fields_type: &'static str,
    #[serde(rename = "fieldsV1")]
    fields: &'a Set,
    #[serde(skip_serializing_if = "str::is_empty")]
    manager: &'a str,
    operation: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<&'a str>,
}

/// Serialized entry with its keys in the order of upstream's struct `ManagedFieldsEntry`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StructOrderEntry<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    manager: &'a str,
    operation: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<&'a str>,
    fields_type: &'static str,
    #[serde(rename = "fieldsV1")]
    fields: &'a Set,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
}

/// Serializes entries with their keys in the order of upstream's struct instead of sorted.
#[derive(Debug)]
pub struct StructOrderManagedFields<'a>(pub &'a ManagedFields);

impl Serialize for StructOrderManagedFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.sorted_entries().into_iter().map(|entry| StructOrderEntry {
            manager: &entry.manager,
            operation: entry.operation.as_str(),
            api_version: &entry.api_version,
            time: entry.time.as_deref(),
            fields_type: FIELDS_TYPE,
            fields: &entry.fields,
            subresource: &entry.subresource,
        }))
    }
}

/// Deserialized entry.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeserializedEntry {
    api_version: String,
    fields_type: String,
    #[serde(rename = "fieldsV1")]
    fields: Set,
    #[serde(default)]
    manager: String,
    operation: Operation,
    #[serde(default)]
    subresource: String,
    time: Option<String>,
}

impl Serialize for ManagedFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.sorted_entries().into_iter().map(|entry| SortedEntry {
            api_version: &entry.api_version,
            fields_type: FIELDS_TYPE,
            fields: &entry.fields,
            manager: &entry.manager,
            operation: entry.operation.as_str(),
            subresource: &entry.subresource,
            time: entry.time.as_deref(),
        }))
    }
}

impl ManagedFields {
    /// Parses stored `metadata.managedFields`; `None` when they are not in the serialized form of this module, and
    /// [`Self::from_json`] must be used.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let entries: Vec<DeserializedEntry> = serde_json::from_str(text).ok()?;
        let mut all = Self::default();
        for DeserializedEntry { api_version, fields_type, fields, manager, operation, subresource, time } in entries {
            if api_version.is_empty() || fields_type != FIELDS_TYPE {
                return None;
            }
            all.insert(ManagedFieldsEntry { manager, operation, api_version, subresource, time, fields });
        }
        Some(all)
    }
}
