//! Validation of the replica counts in the status of workload kinds.

use crate::{FieldErrors, FieldPath, field_validation::validate_nonnegative};
use serde_json::{Value, json};

/// Replica counts of a status and their upper bounds (`ValidateReplicaSetStatus` and similar functions).
pub(crate) struct ReplicaCounts {
    pub(crate) counts: &'static [&'static str],
    /// Counts that must not exceed `replicas`.
    pub(crate) bounded_by_replicas: &'static [&'static str],
    /// Name of `readyReplicas`, the bound of `availableReplicas`, in upstream's error.
    pub(crate) ready_name: &'static str,
}

impl ReplicaCounts {
    pub(crate) fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let (path, status) = (FieldPath::new("status"), &object["status"]);
        self.counts
            .iter()
            .chain(&["observedGeneration"])
            .for_each(|field| validate_nonnegative(status, field, &path, errors));
        let count = |field: &str| status[field].as_i64().unwrap_or(0);
        let mut validate_bound = |field: &str, bound: &str, bound_name: &str| {
            if count(field) > count(bound) {
                errors.invalid(
                    &path.child(field),
                    &json!(count(field)),
                    &format!("cannot be greater than {bound_name}"),
                );
            }
        };
        self.bounded_by_replicas.iter().for_each(|field| validate_bound(field, "replicas", "status.replicas"));
        if self.bounded_by_replicas.contains(&"availableReplicas") {
            validate_bound("availableReplicas", "readyReplicas", self.ready_name);
        }
    }
}

/// Validates that the collision count does not decrease.
pub(super) fn validate_collision_count(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("status");
    let [new, old] = [object, old].map(|object| object["status"]["collisionCount"].as_i64());
    validate_nonnegative(&object["status"], "collisionCount", &path, errors);
    if old.is_some_and(|old| new.is_none_or(|new| new < old)) {
        errors.invalid(&path.child("collisionCount"), &json!(new.unwrap_or(0)), "cannot be decremented");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        apps::{DAEMON_SET, DEPLOYMENT, REPLICA_SET, STATEFUL_SET},
        generic_kind::GenericKind,
    };

    #[track_caller]
    fn check(kind: &GenericKind, status: Value, old: Value, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        (kind.validate_status)(&json!({"status": status}), &json!({"status": old}), &mut errors);
        assert_eq!(errors.0.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn replica_counts_are_nonnegative_and_bounded() {
        let good = json!({"replicas": 3, "readyReplicas": 2, "availableReplicas": 2, "updatedReplicas": 3});
        for kind in [&REPLICA_SET, &DEPLOYMENT, &STATEFUL_SET] {
            check(kind, good.clone(), json!({}), &[]);
            let negative = "status.observedGeneration: Invalid value: -1: must be greater than or equal to 0";
            check(kind, json!({"observedGeneration": -1}), json!({}), &[negative]);
            check(
                kind,
                json!({"replicas": 1, "readyReplicas": 2}),
                json!({}),
                &["status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"],
            );
        }
        let available = json!({"replicas": 2, "readyReplicas": 1, "availableReplicas": 2});
        let message =
            |bound: &str| format!("status.availableReplicas: Invalid value: 2: cannot be greater than {bound}");
        check(&DEPLOYMENT, available.clone(), json!({}), &[&message("readyReplicas")]);
        check(&STATEFUL_SET, available, json!({}), &[&message("status.readyReplicas")]);
        let nodes = json!({"numberReady": -1, "observedGeneration": -2});
        check(
            &DAEMON_SET,
            nodes,
            json!({}),
            &[
                "status.numberReady: Invalid value: -1: must be greater than or equal to 0",
                "status.observedGeneration: Invalid value: -2: must be greater than or equal to 0",
            ],
        );
    }

    #[test]
    fn collision_count_may_not_decrease() {
        let less = "status.collisionCount: Invalid value: 0: cannot be decremented";
        for kind in [&DAEMON_SET, &DEPLOYMENT, &STATEFUL_SET] {
            check(kind, json!({"collisionCount": 2}), json!({"collisionCount": 1}), &[]);
            check(kind, json!({"collisionCount": 0}), json!({}), &[]);
            check(kind, json!({"collisionCount": 0}), json!({"collisionCount": 1}), &[less]);
            check(kind, json!({}), json!({"collisionCount": 1}), &[less]);
        }
    }
}
