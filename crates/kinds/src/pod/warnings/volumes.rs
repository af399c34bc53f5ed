//! Warnings for removed volume plugins and overlapping paths in volumes.

use super::{MAX_COMPARISONS, warn_fractional_bytes};
use crate::{
    FieldPath,
    field_validation::{items, text},
};
use serde_json::Value;

const REMOVED_PLUGINS: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Warns of deprecated and removed plugins in a Pod's volume or a PersistentVolume's spec.
pub(crate) fn warn_removed_plugins(volume: &Value, path: &FieldPath, warnings: &mut Vec<String>) {
    for (plugin, detail) in REMOVED_PLUGINS.into_iter().filter(|(plugin, _)| !volume[plugin].is_null()) {
        // Upstream spells this field like its type.
        let shown = if plugin == "storageos" { "storageOS" } else { plugin };
        warnings.push(format!("{}: {detail}", path.child(shown)));
    }
}

/// Warns of fractional bytes in a claim's resources.
pub(crate) fn warn_claim(spec: &Value, path: &FieldPath, warnings: &mut Vec<String>) {
    for side in ["requests", "limits"] {
        warn_fractional_bytes(&spec["resources"][side], &["storage"], &path.child("resources").child(side), warnings);
    }
}

pub(super) fn warn_volumes(spec: &Value, path: &FieldPath, warnings: &mut Vec<String>) {
    for (i, volume) in items(spec, "volumes").enumerate() {
        let at = path.child("volumes").index(i);
        warn_removed_plugins(volume, &at, warnings);
        let template = at.child("ephemeral").child("volumeClaimTemplate");
        warn_claim(&volume["ephemeral"]["volumeClaimTemplate"]["spec"], &template.child("spec"), warnings);
    }
    items(spec, "volumes").for_each(|volume| warn_overlapping_paths(volume, warnings));
}

/// A path in a volume with its source.
struct File {
    path: String,
    /// For example ` (Secret "name")`; empty where warnings do not name the source.
    source: String,
}

fn warn_overlapping_paths(volume: &Value, warnings: &mut Vec<String>) {
    let name = text(volume, "name");
    for (field, kind, named) in [("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")] {
        let (source, source_name) = (&volume[field], text(&volume[field], named));
        let files = item_paths(source).map(|path| File { path, source: String::new() });
        warn_file_conflicts(files, &format!("volume {name:?} ({kind} {source_name:?})"), warnings);
    }
    let files = item_paths(&volume["downwardAPI"]).map(|path| File { path, source: String::new() });
    warn_file_conflicts(files, &format!("volume {name:?} (DownwardAPI)"), warnings);
    let sources = || items(&volume["projected"], "sources");
    for _ in sources().filter(|source| source.as_object().is_none_or(|s| s.values().all(Value::is_null))) {
        warnings.push(format!("volume {name:?} (Projected) has no sources provided"));
    }
    warn_file_conflicts(sources().flat_map(projected_files), &format!("volume {name:?} (Projected)"), warnings);
}

/// Returns the files of a source of a projected volume.
fn projected_files(source: &Value) -> Vec<File> {
    let described =
        |kind: &str, name: &str| if name.is_empty() { format!(" ({kind})") } else { format!(" ({kind} {name:?})") };
    let file = |path: String, source: String| File { path, source };
    let mut files = Vec::new();
    for (field, kind) in [("configMap", "ConfigMap"), ("secret", "Secret"), ("downwardAPI", "DownwardAPI")] {
        let shown = described(kind, text(&source[field], "name"));
        files.extend(item_paths(&source[field]).map(|path| file(path, shown.clone())));
    }
    let (token, bundle) = (&source["serviceAccountToken"], &source["clusterTrustBundle"]);
    files.extend(trimmed_path(token).map(|path| file(path, described("ServiceAccountToken", ""))));
    let named = if text(bundle, "name").is_empty() { "signerName" } else { "name" };
    files.extend(trimmed_path(bundle).map(|path| file(path, described("ClusterTrustBundle", text(bundle, named)))));
    for (field, description) in [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ] {
        let path = text(&source["podCertificate"], field).trim_end_matches('/');
        files.extend((!path.is_empty()).then(|| file(path.to_owned(), described(description, ""))));
    }
    files
}

fn item_paths(source: &Value) -> impl Iterator<Item = String> {
    items(source, "items").filter_map(trimmed_path)
}

fn trimmed_path(object: &Value) -> Option<String> {
    Some(text(object, "path").trim_end_matches('/').to_owned()).filter(|path| !path.is_empty())
}

/// Warns of each file whose path equals, contains or is contained in that of an earlier one.
fn warn_file_conflicts(files: impl Iterator<Item = File>, volume_type: &str, warnings: &mut Vec<String>) {
    let is_inside =
        |path: &str, directory: &str| path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
    let (mut before, mut comparisons): (Vec<File>, usize) = (Vec::new(), 0);
    for file in files {
        comparisons += before.len();
        if comparisons > MAX_COMPARISONS {
            return;
        }
        let conflicts = |earlier: &&File| {
            let (one, other) = (&file.path, &earlier.path);
            one == other || is_inside(one, other) || is_inside(other, one)
        };
        for earlier in before.iter().filter(conflicts) {
            let (one, other) = ((&file.path, &file.source), (&earlier.path, &earlier.source));
            warnings
                .push(format!("{volume_type}: overlapping paths: {:?}{} with {:?}{}", one.0, one.1, other.0, other.1));
        }
        before.push(file);
    }
}
