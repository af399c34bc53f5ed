//! `metadata.managedFields`: the fields that each manager owns.

mod serialization;

pub use serialization::StructOrderManagedFields;

use crate::{path_element::PathElementError, set::Set, value::quote};
use serde::Deserialize;
use serde_json::Value;

/// Maximum number of entries of updates (`DefaultMaxUpdateManagers`).
const MAX_UPDATES: usize = 10;
/// Maximum number of entries in a request: each entry is compared with all others, and each apply visits all of them.
const MAX_ENTRIES: usize = 1_000;
/// Manager of merged old entries (`ancient-changes`).
const ANCIENT_CHANGES: &str = "ancient-changes";

/// Operation by which a manager owns fields (`ManagedFieldsOperationType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Any other write.
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The fields that a manager owns (`ManagedFieldsEntry`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedFieldsEntry {
    /// Name of the manager.
    pub manager: String,
    /// Operation by which it owns the fields.
    pub operation: Operation,
    /// API version of the field names.
    pub api_version: String,
    /// Subresource of the writes; empty for the object itself.
    pub subresource: String,
    /// Time of the last change: RFC 3339, in UTC, to the second.
    pub time: Option<String>,
    /// The owned fields.
    pub fields: Set,
}

/// All entries of an object. Manager, operation, version (of updates) and subresource of an entry are unique.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManagedFields(Vec<ManagedFieldsEntry>);

/// Error for invalid `managedFields`, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManagedFieldsError {
    /// Unknown operation.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// Missing API version.
    #[error("apiVersion must not be empty")]
    NoVersion,
    /// Missing `fieldsType`.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// Unknown `fieldsType`.
    #[error("invalid fieldsType {0:?} in managed fields entry {1}")]
    FieldsType(String, usize),
    /// Too many entries.
    #[error("too many managed fields entries: {0}, must have at most {MAX_ENTRIES}")]
    TooMany(usize),
    /// Invalid fields.
    #[error("error decoding set: {0}")]
    Fields(#[from] PathElementError),
}

impl ManagedFieldsEntry {
    /// Returns whether two entries are of the same manager. An apply replaces the manager's entry of any version.
    fn is_same_manager(&self, other: &Self) -> bool {
        self.operation == other.operation
            && self.manager == other.manager
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Returns upstream's sort key of entries (`sortEncodedManagedFields`).
    fn sort_key(&self) -> impl Ord + use<'_> {
        (self.operation, self.time.as_deref().unwrap_or(""), &self.manager, &self.api_version, &self.subresource)
    }

    fn equals_ignoring_time(&self, other: &Self) -> bool {
        self.operation == other.operation
            && self.manager == other.manager
            && self.api_version == other.api_version
            && self.subresource == other.subresource
            && self.time.is_some() == other.time.is_some()
            && self.fields == other.fields
    }

    /// Returns upstream's identifier of the manager, by which it sorts (`BuildManagerIdentifier`).
    pub(crate) fn identifier(&self) -> String {
        let mut parts = Vec::new();
        let mut put = |name: &str, value: &str| {
            if !value.is_empty() {
                parts.push(format!("\"{name}\":{}", quote(value)));
            }
        };
        put("manager", &self.manager);
        put("operation", self.operation.as_str());
        put("apiVersion", if self.operation == Operation::Apply { "" } else { &self.api_version });
        put("subresource", &self.subresource);
        format!("{{{}}}", parts.join(","))
    }

    /// Returns the name of the manager in conflict messages.
    pub(crate) fn display_name(&self) -> String {
        let mut name = quote(&self.manager);
        if !self.subresource.is_empty() {
            name.push_str(&format!(" with subresource {}", quote(&self.subresource)));
        }
        if self.operation == Operation::Update {
            name.push_str(&format!(" using {}", self.api_version));
        }
        name
    }

    fn from_json(json: &Value, index: usize) -> Result<Self, ManagedFieldsError> {
        let text = |field: &str| json[field].as_str().unwrap_or("").to_owned();
        let operation = match json["operation"].as_str() {
            Some("Apply") => Operation::Apply,
            Some("Update") => Operation::Update,
            _ => return Err(ManagedFieldsError::Operation),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err(ManagedFieldsError::NoVersion);
        }
        match text("fieldsType").as_str() {
            "FieldsV1" => {}
            "" => return Err(ManagedFieldsError::NoFieldsType(index)),
            other => return Err(ManagedFieldsError::FieldsType(other.to_owned(), index)),
        }
        let fields = match &json["fieldsV1"] {
            Value::Null => Set::default(),
            fields => Set::from_json(fields)?,
        };
        let time = json["time"].as_str().map(str::to_owned);
        Ok(Self { manager: text("manager"), operation, api_version, subresource: text("subresource"), time, fields })
    }
}

impl ManagedFields {
    /// Parses `metadata.managedFields`; null is an empty list.
    ///
    /// # Errors
    /// When an entry is invalid.
    pub fn from_json(json: &Value) -> Result<Self, ManagedFieldsError> {
        let entries = json.as_array().map(Vec::as_slice).unwrap_or_default();
        if entries.len() > MAX_ENTRIES {
            return Err(ManagedFieldsError::TooMany(entries.len()));
        }
        let mut all = Self::default();
        for (index, entry) in entries.iter().enumerate() {
            all.insert(ManagedFieldsEntry::from_json(entry, index)?);
        }
        Ok(all)
    }

    /// Serializes to `metadata.managedFields`; `None` without entries.
    #[must_use]
    pub fn to_json(&self) -> Option<Value> {
        serde_json::to_value(self).ok().filter(|_| !self.is_empty())
    }

    /// Returns the entries in upstream's order.
    fn sorted_entries(&self) -> Vec<&ManagedFieldsEntry> {
        let mut entries: Vec<&ManagedFieldsEntry> = self.0.iter().collect();
        entries.sort_by(|l, r| l.sort_key().cmp(&r.sort_key()));
        entries
    }

    /// Returns whether both have the same entries, ignoring their times.
    #[must_use]
    pub fn equals_ignoring_times(&self, other: &Self) -> bool {
        let pairs = || self.sorted_entries().into_iter().zip(other.sorted_entries());
        self.0.len() == other.0.len() && pairs().all(|(l, r)| l.equals_ignoring_time(r))
    }

    /// Returns whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all entries, unsorted.
    #[must_use]
    pub fn entries(&self) -> &[ManagedFieldsEntry] {
        &self.0
    }

    pub(crate) fn entries_mut(&mut self) -> &mut Vec<ManagedFieldsEntry> {
        &mut self.0
    }

    /// Removes and returns the entry of the same manager.
    pub(crate) fn remove(&mut self, like: &ManagedFieldsEntry) -> Option<ManagedFieldsEntry> {
        let index = self.0.iter().position(|e| e.is_same_manager(like))?;
        Some(self.0.remove(index))
    }

    /// Adds an entry, which replaces the entry of the same manager.
    pub(crate) fn insert(&mut self, entry: ManagedFieldsEntry) {
        self.remove(&entry);
        self.0.push(entry);
    }

    /// Merges the oldest entries of updates into one per version, until at most [`MAX_UPDATES`] are left
    /// (`capManagersManager`).
    pub(crate) fn cap_update_entries(&mut self) {
        let mut updates: Vec<ManagedFieldsEntry> =
            self.0.iter().filter(|e| e.operation == Operation::Update).cloned().collect();
        let mut count = updates.len();
        if count <= MAX_UPDATES {
            return;
        }
        updates.sort_by_cached_key(|e| (e.time.clone().unwrap_or_default(), e.identifier()));
        // The first entry of each version is merged only when there is a second one.
        let mut firsts: Vec<ManagedFieldsEntry> = Vec::new();
        // The sets of each bucket are united once at the end.
        let mut merges: Vec<(ManagedFieldsEntry, Vec<Set>)> = Vec::new();
        for entry in updates {
            let Some(first) = firsts.iter().find(|f| f.api_version == entry.api_version) else {
                firsts.push(entry);
                continue;
            };
            let bucket =
                ManagedFieldsEntry { manager: ANCIENT_CHANGES.to_owned(), subresource: String::new(), ..entry.clone() };
            if bucket.is_same_manager(&entry) {
                continue;
            }
            let merged = self.remove(&bucket).or_else(|| self.remove(first)).unwrap_or_else(|| bucket.clone());
            self.remove(&entry);
            match merges.iter_mut().find(|(merged_bucket, _)| merged_bucket.is_same_manager(&bucket)) {
                Some((last, sets)) => {
                    sets.push(entry.fields);
                    last.time.clone_from(&bucket.time);
                }
                None => merges.push((bucket.clone(), vec![merged.fields, entry.fields])),
            }
            self.insert(ManagedFieldsEntry { fields: Set::default(), ..bucket });
            count -= 1;
            if count <= MAX_UPDATES {
                break;
            }
        }
        for (bucket, sets) in merges {
            self.insert(ManagedFieldsEntry { fields: Set::union_all(sets), ..bucket });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entries(count: usize) -> Value {
        let entry = |i| {
            json!({"manager": format!("m{i:04}"), "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {format!("f:{i}"): {}}}})
        };
        (0..count).map(entry).collect()
    }

    #[test]
    fn too_many_managed_fields_entries_are_refused() {
        assert!(ManagedFields::from_json(&entries(MAX_ENTRIES)).is_ok());
        assert_eq!(
            ManagedFields::from_json(&entries(MAX_ENTRIES + 1)),
            Err(ManagedFieldsError::TooMany(MAX_ENTRIES + 1))
        );
    }

    #[test]
    fn merged_managed_fields_entries_keep_all_fields() {
        let mut managers = ManagedFields::from_json(&entries(100)).unwrap();
        managers.cap_update_entries();
        assert_eq!(managers.entries().len(), MAX_UPDATES);
        let all = Set::union_all(managers.entries().iter().map(|entry| entry.fields.clone()));
        assert_eq!(all.paths().len(), 100);
        let ancient = managers.entries().iter().find(|entry| entry.manager == ANCIENT_CHANGES).unwrap();
        assert_eq!(ancient.fields.paths().len(), 100 - MAX_UPDATES + 1);
    }
}
