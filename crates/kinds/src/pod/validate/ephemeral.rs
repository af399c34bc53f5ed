//! Validation of ephemeral containers and of updates of their list.

use super::{container, items, resource_claims, text, volume::Volumes};
use crate::{FieldErrors, FieldPath};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};

const FORBIDDEN_MESSAGE: &str = "cannot be set for an Ephemeral Container";
/// Annotation of mirror Pods.
const CONFIG_MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Validates the ephemeral containers (`validateEphemeralContainers`). `names` are those of all other containers.
pub(super) fn validate_ephemeral_containers(
    spec: &Value,
    path: &FieldPath,
    volumes: &Volumes,
    names: &mut BTreeSet<String>,
    errors: &mut FieldErrors,
) {
    let (others, claims) = (names.clone(), resource_claims::claim_names(spec));
    for (i, c) in items(spec, "ephemeralContainers").enumerate() {
        let path = path.child("ephemeralContainers").index(i);
        container::validate_container_common(c, &path, volumes, &claims, spec, errors);
        container::validate_unique_name(names, c, &path, errors);
        let target = text(c, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&path.child("targetContainerName"), &c["targetContainerName"]);
        }
        let forbidden = [
            "ports",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
            "resizePolicy",
            "restartPolicy",
            "restartPolicyRules",
        ];
        for field in forbidden.into_iter().filter(|f| c.get(f).is_some()) {
            errors.forbidden(&path.child(field), FORBIDDEN_MESSAGE);
        }
        if c["resources"].as_object().is_some_and(|r| !r.is_empty()) {
            errors.forbidden(&path.child("resources"), FORBIDDEN_MESSAGE);
        }
        for (j, mount) in items(c, "volumeMounts").enumerate() {
            let path = path.child("volumeMounts").index(j);
            for field in ["subPath", "subPathExpr"].into_iter().filter(|f| !text(mount, f).is_empty()) {
                errors.forbidden(&path.child(field), FORBIDDEN_MESSAGE);
            }
        }
    }
}

/// Validates an update: existing ephemeral containers must not change, new ones may be added
/// (`ValidatePodEphemeralContainersUpdate`).
pub(crate) fn validate_ephemeral_containers_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    if old["metadata"]["annotations"].get(CONFIG_MIRROR_ANNOTATION).is_some() {
        *errors = FieldErrors::default();
        return errors.forbidden(&FieldPath::new("[]"), "static pods do not support ephemeral containers");
    }
    let path = FieldPath::new("spec").child("ephemeralContainers");
    let mut new_by_name: HashMap<&Value, &Value> = HashMap::new();
    for c in items(&object["spec"], "ephemeralContainers") {
        new_by_name.entry(&c["name"]).or_insert(c);
    }
    for known in items(&old["spec"], "ephemeralContainers") {
        let name = text(known, "name");
        match new_by_name.get(&known["name"]).copied() {
            None => errors.forbidden(&path, &format!("existing ephemeral containers {name:?} may not be removed\n")),
            Some(new_by_name) if new_by_name != known => {
                errors.forbidden(&path, &format!("existing ephemeral containers {name:?} may not be changed\n"));
            }
            Some(_) => {}
        }
    }
}
