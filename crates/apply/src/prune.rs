//! What goes because nobody wants it any more.

use crate::{
    field_set::field_set,
    managers::{Entry, Managers},
    ownership::Versions,
    reconcile::with_named_fields,
    remove::remove,
    schema::TypeRef,
    set::Set,
};
use serde_json::Value;

/// Takes out of a merged object what its manager applied the last time, and nobody owns any more.
pub(crate) fn prune(versions: &dyn Versions, merged: Value, managers: &Managers, last: &Entry, now: &str) -> Value {
    let version = last.api_version.as_str();
    // What cannot be found again stays: better too much than too little.
    if is_all_owned(managers, last) || !versions.is_faithful(now, version) {
        return merged;
    }
    let Some((of, merged_then)) = typed(versions, &merged, now, version) else { return merged };
    let last = with_named_fields(of, &last.fields);
    let pruned = remove(of, &merged_then, &last).unwrap_or_default();
    let pruned = add_back_owned(versions, &merged_then, pruned, version, managers);
    let pruned = add_back_dangling(of, &merged_then, &pruned, &last);
    versions.convert(&pruned, version, now).unwrap_or(merged)
}

/// Whether all that was applied the last time still has an owner, as it mostly has: nothing goes then.
fn is_all_owned(managers: &Managers, last: &Entry) -> bool {
    let same = managers.entries().iter().filter(|e| e.api_version == last.api_version);
    last.fields.difference(&Set::union_all(same.map(|entry| entry.fields.clone()))).is_empty()
}

/// An object in another version, with its type there.
fn typed<'a>(versions: &'a dyn Versions, object: &Value, from: &str, to: &str) -> Option<(TypeRef<'a>, Value)> {
    Some((versions.root(to)?, versions.convert(object, from, to)?))
}

/// What went with something above it, and has an owner, comes back.
fn add_back_owned(versions: &dyn Versions, merged: &Value, pruned: Value, version: &str, managers: &Managers) -> Value {
    let mut owned: Vec<(&str, Vec<Set>)> = vec![(version, Vec::new())];
    for entry in managers.entries() {
        match owned.iter_mut().find(|(v, _)| *v == entry.api_version) {
            Some((_, sets)) => sets.push(entry.fields.clone()),
            None => owned.push((&entry.api_version, vec![entry.fields.clone()])),
        }
    }
    let mut pruned = pruned;
    for (of_version, owned) in owned {
        let owned = Set::union_all(owned);
        let (Some((of, merged)), Some((_, now))) =
            (typed(versions, merged, version, of_version), typed(versions, &pruned, version, of_version))
        else {
            continue;
        };
        let all = with_named_fields(of, &field_set(of, &merged));
        let kept = with_named_fields(of, &field_set(of, &now)).union(&with_named_fields(of, &owned));
        let back = remove(of, &merged, &all.difference(&kept)).unwrap_or_default();
        pruned = versions.convert(&back, of_version, version).unwrap_or(pruned);
    }
    pruned
}

/// What went, though the manager never applied it, comes back: it has no owner.
fn add_back_dangling(of: TypeRef<'_>, merged: &Value, pruned: &Value, last: &Set) -> Value {
    let left = with_named_fields(of, &field_set(of, pruned));
    let all = with_named_fields(of, &field_set(of, merged));
    remove(of, merged, &all.difference(&left).intersection(last)).unwrap_or_default()
}
