//! Completion of a run: waits for the Pods and Jobs of its manifests to finish.

use super::manifests::Manifest;
use kube::core::DynamicObject;
use std::collections::BTreeMap;

/// Kinds whose Pods are recreated until the object is deleted.
const RESTARTING_KINDS: [&str; 6] =
    ["CronJob", "DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"];

/// Kind, namespace and name of a Pod or Job that finishes.
pub(super) type FinishedKey = (&'static str, String, String);

/// Tracks whether the Pods and Jobs of a run have finished.
#[derive(Debug, Default)]
pub(super) struct Completion {
    expected: Vec<FinishedKey>,
    has_restarting_workload: bool,
}

impl Completion {
    /// Adds an object created from a manifest. The server may have generated its name.
    pub(super) fn add(&mut self, manifest: &Manifest, created: &DynamicObject) {
        let key = |kind| {
            let meta = &created.metadata;
            (kind, meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
        };
        match (manifest.text("/apiVersion"), manifest.text("/kind")) {
            ("v1", "Pod") => self.expected.push(key("Pod")),
            (version, "Job") if version.starts_with("batch/") => self.expected.push(key("Job")),
            (_, kind) => self.has_restarting_workload |= RESTARTING_KINDS.contains(&kind),
        }
    }

    /// Whether the created objects run no Pods.
    pub(super) fn runs_no_pods(&self) -> bool {
        self.expected.is_empty() && !self.has_restarting_workload
    }

    /// Returns the exit code once it is known: 1 as soon as a Pod or Job of the manifests has failed, 0 when all have
    /// succeeded.
    pub(super) fn exit_code(&self, finished: &BTreeMap<FinishedKey, bool>) -> Option<i32> {
        if self.expected.iter().any(|key| finished.get(key) == Some(&false)) {
            return Some(1);
        }
        let all = self.expected.iter().all(|key| finished.contains_key(key));
        (all && !self.has_restarting_workload).then_some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Checks the exit code for manifests and finished objects: `KIND/NAME` succeeded, `!KIND/NAME` failed.
    fn check(manifests: &[(&str, &str, &str)], finished: &[&str], expected: Option<i32>) {
        let mut completion = Completion::default();
        for (version, kind, name) in manifests {
            let object =
                json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}});
            let created = serde_json::from_value(object.clone()).unwrap();
            completion.add(&Manifest { object, origin: "test".to_owned() }, &created);
        }
        let all = finished.iter().map(|text| {
            let (kind, name) = text.trim_start_matches('!').split_once('/').unwrap();
            let kind = if kind == "Pod" { "Pod" } else { "Job" };
            ((kind, "default".to_owned(), name.to_owned()), !text.starts_with('!'))
        });
        assert_eq!(completion.exit_code(&all.collect()), expected, "{manifests:?} {finished:?}");
    }

    #[test]
    fn run_completes_on_success_of_all_or_first_failure() {
        let (a, b) = (("v1", "Pod", "a"), ("v1", "Pod", "b"));
        check(&[a, b], &[], None);
        check(&[a, b], &["Pod/a"], None);
        check(&[a, b], &["Pod/a", "Pod/b"], Some(0));
        check(&[a, b], &["!Pod/a"], Some(1));
        // A Job retries failed Pods.
        let job = ("batch/v1", "Job", "j");
        check(&[job], &["!Pod/j-x"], None);
        check(&[job], &["!Pod/j-x", "Job/j"], Some(0));
        check(&[job], &["!Pod/j-x", "!Job/j"], Some(1));
        check(&[a, ("apps/v1", "Deployment", "d")], &["Pod/a"], None);
        check(&[a, ("apps/v1", "Deployment", "d")], &["!Pod/a"], Some(1));
        check(&[a, ("v1", "ConfigMap", "c")], &["Pod/a"], Some(0));
    }
}
