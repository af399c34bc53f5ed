//! Validation of ephemeral containers and of updates of their list.

use super::{container, items, resource_claims, text, volume::Volumes};
use crate::{FieldErrors, FieldPath, field_cursor::FieldCursor};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};

const FORBIDDEN_MESSAGE: &str = "cannot be set for an Ephemeral Container";
const FORBIDDEN_FIELDS: [&str; 8] = [
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
];
/// Annotation of mirror Pods.
const CONFIG_MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Validates the ephemeral containers (`validateEphemeralContainers`). `names` are those of all other containers.
pub(super) fn validate_ephemeral_containers<'v>(
    spec: &FieldCursor<'v, '_>,
    volumes: &Volumes<'_>,
    names: &mut BTreeSet<&'v str>,
    errors: &mut FieldErrors,
) {
    let (others, claims) = (names.clone(), resource_claims::claim_names(spec));
    for container in spec.at("ephemeralContainers").items() {
        container::validate_container_common(&container, volumes, &claims, spec, errors);
        container::validate_unique_name(names, &container, errors);
        let target = container.at("targetContainerName");
        if !target.text().is_empty() && !others.contains(target.text()) {
            target.not_found(errors);
        }
        for name in FORBIDDEN_FIELDS {
            forbid(&container.at(name), container.at(name).is_set(), errors);
        }
        let resources = container.at("resources");
        forbid(&resources, resources.entries().next().is_some(), errors);
        for mount in container.at("volumeMounts").items() {
            for path in [mount.at("subPath"), mount.at("subPathExpr")] {
                forbid(&path, !path.text().is_empty(), errors);
            }
        }
    }
}

fn forbid(field: &FieldCursor<'_, '_>, is_forbidden: bool, errors: &mut FieldErrors) {
    if is_forbidden {
        field.forbidden(FORBIDDEN_MESSAGE, errors);
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
