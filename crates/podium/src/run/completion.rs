//! What a run waits for: the end of the Pods and Jobs that its manifests make.

use super::manifests::Manifest;
use kube::core::DynamicObject;
use std::collections::BTreeMap;

/// Kinds whose Pods come again for as long as they are there.
const ENDLESS: [&str; 6] = ["CronJob", "DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"];

/// Kind, namespace and name of what ends.
pub(super) type Ended = (&'static str, String, String);

/// What has to end.
#[derive(Debug, Default)]
pub(super) struct Goal {
    wanted: Vec<Ended>,
    endless: bool,
}

impl Goal {
    /// Takes what was created of a manifest. Its name may be the server's.
    pub(super) fn add(&mut self, manifest: &Manifest, created: &DynamicObject) {
        let place = |kind| {
            let meta = &created.metadata;
            (kind, meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
        };
        match (manifest.text("/apiVersion"), manifest.text("/kind")) {
            ("v1", "Pod") => self.wanted.push(place("Pod")),
            (version, "Job") if version.starts_with("batch/") => self.wanted.push(place("Job")),
            (_, kind) => self.endless |= ENDLESS.contains(&kind),
        }
    }

    /// Whether nothing that was created runs anything.
    pub(super) fn is_nothing(&self) -> bool {
        self.wanted.is_empty() && !self.endless
    }

    /// The exit code, once it is known: 1 as soon as something of the manifests has failed, 0 when all has succeeded.
    pub(super) fn exit_code(&self, ended: &BTreeMap<Ended, bool>) -> Option<i32> {
        if self.wanted.iter().any(|wanted| ended.get(wanted) == Some(&false)) {
            return Some(1);
        }
        let all = self.wanted.iter().all(|wanted| ended.contains_key(wanted));
        (all && !self.endless).then_some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The exit code after these manifests, where what has ended is named `KIND/NAME` or, if it failed, `!KIND/NAME`.
    fn check(manifests: &[(&str, &str, &str)], ended: &[&str], expected: Option<i32>) {
        let mut goal = Goal::default();
        for (version, kind, name) in manifests {
            let object =
                json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}});
            let created = serde_json::from_value(object.clone()).unwrap();
            goal.add(&Manifest { object, origin: "test".to_owned() }, &created);
        }
        let all = ended.iter().map(|text| {
            let (kind, name) = text.trim_start_matches('!').split_once('/').unwrap();
            let kind = if kind == "Pod" { "Pod" } else { "Job" };
            ((kind, "default".to_owned(), name.to_owned()), !text.starts_with('!'))
        });
        assert_eq!(goal.exit_code(&all.collect()), expected, "{manifests:?} {ended:?}");
    }

    #[test]
    fn a_run_ends_when_all_has_succeeded_or_something_failed() {
        let (a, b) = (("v1", "Pod", "a"), ("v1", "Pod", "b"));
        check(&[a, b], &[], None);
        check(&[a, b], &["Pod/a"], None);
        check(&[a, b], &["Pod/a", "Pod/b"], Some(0));
        check(&[a, b], &["!Pod/a"], Some(1));
        // A Pod of a Job may fail, and the next one succeed.
        let job = ("batch/v1", "Job", "j");
        check(&[job], &["!Pod/j-x"], None);
        check(&[job], &["!Pod/j-x", "Job/j"], Some(0));
        check(&[job], &["!Pod/j-x", "!Job/j"], Some(1));
        check(&[a, ("apps/v1", "Deployment", "d")], &["Pod/a"], None);
        check(&[a, ("apps/v1", "Deployment", "d")], &["!Pod/a"], Some(1));
        check(&[a, ("v1", "ConfigMap", "c")], &["Pod/a"], Some(0));
    }
}
