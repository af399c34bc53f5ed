//! Validation of the replica counts in the status of workload kinds.

use crate::{FieldErrors, field_cursor::FieldCursor};
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
        let object = FieldCursor::object(object);
        let status = object.at("status");
        for name in self.counts.iter().chain(&["observedGeneration"]) {
            status.at(name).nonnegative(errors);
        }
        let mut validate_bound = |name: &str, bound: &str, bound_name: &str| {
            let (count, bound) = (status.at(name), status.at(bound));
            if count.integer().unwrap_or(0) > bound.integer().unwrap_or(0) {
                let shown = json!(count.integer().unwrap_or(0));
                errors.invalid(&count.path(), &shown, &format!("cannot be greater than {bound_name}"));
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
    let object = FieldCursor::object(object);
    let status = object.at("status");
    let (count, old) = (status.at("collisionCount"), old["status"]["collisionCount"].as_i64());
    count.nonnegative(errors);
    if old.is_some_and(|old| count.integer().is_none_or(|new| new < old)) {
        errors.invalid(&count.path(), &json!(count.integer().unwrap_or(0)), "cannot be decremented");
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
