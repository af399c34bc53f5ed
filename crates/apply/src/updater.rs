//! Field ownership of updates and applies (`merge.Updater`).

use crate::{
    compare::{Comparison, compare},
    conflict::{Conflict, Conflicts},
    field_set::field_set,
    last_applied,
    managed_fields::{ManagedFields, ManagedFieldsEntry, Operation},
    merge::merge,
    path::Path,
    prune::prune,
    reconcile_field_set::reconcile_field_set,
    reset_fields::Filter,
    schema::TypeRef,
    set::Set,
    type_error::TypeError,
    validate::{Duplicates, validate},
    value,
};
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Manager of the fields that an object without `managedFields` had before its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Fields that no manager owns (`stripMetaManager`).
static STRIPPED_FIELDS: LazyLock<Set> = LazyLock::new(|| {
    let metadata = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let roots = ["apiVersion", "kind", "metadata"].map(|f| Path::of_fields(&[f]));
    let below = metadata.map(|f| Path::of_fields(&["metadata", f]));
    Set::of(roots.iter().chain(&below))
});

/// Served versions of a kind and conversion between them (`merge.Converter`).
pub trait Converter {
    /// Returns the type of the kind's objects in a version; `None` if it is not served.
    fn root(&self, api_version: &str) -> Option<TypeRef<'_>>;

    /// Returns whether [`Converter::convert`] converts all fields between two versions; otherwise fields cannot be compared
    /// across them.
    fn is_faithful(&self, _from: &str, _to: &str) -> bool {
        true
    }

    /// Converts an object to another version; `None` if that is not served.
    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<Value>;
}

/// The parameters of a write that determine field ownership.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The served versions of the kind.
    pub versions: &'a dyn Converter,
    /// API version of the request's objects.
    pub api_version: &'a str,
    /// Subresource; empty for the object itself.
    pub subresource: &'a str,
    /// Name of the field manager.
    pub manager: &'a str,
    /// Current time: RFC 3339, in UTC, to the second.
    pub time: &'a str,
    /// Filter of the fields that the request can change.
    pub filter: &'a Filter,
}

/// Result of an apply.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplyResult {
    /// The object without defaults; its `managedFields` are unchanged.
    pub object: Value,
    /// The new managed fields.
    pub managers: ManagedFields,
}

/// Error of an apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The API version is not served.
    #[error("no corresponding type for {0}")]
    Version(String),
    /// The configuration does not match the schema.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// Other managers own fields with different values.
    #[error("{0}")]
    Conflicts(Conflicts),
}

impl Request<'_> {
    fn entry(&self, manager: &str, operation: Operation, fields: Set) -> ManagedFieldsEntry {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        ManagedFieldsEntry {
            manager: manager.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
            time: Some(self.time.to_owned()),
            fields,
        }
    }
}

/// Computes the managed fields after a write other than an apply (`Updater.Update`): the manager becomes the only owner of
/// the fields that it changed. `live` is `None` for a create. An object without managed fields stays without them.
#[must_use]
pub fn update(request: &Request<'_>, live: Option<&Value>, new: &Value, managers: ManagedFields) -> ManagedFields {
    if managers.is_empty() && live.is_some() {
        return managers;
    }
    update_ownership(request, request.manager, live, new, managers)
}

/// Differences between the live and the new object, by version of the managers.
struct VersionedComparisons<'a> {
    request: &'a Request<'a>,
    live: &'a Value,
    new: &'a Value,
    cache: Vec<(String, Comparison)>,
}

impl<'a> VersionedComparisons<'a> {
    fn new(request: &'a Request<'a>, live: &'a Value, new: &'a Value) -> Self {
        Self { request, live, new, cache: Vec::new() }
    }

    /// Returns the difference in a version; `None` if it is not served.
    fn in_version(&mut self, version: &str) -> Option<&Comparison> {
        if let Some(index) = self.cache.iter().position(|(v, _)| v == version) {
            return Some(&self.cache[index].1);
        }
        let Request { versions, api_version, filter, .. } = self.request;
        let root = versions.root(version)?;
        let comparison = if version == *api_version {
            compare(root, Some(self.live), Some(self.new))
        } else {
            let live = versions.convert(self.live, api_version, version)?;
            let new = versions.convert(self.new, api_version, version)?;
            compare(root, Some(&live), Some(&new))
        };
        let Comparison { removed, modified, added } = comparison;
        let comparison =
            Comparison { removed: filter.of(removed), modified: filter.of(modified), added: filter.of(added) };
        self.cache.push((version.to_owned(), comparison));
        self.cache.last().map(|(_, c)| c)
    }
}

/// Moves the ownership of all changed fields to a manager.
fn update_ownership(
    request: &Request<'_>,
    manager: &str,
    live: Option<&Value>,
    new: &Value,
    managers: ManagedFields,
) -> ManagedFields {
    let empty_object = Value::Object(Map::new());
    let mut changes = VersionedComparisons::new(request, live.unwrap_or(&empty_object), new);
    let mut managers = reconcile_managers(request, managers);
    managers.entries_mut().retain_mut(|entry| {
        let Some(comparison) = changes.in_version(&entry.api_version) else { return false };
        remove_changed_fields(entry, comparison);
        !entry.fields.is_empty()
    });
    let changed = changes.in_version(request.api_version).map(|c| c.modified.union(&c.added)).unwrap_or_default();
    let changed = changed.difference(&STRIPPED_FIELDS);
    if !changed.is_empty() {
        let mut entry = request.entry(manager, Operation::Update, changed);
        if let Some(old_entry) = managers.remove(&entry) {
            entry.fields = old_entry.fields.union(&entry.fields);
        }
        managers.insert(entry);
    }
    managers.cap_update_entries();
    managers
}

