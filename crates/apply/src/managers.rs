//! `metadata.managedFields`: who owns what.

mod text;

pub use text::StructOrder;

use crate::{element::ElementError, set::Set, value::quote};
use serde::Deserialize;
use serde_json::Value;

/// Upstream keeps no more entries of updates than this.
const MAX_UPDATES: usize = 10;
/// How many entries a client may send: each is compared with all others, and each apply walks through all.
const MAX_ENTRIES: usize = 1_000;
/// The manager of entries that were too many.
const ANCIENT: &str = "ancient-changes";

/// How a manager came to own its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Operation {
    /// It applied them.
    Apply,
    /// It changed them in any other way.
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What one manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The manager.
    pub manager: String,
    /// How it came to own them.
    pub operation: Operation,
    /// The version in which the fields have these names.
    pub api_version: String,
    /// The subresource through which it came; empty for the object itself.
    pub subresource: String,
    /// When its fields last changed: RFC 3339, in UTC, to the second.
    pub time: Option<String>,
    /// The fields.
    pub fields: Set,
}

/// All entries of an object, no two of the same manager, operation, version (of updates) and subresource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managers(Vec<Entry>);

/// Why a list is no `managedFields`, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManagersError {
    /// An entry is of another operation.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// An entry has no version.
    #[error("apiVersion must not be empty")]
    NoVersion,
    /// An entry does not say of which form its fields are.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// The fields of an entry are of a form that is not known.
    #[error("invalid fieldsType {0:?} in managed fields entry {1}")]
    FieldsType(String, usize),
    /// There are too many entries.
    #[error("too many managed fields entries: {0}, must have at most {MAX_ENTRIES}")]
    TooMany(usize),
    /// The fields of an entry cannot be read.
    #[error("error decoding set: {0}")]
    Fields(#[from] ElementError),
}

impl Entry {
    /// Whether these two are of one manager. What a manager applies in one version it owns no longer in another.
    fn is_same_manager(&self, other: &Self) -> bool {
        self.operation == other.operation
            && self.manager == other.manager
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// By what upstream sorts entries.
    fn place(&self) -> impl Ord + use<'_> {
        (self.operation, self.time.as_deref().unwrap_or(""), &self.manager, &self.api_version, &self.subresource)
    }

    fn is_same_but_time(&self, other: &Self) -> bool {
        self.operation == other.operation
            && self.manager == other.manager
            && self.api_version == other.api_version
            && self.subresource == other.subresource
            && self.time.is_some() == other.time.is_some()
            && self.fields == other.fields
    }

    /// Upstream's text for the manager, by which it sorts.
    pub(crate) fn identifier(&self) -> String {
        let mut parts = Vec::new();
        let mut put = |name: &str, value: &str| {
            if !value.is_empty() {
                parts.push(format!("\"{name}\":{}", quote(value)));
            }
        };
        put("manager", &self.manager);
        put("operation", self.operation.name());
        put("apiVersion", if self.operation == Operation::Apply { "" } else { &self.api_version });
        put("subresource", &self.subresource);
        format!("{{{}}}", parts.join(","))
    }

    /// As conflicts name it.
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

    fn from_json(json: &Value, place: usize) -> Result<Self, ManagersError> {
        let text = |field: &str| json[field].as_str().unwrap_or("").to_owned();
        let operation = match json["operation"].as_str() {
            Some("Apply") => Operation::Apply,
            Some("Update") => Operation::Update,
            _ => return Err(ManagersError::Operation),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err(ManagersError::NoVersion);
        }
        match text("fieldsType").as_str() {
            "FieldsV1" => {}
            "" => return Err(ManagersError::NoFieldsType(place)),
            other => return Err(ManagersError::FieldsType(other.to_owned(), place)),
        }
        let fields = match &json["fieldsV1"] {
            Value::Null => Set::default(),
            fields => Set::from_json(fields)?,
        };
        let time = json["time"].as_str().map(str::to_owned);
        Ok(Self { manager: text("manager"), operation, api_version, subresource: text("subresource"), time, fields })
    }
}

