//! What a write does to an object and to who owns its fields.

use crate::{
    compare::{Comparison, compare},
    conflict::{Conflict, Conflicts},
    field_set::field_set,
    filter::Filter,
    last_applied,
    managers::{Entry, Managers, Operation},
    merge::merge,
    path::Path,
    prune::prune,
    reconcile::reconcile,
    schema::TypeRef,
    set::Set,
    typed::TypeError,
    validate::{Duplicates, validate},
    value,
};
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Who owns what an object had before the first apply to it, when nobody was noted.
const BEFORE: &str = "before-first-apply";

/// What nobody owns.
static STRIPPED: LazyLock<Set> = LazyLock::new(|| {
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

/// The versions in which a kind is served.
pub trait Versions {
    /// The type of the kind's objects in this version; `None` when it is not served.
    fn root(&self, api_version: &str) -> Option<TypeRef<'_>>;

    /// Whether [`Versions::convert`] makes of an object of one version what it is in the other: else nothing can be
    /// said of what a field has become there.
    fn is_faithful(&self, _from: &str, _to: &str) -> bool {
        true
    }

    /// An object of one version in another; `None` when that is not served.
    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<Value>;
}

/// A write, as far as it matters who owns what.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The versions of the kind.
    pub versions: &'a dyn Versions,
    /// The version of the objects of the request.
    pub api_version: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Who writes.
    pub manager: &'a str,
    /// Now: RFC 3339, in UTC, to the second.
    pub time: &'a str,
    /// Which fields the request can change.
    pub filter: &'a Filter,
}

/// What an apply made.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The object, without defaults; its `managedFields` are those that it had.
    pub object: Value,
    /// Who owns what.
    pub managers: Managers,
}

/// Why a configuration cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The version is not served.
    #[error("no corresponding type for {0}")]
    Version(String),
    /// It is not of the kind's type.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// Others own fields with other values.
    #[error("{0}")]
    Conflicts(Conflicts),
}

impl Request<'_> {
    fn entry(&self, manager: &str, operation: Operation, fields: Set) -> Entry {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        Entry {
            manager: manager.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
            time: Some(self.time.to_owned()),
            fields,
        }
    }
}

/// Who owns what after a write other than an apply: whoever changed a field owns it alone. `live` is `None` for a
/// create. An object that nobody manages stays so.
#[must_use]
pub fn update(request: &Request<'_>, live: Option<&Value>, new: &Value, managers: Managers) -> Managers {
    if managers.is_empty() && live.is_some() {
        return managers;
    }
    track(request, request.manager, live, new, managers)
}

/// How the object changed, in each of the versions of its managers.
struct Changes<'a> {
    request: &'a Request<'a>,
    live: &'a Value,
    new: &'a Value,
    known: Vec<(String, Comparison)>,
}

impl<'a> Changes<'a> {
    fn new(request: &'a Request<'a>, live: &'a Value, new: &'a Value) -> Self {
        Self { request, live, new, known: Vec::new() }
    }

