//! Manifests: files of a directory, one Pod each, in YAML or JSON (upstream's `pkg/kubelet/config`).

use crate::Shared;
use api::{
    feature_gates::{FeatureGates, Gate},
    static_pod::{self, CONFIG_HASH, CONFIG_SEEN, CONFIG_SOURCE, FILE},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// As the API server would: fills in defaults, and refuses what is invalid, in words.
pub type PodRules = fn(&mut Value, &FeatureGates) -> Result<(), String>;

/// What a manifest's Pod must comply with, and what becomes of it.
pub(crate) struct Rules {
    node: String,
    gates: FeatureGates,
    check: PodRules,
    now: Timestamp,
    /// The UIDs of static Pods that there are.
    here: BTreeSet<String>,
}

impl Rules {
    pub(crate) fn of(shared: &Shared) -> Self {
        let options = &shared.options;
        let (node, gates) = (options.node_name.clone(), options.policy.gates.clone());
        let all = shared.pods.all().into_iter().map(|handle| handle.state.borrow().clone());
        let here = all.filter(|pod| static_pod::is_static(pod.object())).map(|pod| pod.uid().to_owned()).collect();
        Self { node, gates, check: options.pod_rules, now: shared.now(), here }
    }
}

/// What was made of the files when they were last read.
#[derive(Default)]
pub(super) struct Manifests {
    good: BTreeMap<PathBuf, Arc<ApiPod>>,
    /// What was said of those that are none: once is enough.
    told: BTreeMap<PathBuf, String>,
}

impl Manifests {
    /// The Pods of this directory, or file. No such directory means none; what is no manifest is named in the log, and the
    /// Pod that the file last was goes on.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(super) fn read(&mut self, path: &Path, rules: &Rules) -> Result<Vec<Arc<ApiPod>>, String> {
        let files = files(path).map_err(|e| e.to_string())?;
        self.good.retain(|file, _| files.contains(file));
        self.told.retain(|file, _| files.contains(file));
        for file in &files {
            let read = crate::node_file::read_text(file).map_err(|e| e.to_string());
            match read.and_then(|text| parse(&text, file, rules)) {
                Ok(pod) => {
                    self.told.remove(file);
                    self.good.insert(file.clone(), Arc::new(pod));
                }
                Err(error) => self.tell(file, error),
            }
        }
        Ok(self.one_of_each_name(&rules.here))
    }

    /// Of manifests of the same Pod the one counts that there is (upstream lets a second one wait), else the first.
    fn one_of_each_name(&mut self, here: &BTreeSet<String>) -> Vec<Arc<ApiPod>> {
        let mut all: Vec<(PathBuf, Arc<ApiPod>)> =
            self.good.iter().map(|(f, pod)| (f.clone(), Arc::clone(pod))).collect();
        all.sort_by_key(|(_, pod)| !pod.metadata.uid.as_ref().is_some_and(|uid| here.contains(uid)));
        let mut names = BTreeSet::new();
        all.retain(|(file, pod)| {
            let is_first = names.insert((pod.metadata.namespace.clone(), pod.metadata.name.clone()));
            if !is_first {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                self.tell(file, format!("another manifest has a Pod {name}"));
            }
            is_first
        });
        all.into_iter().map(|(_, pod)| pod).collect()
    }

    fn tell(&mut self, file: &Path, error: String) {
        if self.told.get(file) != Some(&error) {
            tracing::error!(%error, file = %file.display(), "this is no manifest of a static Pod");
            self.told.insert(file.to_owned(), error);
        }
    }
}

/// Files in order; neither hidden ones nor those of directories below.
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

fn parse(text: &str, file: &Path, rules: &Rules) -> Result<ApiPod, String> {
    // Of several documents upstream takes the first one, too.
    let mut reader = text.as_bytes();
    let first = serde_saphyr::read(&mut reader).next().unwrap_or(Ok(Value::Null));
    let mut object = first.map_err(|e| format!("couldn't parse as pod: {e}"))?;
    if object["kind"] != "Pod" || object["apiVersion"] != "v1" {
        return Err(format!(
            "couldn't parse as pod: it is of kind {} and version {}",
            object["kind"], object["apiVersion"]
        ));
    }
    let name = object["metadata"]["name"].as_str().unwrap_or("").to_owned();
    if name.is_empty() {
        return Err("invalid pod: name is needed for the pod".to_owned());
    }
    complete(&mut object, &name, file, rules);
    (rules.check)(&mut object, &rules.gates).map_err(|e| format!("invalid pod: {e}"))?;
    let pod: ApiPod = serde_json::from_value(object).map_err(|e| format!("couldn't parse as pod: {e}"))?;
    if rules.gates.enabled(Gate::PreventStaticPodAPIReferences)
        && let Some(spec) = &pod.spec
    {
        let reference = static_pod::api_reference(spec);
        if let Some(what) = reference.map_err(|e| format!("error checking pod for API references: {e}"))? {
            return Err(format!("static pods may not reference {what}"));
        }
    }
    Ok(pod)
}

/// Makes it this node's: its own name and UID, the annotations, and no eviction by taints (upstream's `applyDefaults`).
fn complete(object: &mut Value, name: &str, file: &Path, rules: &Rules) {
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

/// The same manifest in the same file on the same node has the same UID, for as long as it says the same.
fn hash(object: &Value, file: &Path, node: &str) -> String {
    let mut hasher = Sha256::new();
    // Maps are sorted: the order of a file's lines makes no other Pod.
    hasher.update(object.to_string());
    hasher.update(format!("host:{node}file:{}", file.display()));
    hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(gates: &str) -> Rules {
        let check: PodRules = |object, _| {
            object["spec"]["restartPolicy"] = json!("Always");
            if object["spec"]["containers"].is_array() {
                Ok(())
            } else {
                Err("spec.containers: Required value".to_owned())
            }
        };
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        Rules {
            node: "Node-1".to_owned(),
            gates: FeatureGates::parse(gates).unwrap(),
            check,
            now,
            here: BTreeSet::new(),
        }
    }

    const GOOD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}";

    #[test]
    fn a_manifest_becomes_a_pod_of_this_node() {
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
    fn a_second_manifest_of_a_pod_waits_for_the_one_that_there_is() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("b.yaml"), dir.path().join("a.yaml"));
        fs::write(&first, GOOD).unwrap();
        let (mut manifests, mut rules) = (Manifests::default(), rules(""));
        let mut read = |rules: &Rules| -> Vec<String> {
            manifests.read(dir.path(), rules).unwrap().iter().filter_map(|pod| pod.metadata.uid.clone()).collect()
        };
        let here = read(&rules);
        rules.here.extend(here.clone());
        fs::write(&second, GOOD).unwrap();
        assert_eq!(read(&rules), here);
        // Where there is neither, the first file counts.
        rules.here.clear();
        let other = read(&rules);
        assert_eq!((other.len(), other == here), (1, false));
        fs::remove_file(&first).unwrap();
        assert_eq!(read(&rules), other);
    }

    #[track_caller]
    fn refused(text: &str, gates: &str, expected: Option<&str>) {
        let got = parse(text, Path::new("/m/f"), &rules(gates)).err();
        let told = match (&got, expected) {
            (Some(got), Some(expected)) => got.contains(expected),
            (None, None) => true,
            _ => false,
        };
        assert!(told, "{text}: {got:?}, not {expected:?}");
    }

    #[test]
    fn what_is_no_manifest_is_refused() {
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
    fn a_directory_is_read_whole_and_what_is_broken_goes_on_as_it_was() {
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
