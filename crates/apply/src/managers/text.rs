//! `managedFields` as the text in which objects are stored: it is written and read without a tree of values between.

use super::{Entry, Managers, Operation};
use crate::set::Set;
use serde::{Deserialize, Serialize, Serializer};

/// The only form of fields that there is.
const FIELDS_TYPE: &str = "FieldsV1";

/// An entry as JSON, with its keys in order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
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

/// An entry as JSON, with its keys as in upstream's `ManagedFieldsEntry`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InStructOrder<'a> {
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

/// Managers whose entries have their keys as in upstream's struct, and not sorted.
#[derive(Debug)]
pub struct StructOrder<'a>(pub &'a Managers);

impl Serialize for StructOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.in_order().into_iter().map(|entry| InStructOrder {
            manager: &entry.manager,
            operation: entry.operation.name(),
            api_version: &entry.api_version,
            time: entry.time.as_deref(),
            fields_type: FIELDS_TYPE,
            fields: &entry.fields,
            subresource: &entry.subresource,
        }))
    }
}

/// An entry as it was written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
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

impl Serialize for Managers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.in_order().into_iter().map(|entry| Shown {
            api_version: &entry.api_version,
            fields_type: FIELDS_TYPE,
            fields: &entry.fields,
            manager: &entry.manager,
            operation: entry.operation.name(),
            subresource: &entry.subresource,
            time: entry.time.as_deref(),
        }))
    }
}

impl Managers {
    /// Reads the text of `metadata.managedFields` as it is written here; `None` when this is something else, of which
    /// [`Self::from_json`] may make more.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let written: Vec<Written> = serde_json::from_str(text).ok()?;
        let mut all = Self::default();
        for Written { api_version, fields_type, fields, manager, operation, subresource, time } in written {
            if api_version.is_empty() || fields_type != FIELDS_TYPE {
                return None;
            }
            all.put(Entry { manager, operation, api_version, subresource, time, fields });
        }
        Some(all)
    }
}
