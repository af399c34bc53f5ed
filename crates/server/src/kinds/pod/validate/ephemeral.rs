//! Ephemeral containers: what they may say, and how their list may change
//! (`validateEphemeralContainers`, `ValidatePodEphemeralContainersUpdate`).

use super::{claims, container, items, text, volume::Volumes};
use crate::kinds::{FieldErrors, FieldPath};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};

const NOT_HERE: &str = "cannot be set for an Ephemeral Container";
/// Marks the Pod that stands for one from a node's own files.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// `names` are those of all other containers.
pub(super) fn all(
    spec: &Value,
    path: &FieldPath,
    volumes: &Volumes,
    names: &mut BTreeSet<String>,
    errors: &mut FieldErrors,
) {
    let (others, claims) = (names.clone(), claims::names(spec));
    for (i, c) in items(spec, "ephemeralContainers").enumerate() {
        let path = path.child("ephemeralContainers").index(i);
        container::common(c, &path, volumes, &claims, spec, errors);
        container::unique(names, c, &path, errors);
        let target = text(c, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&path.child("targetContainerName"), &c["targetContainerName"]);
        }
        let unwanted = [
            "ports",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
            "resizePolicy",
            "restartPolicy",
            "restartPolicyRules",
        ];
        for field in unwanted.into_iter().filter(|f| c.get(f).is_some()) {
            errors.forbidden(&path.child(field), NOT_HERE);
        }
        if c["resources"].as_object().is_some_and(|r| !r.is_empty()) {
            errors.forbidden(&path.child("resources"), NOT_HERE);
        }
        for (j, mount) in items(c, "volumeMounts").enumerate() {
            let path = path.child("volumeMounts").index(j);
            for field in ["subPath", "subPathExpr"].into_iter().filter(|f| !text(mount, f).is_empty()) {
                errors.forbidden(&path.child(field), NOT_HERE);
            }
        }
    }
}

/// Those that are there stay as they are; others may come.
pub(crate) fn update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    if old["metadata"]["annotations"].get(MIRROR).is_some() {
        *errors = FieldErrors::default();
        return errors.forbidden(&FieldPath::new("[]"), "static pods do not support ephemeral containers");
    }
    let path = FieldPath::new("spec").child("ephemeralContainers");
    let mut now: HashMap<&Value, &Value> = HashMap::new();
    for c in items(&object["spec"], "ephemeralContainers") {
        now.entry(&c["name"]).or_insert(c);
    }
    for known in items(&old["spec"], "ephemeralContainers") {
        let name = text(known, "name");
        match now.get(&known["name"]).copied() {
            None => errors.forbidden(&path, &format!("existing ephemeral containers {name:?} may not be removed\n")),
            Some(now) if now != known => {
                errors.forbidden(&path, &format!("existing ephemeral containers {name:?} may not be changed\n"));
            }
            Some(_) => {}
        }
    }
}
