//! Pruning of fields that a manager no longer applies (`Updater.prune`).

use crate::{
    field_set::field_set,
    managed_fields::{ManagedFields, ManagedFieldsEntry},
    reconcile_field_set::with_named_fields,
    remove::remove,
    schema::TypeRef,
    set::Set,
    updater::Converter,
};
use serde_json::Value;

/// Removes fields from a merged object that its manager applied before and no manager owns anymore.
pub(crate) fn prune(
    versions: &dyn Converter,
    merged: Value,
    managers: &ManagedFields,
    last: &ManagedFieldsEntry,
    current_version: &str,
) -> Value {
    let version = last.api_version.as_str();
    // Fields that cannot be mapped between the versions are kept, to lose no data.
    if is_all_owned(managers, last) || !versions.is_faithful(current_version, version) {
        return merged;
    }
    let Some((type_ref, merged_in_version)) = convert_typed(versions, &merged, current_version, version) else {
        return merged;
    };
    let last = with_named_fields(type_ref, &last.fields);
    let pruned = remove(type_ref, &merged_in_version, &last).unwrap_or_default();
    let pruned = add_back_owned_items(versions, &merged_in_version, pruned, version, managers);
    let pruned = add_back_dangling_items(type_ref, &merged_in_version, &pruned, &last);
    versions.convert(&pruned, version, current_version).unwrap_or(merged)
}

/// Returns whether all fields of the last apply still have an owner. Then nothing is pruned.
fn is_all_owned(managers: &ManagedFields, last: &ManagedFieldsEntry) -> bool {
    let same = managers.entries().iter().filter(|e| e.api_version == last.api_version);
    last.fields.difference(&Set::union_all(same.map(|entry| entry.fields.clone()))).is_empty()
}

/// Converts an object to another version and returns it with its type.
fn convert_typed<'a>(
    versions: &'a dyn Converter,
    object: &Value,
    from: &str,
    to: &str,
) -> Option<(TypeRef<'a>, Value)> {
    Some((versions.root(to)?, versions.convert(object, from, to)?))
}

/// Adds pruned fields back that another manager owns (`addBackOwnedItems`).
fn add_back_owned_items(
    versions: &dyn Converter,
    merged: &Value,
    pruned: Value,
    version: &str,
    managers: &ManagedFields,
) -> Value {
    let mut owned: Vec<(&str, Vec<Set>)> = vec![(version, Vec::new())];
    for entry in managers.entries() {
        match owned.iter_mut().find(|(v, _)| *v == entry.api_version) {
            Some((_, sets)) => sets.push(entry.fields.clone()),
            None => owned.push((&entry.api_version, vec![entry.fields.clone()])),
        }
    }
    let mut pruned = pruned;
    for (owner_version, owned) in owned {
        let owned = Set::union_all(owned);
        let (Some((type_ref, merged)), Some((_, pruned_in_version))) = (
            convert_typed(versions, merged, version, owner_version),
            convert_typed(versions, &pruned, version, owner_version),
        ) else {
            continue;
        };
        let all = with_named_fields(type_ref, &field_set(type_ref, &merged));
        let retained = with_named_fields(type_ref, &field_set(type_ref, &pruned_in_version))
            .union(&with_named_fields(type_ref, &owned));
        let restored = remove(type_ref, &merged, &all.difference(&retained)).unwrap_or_default();
        pruned = versions.convert(&restored, owner_version, version).unwrap_or(pruned);
    }
    pruned
}

/// Adds pruned fields back that the manager did not apply before (`addBackDanglingItems`).
fn add_back_dangling_items(type_ref: TypeRef<'_>, merged: &Value, pruned: &Value, last: &Set) -> Value {
    let remaining = with_named_fields(type_ref, &field_set(type_ref, pruned));
    let all = with_named_fields(type_ref, &field_set(type_ref, merged));
    remove(type_ref, merged, &all.difference(&remaining).intersection(last)).unwrap_or_default()
}