    /// `None` when the version is not served.
    fn in_version(&mut self, version: &str) -> Option<&Comparison> {
        if let Some(place) = self.known.iter().position(|(v, _)| v == version) {
            return Some(&self.known[place].1);
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
        self.known.push((version.to_owned(), comparison));
        self.known.last().map(|(_, c)| c)
    }
}

/// Takes from all managers what changed, and gives it to this one.
fn track(request: &Request<'_>, manager: &str, live: Option<&Value>, new: &Value, managers: Managers) -> Managers {
    let nothing = Value::Object(Map::new());
    let mut changes = Changes::new(request, live.unwrap_or(&nothing), new);
    let mut managers = reconciled(request, managers);
    managers.entries_mut().retain_mut(|entry| {
        let Some(change) = changes.in_version(&entry.api_version) else { return false };
        take(entry, change);
        !entry.fields.is_empty()
    });
    let owned = changes.in_version(request.api_version).map(|c| c.modified.union(&c.added)).unwrap_or_default();
    let owned = owned.difference(&STRIPPED);
    if !owned.is_empty() {
        let mut entry = request.entry(manager, Operation::Update, owned);
        if let Some(before) = managers.take(&entry) {
            entry.fields = before.fields.union(&entry.fields);
        }
        managers.put(entry);
    }
    managers.cap();
    managers
}

/// Takes from a manager what another changed.
fn take(entry: &mut Entry, change: &Comparison) {
    for set in [&change.modified, &change.added, &change.removed] {
        if !set.is_empty() {
            entry.fields = entry.fields.difference(set);
        }
    }
}

/// The managers of versions that are served, with what they own in the types of now.
fn reconciled(request: &Request<'_>, mut managers: Managers) -> Managers {
    managers.entries_mut().retain_mut(|entry| {
        let Some(root) = request.versions.root(&entry.api_version) else { return false };
        if let Some(fields) = reconcile(root, &entry.fields) {
            entry.fields = fields;
        }
        true
    });
    managers
}

/// Applies a configuration, which becomes the object; `live` is `None` when there is none yet.
///
/// # Errors
/// When the configuration is not of the kind's type; and when others own fields of it with other values, unless it is
/// forced.
pub fn apply(
    request: &Request<'_>,
    live: Option<&Value>,
    config: Value,
    managers: Managers,
    force: bool,
) -> Result<Applied, ApplyError> {
    let no_version = || ApplyError::Version(request.api_version.to_owned());
    let root = request.versions.root(request.api_version).ok_or_else(no_version)?;
    validate(root, &config, Duplicates::Refused)?;
    let managers = match live {
        Some(live) if managers.is_empty() => track(request, BEFORE, None, live, managers),
        _ => managers,
    };
    let nothing = Value::Object(Map::new());
    let live = live.unwrap_or(&nothing);
    if request.manager != last_applied::KUBECTL {
        return merge_into(request, root, live, config, managers, force);
    }
    let mut applied = match merge_into(request, root, live, config.clone(), managers.clone(), force) {
        Err(ApplyError::Conflicts(conflicts)) => {
            let allowed = last_applied::fields(root, live, request.api_version);
            let left = |c: &Conflict| !allowed.as_ref().is_some_and(|a| a.has(&c.path));
            let left: Vec<Conflict> = conflicts.0.into_iter().filter(left).collect();
            if !left.is_empty() {
                return Err(ApplyError::Conflicts(Conflicts(left)));
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
    managers: Managers,
    force: bool,
) -> Result<Applied, ApplyError> {
    let mut managers = reconciled(request, managers);
    let fields = request.filter.of(field_set(root, &config));
    let mut own = request.entry(request.manager, Operation::Apply, fields);
    let last = managers.take(&own);
    managers.put(own.clone());
    let merged = merge(root, Some(live), config).unwrap_or_default();
    let object = match &last {
        Some(last) if !last.fields.is_empty() => prune(request.versions, merged, &managers, last, request.api_version),
        _ => merged,
    };
    managers.take(&own);
    settle(&mut Changes::new(request, live, &object), &mut managers, force)?;
    own.fields = own.fields.difference(&STRIPPED);
    // Only what changed something happened at a time.
    if value::equal(live, &object) {
        own.time = last.and_then(|l| l.time);
    }
    if !own.fields.is_empty() {
        managers.put(own);
    }
    Ok(Applied { object, managers })
}

/// Takes from all others what an apply changed; or says which of it is theirs.
fn settle(changes: &mut Changes<'_>, managers: &mut Managers, force: bool) -> Result<(), ApplyError> {
    if !force {
        let mut conflicts: Vec<(&Entry, Vec<Path>)> = Vec::new();
        for entry in managers.entries() {
            let Some(change) = changes.in_version(&entry.api_version) else { continue };
            let taken = entry.fields.intersection(&change.modified.union(&change.added)).paths();
            if !taken.is_empty() {
                conflicts.push((entry, taken));
            }
        }
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(Conflicts::of(conflicts)));
        }
    }
    managers.entries_mut().retain_mut(|entry| {
        let Some(change) = changes.in_version(&entry.api_version) else { return false };
        take(entry, change);
        !entry.fields.is_empty()
    });
    Ok(())
}
