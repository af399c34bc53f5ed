//! Whether the status in the API is still the one that was written there (`status_manager.go`, `needsReconcile`).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Map, Value, json};

/// What was just written takes a moment to come back; upstream looks every 10 s.
const GRACE: SignedDuration = SignedDuration::from_secs(2);

/// The parts of a status that the kubelet has the say in.
const OWN: [&str; 13] = [
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

/// Watches one Pod's status in the API.
#[derive(Debug, Default)]
pub(crate) struct Reconcile {
    /// Since when it has been another one.
    since: Option<Timestamp>,
    /// What stood there when it was put right last: what the API makes of a status is not fought over.
    righted: Option<PodStatus>,
}

impl Reconcile {
    /// Whether the status is to be written again, because another one stands in the API and has for a while.
    pub(crate) fn is_due(&mut self, object: &Pod, wanted: &PodStatus, now: Timestamp) -> bool {
        let found = object.status.clone().unwrap_or_default();
        if self.righted.as_ref() == Some(&found) || agree(&found, wanted) {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        if now < since + GRACE {
            return false;
        }
        self.since = None;
        self.righted = Some(found);
        true
    }

    /// When to look again.
    pub(crate) fn wake(&self) -> Option<Timestamp> {
        self.since.map(|since| since + GRACE)
    }
}

/// Whether both say the same, as far as the kubelet has the say.
fn agree(found: &PodStatus, wanted: &PodStatus) -> bool {
    let (mut found, mut wanted) = (json!(found), json!(wanted));
    let ours: Vec<Value> = wanted["conditions"].as_array().into_iter().flatten().map(|c| c["type"].clone()).collect();
    for status in [&mut found, &mut wanted] {
        if let Some(conditions) = status["conditions"].as_array_mut() {
            conditions.retain(|c| ours.contains(&c["type"]));
            conditions.sort_by_key(|c| c["type"].to_string());
        }
        tidy(status);
    }
    OWN.iter().all(|field| found[*field] == wanted[*field])
}

/// Takes out what means the same as nothing, and what the API does not keep of times.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match field {
                    Value::String(time) if name.ends_with("Time") || name.ends_with("At") => {
                        time.truncate("2026-01-01T00:00:00".len());
                    }
                    field => tidy(field),
                }
            }
            fields.retain(|_, field| !is_nothing(field));
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

fn is_nothing(value: &Value) -> bool {
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
    fn what_the_api_makes_of_a_status_is_the_same_status() {
        let wanted = status(|_| {});
        let check = |change: &dyn Fn(&mut Value), expected: bool| {
            assert_eq!(agree(&status(|s| change(s)), &wanted), expected);
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
    fn another_status_is_put_right_once_and_not_at_once() {
        let (mut reconcile, wanted) = (Reconcile::default(), status(|_| {}));
        let pod = |status| Pod { status: Some(status), ..Pod::default() };
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        assert!(!reconcile.is_due(&pod(wanted.clone()), &wanted, at(0)));
        assert_eq!(reconcile.wake(), None);
        let other = pod(status(|s| s["podIP"] = json!("1.1.1.1")));
        assert!(!reconcile.is_due(&other, &wanted, at(10)), "our own write may be on its way back");
        assert_eq!(reconcile.wake(), Some(at(12)));
        assert!(reconcile.is_due(&other, &wanted, at(12)));
        assert!(!reconcile.is_due(&other, &wanted, at(20)), "once is enough");
        assert_eq!(reconcile.wake(), None);
    }
}
