//! What the statuses of kinds that keep Pods running may say: their controllers count, and others may write them, too.

use crate::kinds::{FieldErrors, FieldPath, checks::not_negative};
use serde_json::{Value, json};

/// How many there are, and which of them cannot be more than which others (`ValidateReplicaSetStatus` and its kin).
pub(in crate::kinds) struct Counts {
    pub(in crate::kinds) counted: &'static [&'static str],
    /// Those that are a part of `replicas`.
    pub(in crate::kinds) parts: &'static [&'static str],
    /// How upstream calls `readyReplicas`, of which `availableReplicas` are a part.
    pub(in crate::kinds) ready: &'static str,
}

impl Counts {
    pub(in crate::kinds) fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let (path, status) = (FieldPath::new("status"), &object["status"]);
        self.counted.iter().chain(&["observedGeneration"]).for_each(|field| not_negative(status, field, &path, errors));
        let count = |field: &str| status[field].as_i64().unwrap_or(0);
        let mut within = |part: &str, whole: &str, called: &str| {
            if count(part) > count(whole) {
                errors.invalid(&path.child(part), &json!(count(part)), &format!("cannot be greater than {called}"));
            }
        };
        self.parts.iter().for_each(|part| within(part, "replicas", "status.replicas"));
        if self.parts.contains(&"availableReplicas") {
            within("availableReplicas", "readyReplicas", self.ready);
        }
    }
}

/// Collisions of names are only ever counted up.
pub(super) fn collisions(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("status");
    let [new, old] = [object, old].map(|object| object["status"]["collisionCount"].as_i64());
    not_negative(&object["status"], "collisionCount", &path, errors);
    if old.is_some_and(|old| new.is_none_or(|new| new < old)) {
        errors.invalid(&path.child("collisionCount"), &json!(new.unwrap_or(0)), "cannot be decremented");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::apps::{DAEMON_SET, DEPLOYMENT, REPLICA_SET, STATEFUL_SET};
    use crate::kinds::plain::Plain;

    #[track_caller]
    fn check(kind: &Plain, status: Value, old: Value, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        (kind.validate_status)(&json!({"status": status}), &json!({"status": old}), &mut errors);
        assert_eq!(errors.0.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn counts_are_not_negative_and_parts_are_not_more_than_the_whole() {
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
        let more = json!({"replicas": 2, "readyReplicas": 1, "availableReplicas": 2});
        let said = |whole: &str| format!("status.availableReplicas: Invalid value: 2: cannot be greater than {whole}");
        check(&DEPLOYMENT, more.clone(), json!({}), &[&said("readyReplicas")]);
        check(&STATEFUL_SET, more, json!({}), &[&said("status.readyReplicas")]);
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
    fn collisions_only_grow() {
        let less = "status.collisionCount: Invalid value: 0: cannot be decremented";
        for kind in [&DAEMON_SET, &DEPLOYMENT, &STATEFUL_SET] {
            check(kind, json!({"collisionCount": 2}), json!({"collisionCount": 1}), &[]);
            check(kind, json!({"collisionCount": 0}), json!({}), &[]);
            check(kind, json!({"collisionCount": 0}), json!({"collisionCount": 1}), &[less]);
            check(kind, json!({}), json!({"collisionCount": 1}), &[less]);
        }
    }
}
