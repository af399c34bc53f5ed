//! Validation of volumes (`ValidateVolumes`).

mod external;
mod projected;

use super::{container, validate_descending_path};
use crate::{
    FieldErrors,
    field_cursor::FieldCursor,
    volume_source::{self, Owner},
};
use api::quantity::Amount;
use std::collections::{BTreeMap, HashSet};

/// Valid volumes of a Pod: type by name.
pub(super) type Volumes<'v> = BTreeMap<&'v str, &'static str>;

/// Fields that a `downwardAPI` volume can reference.
const DOWNWARD_API_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const FILE_MODE_MESSAGE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

pub(super) fn validate_volumes<'v>(volumes: &FieldCursor<'v, '_>, errors: &mut FieldErrors) -> Volumes<'v> {
    let mut names = Volumes::new();
    for volume in volumes.items() {
        let (name, before) = (volume.at("name"), errors.0.len());
        let kind = validate_source(&volume, errors);
        name.validate_required_text(api::names::dns1123_label, errors);
        if names.contains_key(name.text()) {
            name.duplicate(errors);
        }
        // Like upstream, an invalid volume counts as missing for duplicate names and for mounts.
        if errors.0.len() == before {
            names.insert(name.text(), kind);
        }
    }
    names
}

/// Validates the names of the claims of ephemeral volumes: they must be valid, and no other volume may reference them.
/// Skipped for templates, whose Pod name is unknown.
pub(super) fn validate_ephemeral_claim_names(pod: &str, volumes: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if pod.is_empty() {
        return;
    }
    let claim_name = |volume: &FieldCursor<'_, '_>| {
        let name = volume.at("name").text();
        let is_named = volume.at("ephemeral").is_set() && !name.is_empty();
        is_named.then(|| api::persistent_volume_claim::ephemeral_claim_name(pod, name))
    };
    let ephemeral_claims: HashSet<String> = volumes.items().filter_map(|volume| claim_name(&volume)).collect();
    for volume in volumes.items() {
        if let Some(claim) = claim_name(&volume) {
            for detail in api::names::dns1123_subdomain(&claim) {
                volume.at("name").invalid(&format!("PVC name {claim:?}: {detail}"), errors);
            }
        }
        let source = volume.at("persistentVolumeClaim");
        let name = source.at("claimName");
        if ephemeral_claims.contains(name.text()) {
            name.invalid("must not reference a PVC that gets created for an ephemeral volume", errors);
        }
    }
}

/// Validates the source of a volume. Returns its type.
fn validate_source(volume: &FieldCursor<'_, '_>, errors: &mut FieldErrors) -> &'static str {
    let owner = Owner::Pod(volume.at("name").text());
    let Some((kind, source)) = volume_source::single_source(volume, owner, errors) else { return "" };
    volume_source::validate_source(kind, &source, owner, volume, errors);
    match kind {
        "emptyDir" => {
            let limit = source.at("sizeLimit");
            if Amount::parse(limit.text()).is_ok_and(Amount::is_negative) {
                limit.forbidden("SizeLimit field must be a valid resource quantity", errors);
            }
        }
        "secret" => validate_files(&source, "secretName", errors),
        "configMap" => validate_files(&source, "name", errors),
        "downwardAPI" => {
            validate_mode(&source.at("defaultMode"), errors);
            validate_downward_api(&source, errors);
        }
        "persistentVolumeClaim" if source.at("claimName").text().is_empty() => {
            source.at("claimName").required("", errors);
        }
        "projected" => projected::validate_projected(&source, errors),
        "csi" => external::validate_csi(&source, errors),
        "ephemeral" => external::validate_ephemeral(&source, errors),
        "image" => external::validate_image(&source, errors),
        _ => {}
    }
    kind
}

fn validate_mode(mode: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if mode.integer().is_some_and(|m| !(0..=0o777).contains(&m)) {
        mode.invalid(FILE_MODE_MESSAGE, errors);
    }
}

fn validate_files(source: &FieldCursor<'_, '_>, name: &str, errors: &mut FieldErrors) {
    if source.at(name).text().is_empty() {
        source.at(name).required("", errors);
    }
    validate_mode(&source.at("defaultMode"), errors);
    validate_key_paths(&source.at("items"), errors);
}

fn validate_key_paths(items: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for item in items.items() {
        if item.at("key").text().is_empty() {
            item.at("key").required("", errors);
        }
        validate_file_path(&item.at("path"), errors);
        validate_mode(&item.at("mode"), errors);
    }
}

/// Validates a path in a volume (`validateLocalNonReservedPath`).
pub(super) fn validate_file_path(path: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if path.text().is_empty() {
        return path.required("", errors);
    }
    validate_descending_path(path, errors);
    if path.text().starts_with("..") && !path.text().starts_with("../") {
        path.invalid("must not start with '..'", errors);
    }
}

fn validate_downward_api(source: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for item in source.at("items").items() {
        // Upstream's path lacks the items.
        let item = source.with_value(item.value());
        validate_file_path(&item.at("path"), errors);
        let (field, resource) = (item.at("fieldRef"), item.at("resourceFieldRef"));
        match (field.is_set(), resource.is_set()) {
            (true, true) => {
                item.invalid("fieldRef and resourceFieldRef can not be specified simultaneously", errors);
            }
            (true, false) => container::validate_field_ref(&field, &DOWNWARD_API_FIELDS, errors),
            (false, true) => {
                if resource.at("containerName").text().is_empty() {
                    resource.at("containerName").required("", errors);
                } else {
                    container::validate_resource_field_ref(&resource, errors);
                }
            }
            (false, false) => item.required("one of fieldRef and resourceFieldRef is required", errors),
        }
        validate_mode(&item.at("mode"), errors);
    }
}
