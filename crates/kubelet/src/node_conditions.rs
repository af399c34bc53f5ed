//! Conditions of the Node object, with upstream's reasons and messages (`pkg/kubelet/nodestatus/setters.go`).

use k8s_openapi::api::core::v1::NodeCondition;
use lifecycle::NodePressure;
use serde_json::{Value, json};

/// Reasons, messages and Event reasons of a pressure condition: true and false.
struct PressureTexts {
    pressure: NodePressure,
    reasons: [&'static str; 2],
    messages: [&'static str; 2],
    events: [&'static str; 2],
}

const PRESSURES: [PressureTexts; 3] = [
    PressureTexts {
        pressure: NodePressure::Memory,
        reasons: ["KubeletHasInsufficientMemory", "KubeletHasSufficientMemory"],
        messages: ["kubelet has insufficient memory available", "kubelet has sufficient memory available"],
        events: ["NodeHasInsufficientMemory", "NodeHasSufficientMemory"],
    },
    PressureTexts {
        pressure: NodePressure::Disk,
        reasons: ["KubeletHasDiskPressure", "KubeletHasNoDiskPressure"],
        messages: ["kubelet has disk pressure", "kubelet has no disk pressure"],
        events: ["NodeHasDiskPressure", "NodeHasNoDiskPressure"],
    },
    PressureTexts {
        pressure: NodePressure::Pid,
        reasons: ["KubeletHasInsufficientPID", "KubeletHasSufficientPID"],
        messages: ["kubelet has insufficient PID available", "kubelet has sufficient PID available"],
        events: ["NodeHasInsufficientPID", "NodeHasSufficientPID"],
    },
];

/// Returns the conditions without timestamps, `Ready` last.
pub(crate) fn conditions(pressures: &[NodePressure], not_ready: Option<&str>) -> Vec<Value> {
    let condition = |kind: &str, holds: bool, reason: &str, message: &str| {
        let status = if holds { "True" } else { "False" };
        json!({"type": kind, "status": status, "reason": reason, "message": message})
    };
    let mut all: Vec<Value> = PRESSURES
        .iter()
        .map(|words| {
            let (holds, kind) = (pressures.contains(&words.pressure), words.pressure.condition());
            let n = usize::from(!holds);
            condition(kind, holds, words.reasons[n], words.messages[n])
        })
        .collect();
    all.push(match not_ready {
        None => condition("Ready", true, "KubeletReady", "kubelet is posting ready status"),
        Some(message) => condition("Ready", false, "KubeletNotReady", message),
    });
    all
}

/// Returns the reasons of the Events for changed conditions.
pub(crate) fn events(conditions: &[Value], known: &[NodeCondition]) -> Vec<&'static str> {
    let changed = conditions.iter().filter(|c| unchanged(c, known).is_none());
    let reason = |condition: &Value| {
        let n = usize::from(condition["status"] != "True");
        let has_type = |words: &&PressureTexts| condition["type"] == words.pressure.condition();
        PRESSURES.iter().find(has_type).map_or(["NodeReady", "NodeNotReady"][n], |words| words.events[n])
    };
    changed.map(reason).collect()
}

/// Returns the previous condition, if its status is the same.
fn unchanged<'a>(condition: &Value, known: &'a [NodeCondition]) -> Option<&'a NodeCondition> {
    known.iter().find(|k| condition["type"] == k.type_ && condition["status"] == k.status)
}

/// Sets the timestamps of a condition; the transition time is kept while the status is unchanged.
pub(crate) fn set_timestamps(mut condition: Value, known: &[NodeCondition], now: &Value) -> Value {
    let since = unchanged(&condition, known).and_then(|k| k.last_transition_time.as_ref());
    condition["lastTransitionTime"] = since.map_or_else(|| now.clone(), |t| json!(t));
    condition["lastHeartbeatTime"] = now.clone();
    condition
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(conditions: &[Value]) -> Vec<NodeCondition> {
        let stamped = conditions.iter().map(|c| set_timestamps(c.clone(), &[], &json!("2026-01-01T00:00:00Z")));
        serde_json::from_value(stamped.collect()).unwrap()
    }

    #[track_caller]
    fn check(
        pressures: &[NodePressure],
        not_ready: Option<&str>,
        expected: [(&str, &str, &str); 4],
        reported: &[&str],
    ) {
        let all = conditions(pressures, not_ready);
        let shown: Vec<_> = all
            .iter()
            .map(|c| {
                let word = |field: &str| c[field].as_str().unwrap();
                (word("type"), word("status"), word("reason"))
            })
            .collect();
        assert_eq!(shown, expected);
        assert_eq!(events(&all, &known(&conditions(&[], None))), reported);
    }

    #[test]
    fn conditions_have_the_reasons_of_upstream() {
        let memory = ("MemoryPressure", "False", "KubeletHasSufficientMemory");
        let disk = ("DiskPressure", "False", "KubeletHasNoDiskPressure");
        let pid = ("PIDPressure", "False", "KubeletHasSufficientPID");
        let ready = ("Ready", "True", "KubeletReady");
        check(&[], None, [memory, disk, pid, ready], &[]);
        let no_memory = ("MemoryPressure", "True", "KubeletHasInsufficientMemory");
        check(&[NodePressure::Memory], None, [no_memory, disk, pid, ready], &["NodeHasInsufficientMemory"]);
        let (no_disk, no_pid) =
            (("DiskPressure", "True", "KubeletHasDiskPressure"), ("PIDPressure", "True", "KubeletHasInsufficientPID"));
        let not_ready = ("Ready", "False", "KubeletNotReady");
        check(
            &[NodePressure::Disk, NodePressure::Pid],
            Some("no runtime"),
            [memory, no_disk, no_pid, not_ready],
            &["NodeHasDiskPressure", "NodeHasInsufficientPID", "NodeNotReady"],
        );
        let first = events(&conditions(&[], None), &[]);
        assert_eq!(first, ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"]);
    }

    #[test]
    fn unchanged_condition_keeps_its_transition_time() {
        let known = known(&conditions(&[], None));
        let now = json!("2026-01-02T00:00:00Z");
        let time = |not_ready: Option<&str>| {
            let ready = conditions(&[], not_ready).pop().unwrap();
            set_timestamps(ready, &known, &now)["lastTransitionTime"].clone()
        };
        assert_eq!(time(None), json!("2026-01-01T00:00:00Z"));
        assert_eq!(time(Some("why")), now);
    }
}
