//! Detection of Pod status changes by other writers (`needsReconcile` of `status_manager.go`).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Map, Value, json};

/// Delay before a difference counts: the last write takes a moment to come back. Upstream checks every 10 s.
const GRACE: SignedDuration = SignedDuration::from_secs(2);

/// Status fields that the kubelet owns.
const KUBELET_FIELDS: [&str; 13] = [
    "phase",
    "reason",
    "message",
    "conditions",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "startTime",
    "qosClass",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
];

/// Compares the status in the API with the status that the kubelet wrote, for one Pod.
#[derive(Debug, Default)]
pub(crate) struct StatusReconciler {
    /// When a difference was first seen.
    differs_since: Option<Timestamp>,
    /// The status that was overwritten last. If it comes back, the API server changes the status, and it is left alone.
    overwritten: Option<PodStatus>,
}

impl StatusReconciler {
    /// Returns whether the status must be written again because the API has had a different one for [`GRACE`].
    pub(crate) fn is_due(&mut self, object: &Pod, desired: &PodStatus, now: Timestamp) -> bool {
        let found = object.status.clone().unwrap_or_default();
        if self.overwritten.as_ref() == Some(&found) || equal_in_kubelet_fields(&found, desired) {
            self.differs_since = None;
            return false;
        }
        let differs_since = *self.differs_since.get_or_insert(now);
        if now < differs_since + GRACE {
            return false;
        }
        self.differs_since = None;
        self.overwritten = Some(found);
        true
    }

    /// Returns when to check again.
    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        self.differs_since.map(|differs_since| differs_since + GRACE)
    }
}

/// Compares the fields and conditions that the kubelet owns.
fn equal_in_kubelet_fields(found: &PodStatus, desired: &PodStatus) -> bool {
    let (mut found, mut desired) = (json!(found), json!(desired));
    let types: Vec<Value> = desired["conditions"].as_array().into_iter().flatten().map(|c| c["type"].clone()).collect();
    for status in [&mut found, &mut desired] {
        if let Some(conditions) = status["conditions"].as_array_mut() {
            conditions.retain(|c| types.contains(&c["type"]));
            conditions.sort_by_key(|c| c["type"].to_string());
        }
        normalize(status);
    }
    KUBELET_FIELDS.iter().all(|field| found[*field] == desired[*field])
}

/// Removes fields with default values, and truncates times to seconds, as the API stores them.
fn normalize(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match field {
                    Value::String(time) if name.ends_with("Time") || name.ends_with("At") => {
                        time.truncate("2026-01-01T00:00:00".len());
                    }
                    field => normalize(field),
                }
            }
            fields.retain(|_, field| !is_default(field));
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        _ => {}
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => Map::is_empty(fields),
        Value::Bool(true) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(change: impl FnOnce(&mut Value)) -> PodStatus {
        let mut status = json!({"phase": "Running", "podIP": "10.0.0.2", "startTime": "2026-01-01T00:00:00.25Z",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "lastState": {}}]});
        change(&mut status);
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn status_normalized_by_the_api_is_equal() {
        let desired = status(|_| {});
        let check = |change: &dyn Fn(&mut Value), expected: bool| {
            assert_eq!(equal_in_kubelet_fields(&status(|s| change(s)), &desired), expected);
        };
        check(&|_| {}, true);
        check(&|s| s["startTime"] = json!("2026-01-01T00:00:00Z"), true);
        check(&|s| drop(s["containerStatuses"][0].as_object_mut().map(|c| c.remove("lastState"))), true);
        check(&|s| s["nominatedNodeName"] = json!("n"), true);
        let foreign = json!([{"type": "example.com/x", "status": "True"}, {"type": "Ready", "status": "True"}]);
        check(&|s| s["conditions"] = foreign.clone(), true);
        check(&|s| s["podIP"] = json!("1.1.1.1"), false);
        check(&|s| s["containerStatuses"] = json!([]), false);
        check(&|s| s["conditions"] = json!([]), false);
        check(&|s| s["phase"] = json!("Pending"), false);
    }

    #[test]
    fn foreign_status_is_overwritten_once_after_a_delay() {
        let (mut reconciler, desired) = (StatusReconciler::default(), status(|_| {}));
        let pod = |status| Pod { status: Some(status), ..Pod::default() };
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        assert!(!reconciler.is_due(&pod(desired.clone()), &desired, at(0)));
        assert_eq!(reconciler.wake_at(), None);
        let other = pod(status(|s| s["podIP"] = json!("1.1.1.1")));
        assert!(!reconciler.is_due(&other, &desired, at(10)), "our own write may be on its way back");
        assert_eq!(reconciler.wake_at(), Some(at(12)));
        assert!(reconciler.is_due(&other, &desired, at(12)));
        assert!(!reconciler.is_due(&other, &desired, at(20)), "once is enough");
        assert_eq!(reconciler.wake_at(), None);
    }
}