impl Managers {
    /// Reads `metadata.managedFields`; null is none.
    ///
    /// # Errors
    /// When an entry is not of its form.
    pub fn from_json(json: &Value) -> Result<Self, ManagersError> {
        let entries = json.as_array().map(Vec::as_slice).unwrap_or_default();
        if entries.len() > MAX_ENTRIES {
            return Err(ManagersError::TooMany(entries.len()));
        }
        let mut all = Self::default();
        for (place, entry) in entries.iter().enumerate() {
            all.put(Entry::from_json(entry, place)?);
        }
        Ok(all)
    }

    /// As `metadata.managedFields`; `None` when there is nothing.
    #[must_use]
    pub fn to_json(&self) -> Option<Value> {
        serde_json::to_value(self).ok().filter(|_| !self.is_empty())
    }

    /// The entries in upstream's order.
    fn in_order(&self) -> Vec<&Entry> {
        let mut entries: Vec<&Entry> = self.0.iter().collect();
        entries.sort_by(|l, r| l.place().cmp(&r.place()));
        entries
    }

    /// Whether these own the same, whenever that began.
    #[must_use]
    pub fn is_same_but_times(&self, other: &Self) -> bool {
        let pairs = || self.in_order().into_iter().zip(other.in_order());
        self.0.len() == other.0.len() && pairs().all(|(l, r)| l.is_same_but_time(r))
    }

    /// Whether nobody owns anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All entries, in no particular order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    pub(crate) fn entries_mut(&mut self) -> &mut Vec<Entry> {
        &mut self.0
    }

    /// Takes out the entry of the same manager.
    pub(crate) fn take(&mut self, like: &Entry) -> Option<Entry> {
        let place = self.0.iter().position(|e| e.is_same_manager(like))?;
        Some(self.0.remove(place))
    }

    /// Adds an entry, in the place of that of the same manager.
    pub(crate) fn put(&mut self, entry: Entry) {
        self.take(&entry);
        self.0.push(entry);
    }

    /// Joins the oldest entries of updates into one per version until there are no more than ten.
    pub(crate) fn cap(&mut self) {
        let mut updates: Vec<Entry> = self.0.iter().filter(|e| e.operation == Operation::Update).cloned().collect();
        let mut count = updates.len();
        if count <= MAX_UPDATES {
            return;
        }
        updates.sort_by_cached_key(|e| (e.time.clone().unwrap_or_default(), e.identifier()));
        // The first of each version is joined only when there is a second.
        let mut firsts: Vec<Entry> = Vec::new();
        // What each bucket is joined of: united in the end, not once for each entry.
        let mut joins: Vec<(Entry, Vec<Set>)> = Vec::new();
        for entry in updates {
            let Some(first) = firsts.iter().find(|f| f.api_version == entry.api_version) else {
                firsts.push(entry);
                continue;
            };
            let bucket = Entry { manager: ANCIENT.to_owned(), subresource: String::new(), ..entry.clone() };
            if bucket.is_same_manager(&entry) {
                continue;
            }
            let joined = self.take(&bucket).or_else(|| self.take(first)).unwrap_or_else(|| bucket.clone());
            self.take(&entry);
            match joins.iter_mut().find(|(of, _)| of.is_same_manager(&bucket)) {
                Some((last, sets)) => {
                    sets.push(entry.fields);
                    last.time.clone_from(&bucket.time);
                }
                None => joins.push((bucket.clone(), vec![joined.fields, entry.fields])),
            }
            self.put(Entry { fields: Set::default(), ..bucket });
            count -= 1;
            if count <= MAX_UPDATES {
                break;
            }
        }
        for (bucket, sets) in joins {
            self.put(Entry { fields: Set::union_all(sets), ..bucket });
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
    fn too_many_entries_are_refused() {
        assert!(Managers::from_json(&entries(MAX_ENTRIES)).is_ok());
        assert_eq!(Managers::from_json(&entries(MAX_ENTRIES + 1)), Err(ManagersError::TooMany(MAX_ENTRIES + 1)));
    }

    #[test]
    fn joined_entries_keep_all_their_fields() {
        let mut managers = Managers::from_json(&entries(100)).unwrap();
        managers.cap();
        assert_eq!(managers.entries().len(), MAX_UPDATES);
        let all = Set::union_all(managers.entries().iter().map(|entry| entry.fields.clone()));
        assert_eq!(all.paths().len(), 100);
        let ancient = managers.entries().iter().find(|entry| entry.manager == ANCIENT).unwrap();
        assert_eq!(ancient.fields.paths().len(), 100 - MAX_UPDATES + 1);
    }
}
