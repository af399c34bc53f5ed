use super::*;
use crate::volumes::claim;
use api::volume_source::{PERSISTENT_VOLUME_SOURCES, POD_SOURCES};
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Sources that the API accepts and that no plugin mounts (docs/compatibility.md). A new plugin is removed from here.
const UNSUPPORTED: [&str; 21] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// Returns the error of a volume whose type is unsupported, and checks that at most one plugin supports it.
#[track_caller]
fn unsupported(spec: VolumeSpec<'_>) -> Option<String> {
    let plugins = PLUGINS.iter().filter(|plugin| plugin.can_support(spec)).count();
    assert!(plugins <= 1, "{plugins} plugins support {}", spec.source_name());
    find_by_spec(spec).err().map(|error| error.to_string())
}

fn volume(source: &str) -> Volume {
    serde_json::from_value(json!({"name": "v", source: {}})).unwrap()
}

fn persistent_volume(source: &str) -> PersistentVolume {
    let spec: Value = json!({"accessModes": ["ReadWriteOnce"], source: {}});
    serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": spec})).unwrap()
}

#[test]
fn plugins_cover_the_sources_that_the_api_accepts() {
    let mut found = BTreeSet::new();
    let mut check = |source: &'static str, error: Option<String>| {
        let Some(error) = error else { return };
        assert_eq!(error, format!("volumes of type {source} are not supported yet"));
        found.insert(source);
    };
    for source in POD_SOURCES {
        let volume = volume(source);
        // The volume of a claim has the type of its PersistentVolume.
        if !claim::is_claim(&volume) {
            check(source, unsupported(VolumeSpec::Volume(&volume)));
        }
    }
    for source in PERSISTENT_VOLUME_SOURCES {
        let volume = persistent_volume(source);
        check(source, unsupported(VolumeSpec::PersistentVolume { volume: &volume, read_only: false }));
    }
    assert_eq!(found, BTreeSet::from(UNSUPPORTED));
}

#[test]
fn volumes_of_api_files_are_refreshed() {
    let with_files = POD_SOURCES.into_iter().filter(|source| find_files_plugin(&volume(source)).is_some());
    assert_eq!(with_files.collect::<Vec<_>>(), ["secret", "downwardAPI", "configMap", "projected"]);
    let in_memory = |source: &str| find_files_plugin(&volume(source)).unwrap().is_in_memory();
    assert!(in_memory("secret") && in_memory("downwardAPI") && in_memory("projected") && !in_memory("configMap"));
}

#[test]
fn data_of_the_node_is_not_the_usage_of_a_pod() {
    let has_metrics =
        |source: &str| find_by_spec(VolumeSpec::Volume(&volume(source))).is_ok_and(VolumePlugin::has_metrics);
    assert!(!has_metrics("hostPath"));
    for source in ["emptyDir", "configMap", "secret", "downwardAPI", "projected"] {
        assert!(has_metrics(source), "{source}");
    }
}
