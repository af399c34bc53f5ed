//! Validation of volume sources that Pods and PersistentVolumes share, in the order and with the paths and messages of
//! `validateVolumeSource` and `ValidatePersistentVolumeSpec` (`pkg/apis/core/validation/validation.go`). Nodes of Podium
//! cannot mount most of them.

mod iscsi;
#[cfg(test)]
mod tests;

use super::{
    FieldErrors, FieldPath, enums,
    field_validation::{text, validate_dns_label},
};
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
pub(crate) fn single_source<'a>(
    volume: &'a Value,
    owner: Owner<'_>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) -> Option<(&'static str, &'a Value)> {
    let known: &'static [&'static str] = match owner {
        Owner::Pod(_) => &POD_SOURCES,
        Owner::PersistentVolume(_) => &PERSISTENT_VOLUME_SOURCES,
    };
    let mut set_sources = known.iter().filter(|kind| !volume[**kind].is_null());
    let Some(kind) = set_sources.next() else {
        errors.required(path, "must specify a volume type");
        return None;
    };
    for other in set_sources {
        let named = match *other {
            // Upstream's spelling.
            "cephfs" => "cephFS",
            "downwardAPI" => "downwarAPI",
            other => other,
        };
        errors.forbidden(&path.child(named), "may not specify more than 1 volume type");
    }
    Some((kind, &volume[*kind]))
}

