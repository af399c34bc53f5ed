//! Volumes of plugins that are no more, and files of a volume that are in each other's way.

use super::{MAX_COMPARISONS, bytes};
use crate::kinds::{
    FieldPath,
    checks::{items, text},
};
use serde_json::Value;

const GONE: [(&str, &str); 9] = [
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

/// Warns of plugins that are no more, in a volume of a Pod or a PersistentVolume's spec.
pub(in crate::kinds) fn gone(volume: &Value, path: &FieldPath, all: &mut Vec<String>) {
    for (plugin, why) in GONE.into_iter().filter(|(plugin, _)| !volume[plugin].is_null()) {
        // Upstream writes this one as its type is called.
        let shown = if plugin == "storageos" { "storageOS" } else { plugin };
        all.push(format!("{}: {why}", path.child(shown)));
    }
}

/// What is odd in what a claim asks for.
pub(in crate::kinds) fn claim(spec: &Value, path: &FieldPath, all: &mut Vec<String>) {
    for side in ["requests", "limits"] {
        bytes(&spec["resources"][side], &["storage"], &path.child("resources").child(side), all);
    }
}

pub(super) fn volumes(spec: &Value, path: &FieldPath, all: &mut Vec<String>) {
    for (i, volume) in items(spec, "volumes").enumerate() {
        let at = path.child("volumes").index(i);
        gone(volume, &at, all);
        let template = at.child("ephemeral").child("volumeClaimTemplate");
        claim(&volume["ephemeral"]["volumeClaimTemplate"]["spec"], &template.child("spec"), all);
    }
    items(spec, "volumes").for_each(|volume| overlaps(volume, all));
}

/// A file of a volume, and what it is made of.
struct File {
    path: String,
    /// ` (Secret "name")`, where sources are told.
    source: String,
}

fn overlaps(volume: &Value, all: &mut Vec<String>) {
    let name = text(volume, "name");
    for (field, kind, named) in [("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")] {
        let (source, of) = (&volume[field], text(&volume[field], named));
        let files = paths(source).map(|path| File { path, source: String::new() });
        clashes(files, &format!("volume {name:?} ({kind} {of:?})"), all);
    }
    let files = paths(&volume["downwardAPI"]).map(|path| File { path, source: String::new() });
    clashes(files, &format!("volume {name:?} (DownwardAPI)"), all);
    let sources = || items(&volume["projected"], "sources");
    for _ in sources().filter(|source| source.as_object().is_none_or(|s| s.values().all(Value::is_null))) {
        all.push(format!("volume {name:?} (Projected) has no sources provided"));
    }
    clashes(sources().flat_map(projected), &format!("volume {name:?} (Projected)"), all);
}

/// The files of one source of a projected volume.
fn projected(source: &Value) -> Vec<File> {
    let of =
        |kind: &str, name: &str| if name.is_empty() { format!(" ({kind})") } else { format!(" ({kind} {name:?})") };
    let file = |path: String, source: String| File { path, source };
    let mut files = Vec::new();
    for (field, kind) in [("configMap", "ConfigMap"), ("secret", "Secret"), ("downwardAPI", "DownwardAPI")] {
        let shown = of(kind, text(&source[field], "name"));
        files.extend(paths(&source[field]).map(|path| file(path, shown.clone())));
    }
    let (token, bundle) = (&source["serviceAccountToken"], &source["clusterTrustBundle"]);
    files.extend(path(token).map(|path| file(path, of("ServiceAccountToken", ""))));
    let named = if text(bundle, "name").is_empty() { "signerName" } else { "name" };
    files.extend(path(bundle).map(|path| file(path, of("ClusterTrustBundle", text(bundle, named)))));
    for (field, what) in [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ] {
        let path = text(&source["podCertificate"], field).trim_end_matches('/');
        files.extend((!path.is_empty()).then(|| file(path.to_owned(), of(what, ""))));
    }
    files
}

fn paths(source: &Value) -> impl Iterator<Item = String> {
    items(source, "items").filter_map(path)
}

fn path(of: &Value) -> Option<String> {
    Some(text(of, "path").trim_end_matches('/').to_owned()).filter(|path| !path.is_empty())
}

/// Warns of each file that lies where an earlier one does, above it or below.
fn clashes(files: impl Iterator<Item = File>, what: &str, all: &mut Vec<String>) {
    let lies_in = |path: &str, directory: &str| path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
    let (mut before, mut comparisons): (Vec<File>, usize) = (Vec::new(), 0);
    for file in files {
        comparisons += before.len();
        if comparisons > MAX_COMPARISONS {
            return;
        }
        let clash = |earlier: &&File| {
            let (one, other) = (&file.path, &earlier.path);
            one == other || lies_in(one, other) || lies_in(other, one)
        };
        for earlier in before.iter().filter(clash) {
            let (one, other) = ((&file.path, &file.source), (&earlier.path, &earlier.source));
            all.push(format!("{what}: overlapping paths: {:?}{} with {:?}{}", one.0, one.1, other.0, other.1));
        }
        before.push(file);
    }
}
