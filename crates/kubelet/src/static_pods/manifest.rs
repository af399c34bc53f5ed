//! Static Pod manifests: files of a directory with one Pod each, in YAML or JSON (upstream's `pkg/kubelet/config`).

use crate::Shared;
use api::{
    feature_gates::{FeatureGates, Gate},
    static_pod::{self, CONFIG_HASH, CONFIG_SEEN, CONFIG_SOURCE, FILE},
};
use data_encoding::HEXLOWER;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Applies the API server's defaults and validation to a Pod.
pub type PodDefaulter = fn(&mut Value, &FeatureGates) -> Result<(), Box<dyn Error + Send + Sync>>;

/// Invalid manifest, with upstream's message where it has one.
#[derive(Debug, thiserror::Error)]
enum ManifestError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error("couldn't parse as pod: {0}")]
    Syntax(#[source] Box<serde_saphyr::Error>),
    #[error("couldn't parse as pod: it is of kind {kind} and version {api_version}")]
    Kind { kind: Value, api_version: Value },
    #[error("invalid pod: name is needed for the pod")]
    NoName,
    /// Rejected by [`PodDefaulter`].
    #[error("invalid pod: {0}")]
    Invalid(#[source] Box<dyn Error + Send + Sync>),
    #[error("couldn't parse as pod: {0}")]
    Decode(#[source] serde_json::Error),
    #[error("error checking pod for API references: {0}")]
    CheckReferences(#[source] Box<dyn Error + Send + Sync>),
    #[error("static pods may not reference {0}")]
    ApiReference(&'static str),
    #[error("another manifest has a Pod {0}")]
    DuplicateName(String),
}

/// Rules to convert a manifest into a Pod of this node.
pub(crate) struct Rules {
    node: String,
    gates: FeatureGates,
    check: PodDefaulter,
    now: Timestamp,
    /// UIDs of the existing static Pods.
    existing: BTreeSet<String>,
}

impl Rules {
    pub(crate) fn of(shared: &Shared) -> Self {
        let options = &shared.options;
        let (node, gates) = (options.node_name.clone(), options.policy.gates.clone());
        let all = shared.pods.all().into_iter().map(|handle| handle.state.borrow().clone());
        let existing = all.filter(|pod| static_pod::is_static(pod.object())).map(|pod| pod.uid().to_owned()).collect();
        Self { node, gates, check: options.pod_rules, now: shared.now(), existing }
    }
}

/// Results of the last read of the files.
#[derive(Default)]
pub(super) struct Manifests {
    good: BTreeMap<PathBuf, Arc<ApiPod>>,
    /// Last logged error of each invalid file, which is logged once.
    logged_errors: BTreeMap<PathBuf, String>,
}

impl Manifests {
    /// Reads the Pods of a directory or file. A missing directory has none. An invalid file is logged, and its last
    /// valid Pod
    /// is kept.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(super) fn read(&mut self, path: &Path, rules: &Rules) -> io::Result<Vec<Arc<ApiPod>>> {
        let files = files(path)?;
        self.good.retain(|file, _| files.contains(file));
        self.logged_errors.retain(|file, _| files.contains(file));
        for file in &files {
            let read = crate::host_file::read_text(file).map_err(ManifestError::from);
            match read.and_then(|text| parse(&text, file, rules)) {
                Ok(pod) => {
                    self.logged_errors.remove(file);
                    self.good.insert(file.clone(), Arc::new(pod));
                }
                Err(error) => self.log_error_once(file, &error),
            }
        }
        Ok(self.deduplicate_names(&rules.existing))
    }

    /// Selects one manifest of each Pod name: that of the existing Pod (upstream delays the second), else the first
    /// file.
    fn deduplicate_names(&mut self, existing: &BTreeSet<String>) -> Vec<Arc<ApiPod>> {
        let mut all: Vec<(PathBuf, Arc<ApiPod>)> =
            self.good.iter().map(|(f, pod)| (f.clone(), Arc::clone(pod))).collect();
        all.sort_by_key(|(_, pod)| !pod.metadata.uid.as_ref().is_some_and(|uid| existing.contains(uid)));
        let mut names = BTreeSet::new();
        all.retain(|(file, pod)| {
            let is_first = names.insert((pod.metadata.namespace.clone(), pod.metadata.name.clone()));
            if !is_first {
                let name = pod.metadata.name.clone().unwrap_or_default();
                self.log_error_once(file, &ManifestError::DuplicateName(name));
            }
            is_first
        });
        all.into_iter().map(|(_, pod)| pod).collect()
    }

    fn log_error_once(&mut self, file: &Path, error: &ManifestError) {
        let error = error.to_string();
        if self.logged_errors.get(file) != Some(&error) {
            tracing::error!(%error, file = %file.display(), "failed to load a static Pod manifest");
            self.logged_errors.insert(file.to_owned(), error);
        }
    }
}

/// Lists the files of a directory in order, without hidden files and subdirectories.
fn files(path: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let found = match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        found => found?,
    };
    if found.is_file() {
        return Ok(BTreeSet::from([path.to_owned()]));
    }
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && fs::metadata(entry.path()).is_ok_and(|m| m.is_file()) {
            files.insert(entry.path());
        }
    }
    Ok(files)
}

fn parse(text: &str, file: &Path, rules: &Rules) -> Result<ApiPod, ManifestError> {
    // Like upstream, only the first document is used.
    let mut reader = text.as_bytes();
    let first = serde_saphyr::read(&mut reader).next().unwrap_or(Ok(Value::Null));
    let mut object = first.map_err(|error| ManifestError::Syntax(Box::new(error)))?;
    if object["kind"] != "Pod" || object["apiVersion"] != "v1" {
        return Err(ManifestError::Kind { kind: object["kind"].clone(), api_version: object["apiVersion"].clone() });
    }
    let name = object["metadata"]["name"].as_str().unwrap_or("").to_owned();
    if name.is_empty() {
        return Err(ManifestError::NoName);
    }
    apply_defaults(&mut object, &name, file, rules);
    (rules.check)(&mut object, &rules.gates).map_err(ManifestError::Invalid)?;
    let pod: ApiPod = decode::from_value(&object).map_err(ManifestError::Decode)?;
    if rules.gates.enabled(Gate::PreventStaticPodAPIReferences)
        && let Some(spec) = &pod.spec
    {
        let reference = static_pod::api_reference(spec);
        if let Some(kind) = reference.map_err(|error| ManifestError::CheckReferences(error.into()))? {
            return Err(ManifestError::ApiReference(kind));
        }
    }
    Ok(pod)
}

/// Sets name, UID, annotations and the `NoExecute` toleration (upstream's `applyDefaults`).
fn apply_defaults(object: &mut Value, name: &str, file: &Path, rules: &Rules) {
    let uid = match object["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
        Some(uid) => uid.to_owned(),
        None => hash(object, file, &rules.node),
    };
    let metadata = &mut object["metadata"];
    metadata["uid"] = json!(uid);
    metadata["name"] = json!(format!("{name}-{}", rules.node.to_lowercase()));
    if metadata["namespace"].as_str().unwrap_or("").is_empty() {
        metadata["namespace"] = json!("default");
    }
    metadata["creationTimestamp"] = json!(rules.now);
    if !metadata["annotations"].is_object() {
        metadata["annotations"] = json!({});
    }
    metadata["annotations"][CONFIG_SOURCE] = json!(FILE);
    metadata["annotations"][CONFIG_HASH] = json!(uid);
    metadata["annotations"][CONFIG_SEEN] = json!(rules.now);
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    object["spec"]["nodeName"] = json!(rules.node);
    let toleration = json!({"operator": "Exists", "effect": "NoExecute"});
    match object["spec"]["tolerations"].as_array_mut() {
        Some(all) if all.contains(&toleration) => {}
        Some(all) => all.push(toleration),
        None => object["spec"]["tolerations"] = json!([toleration]),
    }
    object["status"] = json!({"phase": "Pending"});
}

/// Returns the UID of a manifest: a hash of its content, its file and the node.
fn hash(object: &Value, file: &Path, node: &str) -> String {
    let mut hasher = Sha256::new();
    // Maps are sorted, so that the order of keys does not change the hash.
    hasher.update(object.to_string());
    hasher.update(format!("host:{node}file:{}", file.display()));
    HEXLOWER.encode(&hasher.finalize()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(gates: &str) -> Rules {
        let check: PodDefaulter = |object, _| {
            object["spec"]["restartPolicy"] = json!("Always");
            if object["spec"]["containers"].is_array() { Ok(()) } else { Err("spec.containers: Required value".into()) }
        };
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        Rules {
            node: "Node-1".to_owned(),
            gates: FeatureGates::parse(gates).unwrap(),
            check,
            now,
            existing: BTreeSet::new(),
        }
    }

    const GOOD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}";

    #[test]
    fn manifest_is_converted_to_a_pod_of_the_node() {
        let pod = parse(GOOD, Path::new("/m/web.yaml"), &rules("")).unwrap();
        assert_eq!(pod.metadata.name.as_deref(), Some("web-node-1"));
        assert_eq!(pod.metadata.namespace.as_deref(), Some("default"));
        let uid = pod.metadata.uid.clone().unwrap();
        assert_eq!(uid.len(), 32);
        let annotation = |key| static_pod::annotation(&pod, key);
        assert_eq!(annotation(CONFIG_SOURCE), Some("file"));
        assert_eq!(annotation(CONFIG_HASH), Some(uid.as_str()));
        assert_eq!(annotation(CONFIG_SEEN), Some("2027-01-15T08:00:00Z"));
        assert!(static_pod::is_static(&pod));
        let spec = pod.spec.clone().unwrap();
        assert_eq!((spec.node_name.as_deref(), spec.restart_policy.as_deref()), (Some("Node-1"), Some("Always")));
        let toleration = &spec.tolerations.unwrap()[0];
        assert_eq!((toleration.operator.as_deref(), toleration.effect.as_deref()), (Some("Exists"), Some("NoExecute")));
        // JSON, and another order: the same Pod. Another file, node or word: another one.
        let same = r#"{"kind": "Pod", "apiVersion": "v1", "spec": {"containers": [{"image": "i", "name": "c"}]}, "metadata": {"name": "web"}}"#;
        let uid_of =
            |text: &str, file: &str, rules: &Rules| parse(text, Path::new(file), rules).unwrap().metadata.uid.unwrap();
        assert_eq!(uid_of(same, "/m/web.yaml", &rules("")), uid);
        assert_ne!(uid_of(GOOD, "/m/other.yaml", &rules("")), uid);
        assert_ne!(uid_of(GOOD, "/m/web.yaml", &Rules { node: "other".to_owned(), ..rules("") }), uid);
        assert_ne!(uid_of(&GOOD.replace("image: i", "image: j"), "/m/web.yaml", &rules("")), uid);
        assert_eq!(uid_of(&GOOD.replace("name: web", "name: web, uid: own"), "/m/web.yaml", &rules("")), "own");
    }

    #[test]
    fn duplicate_manifest_waits_for_the_existing_pod() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("b.yaml"), dir.path().join("a.yaml"));
        fs::write(&first, GOOD).unwrap();
        let (mut manifests, mut rules) = (Manifests::default(), rules(""));
        let mut read = |rules: &Rules| -> Vec<String> {
            manifests.read(dir.path(), rules).unwrap().iter().filter_map(|pod| pod.metadata.uid.clone()).collect()
        };
        let existing = read(&rules);
        rules.existing.extend(existing.clone());
        fs::write(&second, GOOD).unwrap();
        assert_eq!(read(&rules), existing);
        // Where there is neither, the first file counts.
        rules.existing.clear();
        let other = read(&rules);
        assert_eq!((other.len(), other == existing), (1, false));
        fs::remove_file(&first).unwrap();
        assert_eq!(read(&rules), other);
    }

    #[track_caller]
    fn refused(text: &str, gates: &str, expected: Option<&str>) {
        let got = parse(text, Path::new("/m/f"), &rules(gates)).err().map(|e| e.to_string());
        let matches = match (&got, expected) {
            (Some(got), Some(expected)) => got.contains(expected),
            (None, None) => true,
            _ => false,
        };
        assert!(matches, "{text}: {got:?}, not {expected:?}");
    }

    #[test]
    fn invalid_manifest_is_rejected() {
        refused(GOOD, "", None);
        refused("{", "", Some("couldn't parse as pod"));
        refused("apiVersion: v1\nkind: Service\nmetadata: {name: x}", "", Some("it is of kind \"Service\""));
        refused("apiVersion: v1\nkind: Pod", "", Some("name is needed for the pod"));
        refused("apiVersion: v1\nkind: Pod\nmetadata: {name: x}", "", Some("invalid pod: spec.containers: Required"));
        let secret = GOOD.replace("spec: {", "spec: {imagePullSecrets: [{name: s}], ");
        refused(&secret, "", Some("static pods may not reference secrets"));
        refused(&secret, "PreventStaticPodAPIReferences=false", None);
    }

    #[test]
    fn invalid_file_keeps_its_last_valid_pod() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let mut manifests = Manifests::default();
        let mut names = || -> Vec<String> {
            let pods = manifests.read(dir.path(), &rules("")).unwrap();
            pods.iter().map(|p| p.metadata.name.clone().unwrap()).collect()
        };
        assert!(names().is_empty());
        write("a.yaml", GOOD);
        write(".hidden", &GOOD.replace("web", "hidden"));
        write("broken", "{");
        fs::create_dir(dir.path().join("below")).unwrap();
        assert_eq!(names(), ["web-node-1"]);
        write("b.json", &GOOD.replace("web", "second"));
        write("c.yaml", GOOD);
        assert_eq!(names(), ["web-node-1", "second-node-1"], "the first of a name counts");
        fs::remove_file(dir.path().join("c.yaml")).unwrap();
        write("b.json", "{");
        assert_eq!(names(), ["web-node-1", "second-node-1"], "a file that is just being written ends no Pod");
        fs::remove_file(dir.path().join("b.json")).unwrap();
        assert_eq!(names(), ["web-node-1"]);
        assert!(manifests.read(&dir.path().join("none"), &rules("")).unwrap().is_empty());
        let one = manifests.read(&dir.path().join("a.yaml"), &rules("")).unwrap();
        assert_eq!(one.len(), 1);
    }
}