/// Validates a source that Pods and PersistentVolumes share.
pub(crate) fn validate_source(kind: &str, source: &Value, owner: Owner<'_>, at: &FieldPath, errors: &mut FieldErrors) {
    // Upstream's path.
    let path = at.child(if kind == "gcePersistentDisk" { "persistentDisk" } else { kind });
    let required = REQUIRED_FIELDS.iter().find(|(known, _)| *known == kind).map_or(&[][..], |(_, fields)| fields);
    for field in required.iter().filter(|field| is_empty(&source[**field])) {
        errors.required(&path.child(field), "");
    }
    match kind {
        "hostPath" | "local" if !is_empty(&source["path"]) => {
            validate_no_backsteps(&source["path"], &path.child("path"), errors);
            if kind == "hostPath" {
                validate_host_path_type(&source["type"], &path.child("type"), errors);
            }
        }
        "gitRepo" => {
            let at = path.child("directory");
            if text(source, "directory").starts_with('/') {
                errors.invalid(&at, &source["directory"], "must be a relative path");
            }
            validate_no_backsteps(&source["directory"], &at, errors);
        }
        "gcePersistentDisk" | "awsElasticBlockStore" if !is_unset_or_byte(&source["partition"]) => {
            errors.invalid(&path.child("partition"), &source["partition"], "must be between 1 and 255, inclusive");
        }
        "nfs" if !text(source, "path").starts_with('/') => {
            errors.invalid(&path.child("path"), &json!(text(source, "path")), "must be an absolute path");
        }
        "iscsi" => iscsi::validate_iscsi(source, owner, at, errors),
        "glusterfs" => {
            validate_endpoints_namespace(&source["endpointsNamespace"], &path.child("endpointsNamespace"), errors);
        }
        "flocker" => validate_flocker(source, &path, errors),
        "quobyte" => validate_quobyte(source, &path, errors),
        "fc" => validate_fibre_channel(source, &path, errors),
        "flexVolume" => validate_options(source, &path.child("options"), errors),
        "azureFile" if source["secretNamespace"] == "" => errors.required(&path.child("secretNamespace"), ""),
        "azureDisk" => validate_azure_disk(source, &path, errors),
        "cinder" => validate_secret_ref(&source["secretRef"], owner, &path, errors),
        "storageos" => {
            for field in ["volumeName", "volumeNamespace"].into_iter().filter(|field| !is_empty(&source[*field])) {
                validate_dns_label(&source[field], &path.child(field), errors);
            }
            validate_secret_ref(&source["secretRef"], owner, &path, errors);
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        other => other.is_null(),
    }
}

fn is_unset_or_byte(number: &Value) -> bool {
    number.as_i64().is_none_or(|number| (0..=255).contains(&number))
}

fn validate_no_backsteps(directory: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if directory.as_str().is_some_and(|directory| directory.split('/').any(|part| part == "..")) {
        errors.invalid(path, directory, "must not contain '..'");
    }
}

fn validate_host_path_type(kind: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if kind.as_str().is_some_and(|kind| !enums::HOST_PATH_TYPES.contains(&kind)) {
        errors.not_supported(path, kind, enums::HOST_PATH_TYPES);
    }
}

/// Validates a reference to a Secret, which has a namespace for PersistentVolumes.
fn validate_secret_ref(reference: &Value, owner: Owner<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let required: &[&str] = match owner {
        _ if reference.is_null() => &[],
        Owner::Pod(_) => &["name"],
        Owner::PersistentVolume(_) => &["name", "namespace"],
    };
    for field in required.iter().filter(|field| is_empty(&reference[**field])) {
        errors.required(&path.child("secretRef").child(field), "");
    }
}

fn validate_endpoints_namespace(namespace: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if namespace == "" {
        errors.invalid(path, namespace, "if the endpointnamespace is set, it must be a valid namespace name");
    } else if !namespace.is_null() {
        validate_dns_label(namespace, path, errors);
    }
}

fn validate_flocker(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match (is_empty(&source["datasetName"]), is_empty(&source["datasetUUID"])) {
        (true, true) => errors.required(path, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            // Upstream's value.
            errors.invalid(path, &json!("resource"), "datasetName and datasetUUID can not be specified simultaneously");
        }
        _ => {}
    }
    if text(source, "datasetName").contains('/') {
        errors.invalid(&path.child("datasetName"), &source["datasetName"], "must not contain '/'");
    }
}

fn validate_quobyte(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    const MAX_TENANT_LENGTH: usize = 64;
    let (at, registry) = (path.child("registry"), text(source, "registry"));
    if registry.is_empty() {
        errors.required(&at, PAIRS);
    } else if text(source, "tenant").len() > MAX_TENANT_LENGTH {
        errors.required(&path.child("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for _ in registry.split(',').filter(|pair| !is_host_and_port(pair)) {
            errors.invalid(&at, &source["registry"], PAIRS);
        }
    }
    if is_empty(&source["volume"]) {
        errors.required(&path.child("volume"), "");
    }
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

fn validate_fibre_channel(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (at, lun) = (path.child("targetWWNs"), path.child("lun"));
    let (targets, ids) = (!is_empty(&source["targetWWNs"]), !is_empty(&source["wwids"]));
    if !targets && !ids {
        errors.required(&at, "must specify either targetWWNs or wwids, but not both");
    }
    if targets && ids {
        errors.invalid(&at, &source["targetWWNs"], "targetWWNs and wwids can not be specified simultaneously");
    }
    if targets && source["lun"].is_null() {
        errors.required(&lun, "lun is required if targetWWNs is specified");
    } else if targets && !is_unset_or_byte(&source["lun"]) {
        errors.invalid(&lun, &source["lun"], "must be between 0 and 255, inclusive");
    }
}

/// Rejects options in the namespaces of Kubernetes.
fn validate_options(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for key in source["options"].as_object().into_iter().flatten().map(|(key, _)| key) {
        let namespace = key.split_once('/').map_or(key.as_str(), |(namespace, _)| namespace).to_lowercase();
        let is_within =
            |domain: &str| namespace.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        if is_within("kubernetes.io") || is_within("k8s.io") {
            errors.invalid(&path.key(key), &json!(key), "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn validate_azure_disk(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let known = [("cachingMode", enums::AZURE_DISK_CACHING_MODES), ("kind", enums::AZURE_DISK_KINDS)];
    for (field, values) in known {
        if source[field].as_str().is_some_and(|value| !values.contains(&value)) {
            errors.not_supported(&path.child(field), &source[field], values);
        }
    }
    let Some(kind) = source["kind"].as_str() else { return };
    let (prefix, form) = if kind == "Managed" {
        let form = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
        ("/subscriptions/", form)
    } else {
        ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
    };
    if !text(source, "diskURI").starts_with(prefix) {
        errors.not_supported(&path.child("diskURI"), &json!(text(source, "diskURI")), &[form]);
    }
}
