//! Validation of volume sources that Pods and PersistentVolumes share, in the order and with the paths and messages of
//! `validateVolumeSource` and `ValidatePersistentVolumeSpec` (`pkg/apis/core/validation/validation.go`). Nodes of Podium
//! cannot mount most of them.

mod iscsi;
#[cfg(test)]
mod tests;

use super::{FieldErrors, enums, field_cursor::FieldCursor};
use api::volume_source::{PERSISTENT_VOLUME_SOURCES, POD_SOURCES};
use serde_json::{Value, json};

/// Owner of a source, with the name of the volume.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Owner<'a> {
    Pod(&'a str),
    PersistentVolume(&'a str),
}

/// Required fields of sources.
const REQUIRED_FIELDS: [(&str, &[&str]); 19] = [
    ("hostPath", &["path"]),
    ("local", &["path"]),
    ("gitRepo", &["repository"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("nfs", &["server", "path"]),
    ("glusterfs", &["endpoints", "path"]),
    ("rbd", &["monitors", "image"]),
    ("cinder", &["volumeID"]),
    ("cephfs", &["monitors"]),
    ("flexVolume", &["driver"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("storageos", &["volumeName"]),
    ("iscsi", &["targetPortal", "iqn"]),
];

/// Finds the only source of a volume, and reports errors for none and for several. Does not validate its fields.
pub(crate) fn single_source<'v, 'c>(
    volume: &'c FieldCursor<'v, '_>,
    owner: Owner<'_>,
    errors: &mut FieldErrors,
) -> Option<(&'static str, FieldCursor<'v, 'c>)> {
    let known: &'static [&'static str] = match owner {
        Owner::Pod(_) => &POD_SOURCES,
        Owner::PersistentVolume(_) => &PERSISTENT_VOLUME_SOURCES,
    };
    let mut set_sources = known.iter().map(|kind| (*kind, volume.at(kind))).filter(|(_, source)| source.is_set());
    let Some(found) = set_sources.next() else {
        volume.required("must specify a volume type", errors);
        return None;
    };
    for (kind, source) in set_sources {
        let shown = match kind {
            // Upstream's spelling.
            "cephfs" => "cephFS",
            "downwardAPI" => "downwarAPI",
            other => other,
        };
        source.shown_as(shown).forbidden("may not specify more than 1 volume type", errors);
    }
    Some(found)
}

/// Validates a source that Pods and PersistentVolumes share.
pub(crate) fn validate_source<'v>(
    kind: &str,
    source: &FieldCursor<'v, '_>,
    owner: Owner<'_>,
    volume: &FieldCursor<'v, '_>,
    errors: &mut FieldErrors,
) {
    // Upstream's path.
    let source = if kind == "gcePersistentDisk" { &source.shown_as("persistentDisk") } else { source };
    let required = REQUIRED_FIELDS.iter().find(|(known, _)| *known == kind).map_or(&[][..], |(_, fields)| fields);
    require(source, required, errors);
    match kind {
        "hostPath" | "local" if !is_empty(&source.at("path")) => {
            validate_no_backsteps(&source.at("path"), errors);
            if kind == "hostPath" {
                validate_host_path_type(&source.at("type"), errors);
            }
        }
        "gitRepo" => {
            let directory = source.at("directory");
            if directory.text().starts_with('/') {
                directory.invalid("must be a relative path", errors);
            }
            validate_no_backsteps(&directory, errors);
        }
        "gcePersistentDisk" | "awsElasticBlockStore" if !is_unset_or_byte(&source.at("partition")) => {
            source.at("partition").invalid("must be between 1 and 255, inclusive", errors);
        }
        "nfs" if !source.at("path").text().starts_with('/') => {
            let path = source.at("path");
            errors.invalid(&path.path(), &json!(path.text()), "must be an absolute path");
        }
        "iscsi" => iscsi::validate_iscsi(source, owner, volume, errors),
        "glusterfs" => validate_endpoints_namespace(&source.at("endpointsNamespace"), errors),
        "flocker" => validate_flocker(source, errors),
        "quobyte" => validate_quobyte(source, errors),
        "fc" => validate_fibre_channel(source, errors),
        "flexVolume" => validate_options(&source.at("options"), errors),
        "azureFile" if source.at("secretNamespace").value() == "" => {
            source.at("secretNamespace").required("", errors);
        }
        "azureDisk" => validate_azure_disk(source, errors),
        "cinder" => validate_secret_ref(&source.at("secretRef"), owner, errors),
        "storageos" => {
            for name in [source.at("volumeName"), source.at("volumeNamespace")] {
                if !is_empty(&name) {
                    name.validate_text(api::names::dns1123_label, errors);
                }
            }
            validate_secret_ref(&source.at("secretRef"), owner, errors);
        }
        _ => {}
    }
}

fn require(parent: &FieldCursor<'_, '_>, fields: &[&str], errors: &mut FieldErrors) {
    for name in fields {
        let field = parent.at(name);
        if is_empty(&field) {
            field.required("", errors);
        }
    }
}

fn is_empty(field: &FieldCursor<'_, '_>) -> bool {
    match field.value() {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        other => other.is_null(),
    }
}

fn is_unset_or_byte(number: &FieldCursor<'_, '_>) -> bool {
    number.integer().is_none_or(|number| (0..=255).contains(&number))
}

fn validate_no_backsteps(directory: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if directory.text().split('/').any(|part| part == "..") {
        directory.invalid("must not contain '..'", errors);
    }
}

fn validate_host_path_type(kind: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    kind.supported(enums::HOST_PATH_TYPES, errors);
}

/// Validates a reference to a Secret, which has a namespace for PersistentVolumes.
fn validate_secret_ref(reference: &FieldCursor<'_, '_>, owner: Owner<'_>, errors: &mut FieldErrors) {
    let required: &[&str] = match owner {
        _ if reference.is_null() => &[],
        Owner::Pod(_) => &["name"],
        Owner::PersistentVolume(_) => &["name", "namespace"],
    };
    require(reference, required, errors);
}

fn validate_endpoints_namespace(namespace: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if namespace.value() == "" {
        namespace.invalid("if the endpointnamespace is set, it must be a valid namespace name", errors);
    } else if namespace.is_set() {
        namespace.validate_text(api::names::dns1123_label, errors);
    }
}

fn validate_flocker(source: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let name = source.at("datasetName");
    match (is_empty(&name), is_empty(&source.at("datasetUUID"))) {
        (true, true) => source.required("one of datasetName and datasetUUID is required", errors),
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            // Upstream's value.
            errors.invalid(&source.path(), &json!("resource"), detail);
        }
        _ => {}
    }
    if name.text().contains('/') {
        name.invalid("must not contain '/'", errors);
    }
}

fn validate_quobyte(source: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    const MAX_TENANT_LENGTH: usize = 64;
    let (registry, tenant) = (source.at("registry"), source.at("tenant"));
    if registry.text().is_empty() {
        registry.required(PAIRS, errors);
    } else if tenant.text().len() > MAX_TENANT_LENGTH {
        tenant.required("must be a UUID and may not exceed a length of 64 characters", errors);
    } else {
        for _ in registry.text().split(',').filter(|pair| !is_host_and_port(pair)) {
            registry.invalid(PAIRS, errors);
        }
    }
    require(source, &["volume"], errors);
}

/// Whether Go's `net.SplitHostPort` accepts a pair.
fn is_host_and_port(pair: &str) -> bool {
    let brackets = ['[', ']'];
    match pair.strip_prefix('[') {
        Some(rest) => rest.split_once(']').is_some_and(|(host, port)| {
            port.strip_prefix(':').is_some_and(|port| !port.contains(':'))
                && !host.contains('[')
                && !port.contains(brackets)
        }),
        None => pair.split_once(':').is_some_and(|(_, port)| !port.contains(':')) && !pair.contains(brackets),
    }
}

fn validate_fibre_channel(source: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (targets, ids, lun) = (source.at("targetWWNs"), source.at("wwids"), source.at("lun"));
    let (has_targets, has_ids) = (!is_empty(&targets), !is_empty(&ids));
    if !has_targets && !has_ids {
        targets.required("must specify either targetWWNs or wwids, but not both", errors);
    }
    if has_targets && has_ids {
        targets.invalid("targetWWNs and wwids can not be specified simultaneously", errors);
    }
    if has_targets && lun.is_null() {
        lun.required("lun is required if targetWWNs is specified", errors);
    } else if has_targets && !is_unset_or_byte(&lun) {
        lun.invalid("must be between 0 and 255, inclusive", errors);
    }
}

/// Rejects options in the namespaces of Kubernetes.
fn validate_options(options: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for (key, option) in options.entries() {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace).to_lowercase();
        let is_within =
            |domain: &str| namespace.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        if is_within("kubernetes.io") || is_within("k8s.io") {
            errors.invalid(&option.path(), &json!(key), "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn validate_azure_disk(source: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (caching, kind, uri) = (source.at("cachingMode"), source.at("kind"), source.at("diskURI"));
    if caching.is_set() {
        caching.supported(enums::AZURE_DISK_CACHING_MODES, errors);
    }
    if kind.is_null() {
        return;
    }
    kind.supported(enums::AZURE_DISK_KINDS, errors);
    let (prefix, form) = if kind.text() == "Managed" {
        let form = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
        ("/subscriptions/", form)
    } else {
        ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
    };
    if !uri.text().starts_with(prefix) {
        errors.not_supported(&uri.path(), &json!(uri.text()), &[form]);
    }
}