/// Removes changed fields from the entry of another manager.
fn remove_changed_fields(entry: &mut ManagedFieldsEntry, comparison: &Comparison) {
    for set in [&comparison.modified, &comparison.added, &comparison.removed] {
        if !set.is_empty() {
            entry.fields = entry.fields.difference(set);
        }
    }
}

/// Returns the entries of served versions, with their fields reconciled with the current schema.
fn reconcile_managers(request: &Request<'_>, mut managers: ManagedFields) -> ManagedFields {
    managers.entries_mut().retain_mut(|entry| {
        let Some(root) = request.versions.root(&entry.api_version) else { return false };
        if let Some(fields) = reconcile_field_set(root, &entry.fields) {
            entry.fields = fields;
        }
        true
    });
    managers
}

/// Applies a configuration (`Updater.Apply`); `live` is `None` if the object does not exist yet.
///
/// # Errors
/// When the configuration does not match the schema, or other managers own its fields with different values and the apply
/// is not forced.
pub fn apply(
    request: &Request<'_>,
    live: Option<&Value>,
    config: Value,
    managers: ManagedFields,
    force: bool,
) -> Result<ApplyResult, ApplyError> {
    let no_version = || ApplyError::Version(request.api_version.to_owned());
    let root = request.versions.root(request.api_version).ok_or_else(no_version)?;
    validate(root, &config, Duplicates::Refused)?;
    let managers = match live {
        Some(live) if managers.is_empty() => update_ownership(request, BEFORE_FIRST_APPLY, None, live, managers),
        _ => managers,
    };
    let empty_object = Value::Object(Map::new());
    let live = live.unwrap_or(&empty_object);
    if request.manager != last_applied::KUBECTL {
        return merge_into(request, root, live, config, managers, force);
    }
    let mut applied = match merge_into(request, root, live, config.clone(), managers.clone(), force) {
        Err(ApplyError::Conflicts(conflicts)) => {
            let allowed = last_applied::fields(root, live, request.api_version);
            let is_conflict = |c: &Conflict| !allowed.as_ref().is_some_and(|a| a.has(&c.path));
            let remaining: Vec<Conflict> = conflicts.0.into_iter().filter(is_conflict).collect();
            if !remaining.is_empty() {
                return Err(ApplyError::Conflicts(Conflicts(remaining)));
            }
            merge_into(request, root, live, config.clone(), managers, true)?
        }
        result => result?,
    };
    last_applied::refresh(&mut applied.object, config);
    Ok(applied)
}

fn merge_into(
    request: &Request<'_>,
    root: TypeRef<'_>,
    live: &Value,
    config: Value,
    managers: ManagedFields,
    force: bool,
) -> Result<ApplyResult, ApplyError> {
    let mut managers = reconcile_managers(request, managers);
    let fields = request.filter.of(field_set(root, &config));
    let mut applied = request.entry(request.manager, Operation::Apply, fields);
    let last = managers.remove(&applied);
    managers.insert(applied.clone());
    let merged = merge(root, Some(live), config).unwrap_or_default();
    let object = match &last {
        Some(last) if !last.fields.is_empty() => prune(request.versions, merged, &managers, last, request.api_version),
        _ => merged,
    };
    managers.remove(&applied);
    take_ownership(&mut VersionedComparisons::new(request, live, &object), &mut managers, force)?;
    applied.fields = applied.fields.difference(&STRIPPED_FIELDS);
    // An apply without changes keeps the time of the last one.
    if value::equal(live, &object) {
        applied.time = last.and_then(|l| l.time);
    }
    if !applied.fields.is_empty() {
        managers.insert(applied);
    }
    Ok(ApplyResult { object, managers })
}

/// Removes the fields that an apply changed from other managers.
///
/// # Errors
/// When other managers own changed fields and the apply is not forced.
fn take_ownership(
    changes: &mut VersionedComparisons<'_>,
    managers: &mut ManagedFields,
    force: bool,
) -> Result<(), ApplyError> {
    if !force {
        let mut conflicts: Vec<(&ManagedFieldsEntry, Vec<Path>)> = Vec::new();
        for entry in managers.entries() {
            let Some(comparison) = changes.in_version(&entry.api_version) else { continue };
            let taken = entry.fields.intersection(&comparison.modified.union(&comparison.added)).paths();
            if !taken.is_empty() {
                conflicts.push((entry, taken));
            }
        }
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(Conflicts::of(conflicts)));
        }
    }
    managers.entries_mut().retain_mut(|entry| {
        let Some(comparison) = changes.in_version(&entry.api_version) else { return false };
        remove_changed_fields(entry, comparison);
        !entry.fields.is_empty()
    });
    Ok(())
}
