//! Table columns and rows of Pods (upstream's `podColumnDefinitions` and `printPod`).

use crate::{Column, Row, age, age_cell, column, name_cell};
use serde_json::{Value, json};

/// Columns of the table.
pub(super) const COLUMNS: &[Column] = &[
    Column { format: "name", ..column("Name", "string", 0) },
    column("Ready", "string", 0),
    column("Status", "string", 0),
    column("Restarts", "string", 0),
    column("Age", "string", 0),
    column("IP", "string", 1),
    column("Node", "string", 1),
    column("Nominated Node", "string", 1),
    column("Readiness Gates", "string", 1),
];

/// Ready containers, restarts and the last restart of a Pod.
#[derive(Default)]
struct ContainerCounts {
    ready: usize,
    restarts: i64,
    last_restart: Option<String>,
}

impl ContainerCounts {
    fn add(&mut self, status: &Value) {
        self.restarts += status["restartCount"].as_i64().unwrap_or(0);
        let finished = status["lastState"]["terminated"]["finishedAt"].as_str().map(str::to_owned);
        self.last_restart = self.last_restart.take().max(finished);
    }
}

pub(super) fn row(object: &Value, now: jiff::Timestamp) -> Row {
    let (status, counts) = status_reason(object);
    let spec = &object["spec"];
    let init = spec["initContainers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let total = spec["containers"].as_array().map_or(0, Vec::len) + init.iter().filter(|c| is_sidecar(c)).count();
    let restarts = match &counts.last_restart {
        Some(at) if counts.restarts > 0 => format!("{} ({} ago)", counts.restarts, age(Some(at), now)),
        _ => counts.restarts.to_string(),
    };
    let or_none = |v: &Value| if v.as_str().unwrap_or("").is_empty() { json!("<none>") } else { v.clone() };
    let gates = spec["readinessGates"].as_array().map(Vec::as_slice).unwrap_or_default();
    let passed =
        gates.iter().filter(|g| condition(object, g["conditionType"].as_str().unwrap_or("")) == Some("True")).count();
    let cells = vec![
        name_cell(object),
        json!(format!("{}/{total}", counts.ready)),
        json!(status),
        json!(restarts),
        age_cell(object, now),
        or_none(&object["status"]["podIP"]),
        or_none(&spec["nodeName"]),
        or_none(&object["status"]["nominatedNodeName"]),
        if gates.is_empty() { json!("<none>") } else { json!(format!("{passed}/{}", gates.len())) },
    ];
    let done = match object["status"]["phase"].as_str() {
        Some("Succeeded") => Some("The pod has completed successfully."),
        Some("Failed") => Some("The pod failed."),
        _ => None,
    };
    let reason = object["status"]["phase"].clone();
    let conditions = done.map(|m| json!({"type": "Completed", "status": "True", "reason": reason, "message": m}));
    Row { cells, conditions: conditions.into_iter().collect() }
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let all = object["status"]["conditions"].as_array()?;
    all.iter().find(|c| c["type"] == kind)?["status"].as_str()
}

fn status_reason(object: &Value) -> (String, ContainerCounts) {
    let status = &object["status"];
    let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
    let mut reason = if text(&status["reason"]).is_empty() { text(&status["phase"]) } else { text(&status["reason"]) };
    let gated = |c: &Value| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated";
    if status["conditions"].as_array().into_iter().flatten().any(gated) {
        "SchedulingGated".clone_into(&mut reason);
    }
    let mut counts = ContainerCounts::default();
    let initializing = init_container_reason(object, &mut counts);
    if let Some(init) = &initializing {
        reason.clone_from(init);
    }
    if initializing.is_none() || condition(object, "Initialized") == Some("True") {
        if initializing.is_none() {
            let ready = counts.ready;
            let sidecars = sidecar_statuses(object);
            counts = ContainerCounts { ready, ..ContainerCounts::default() };
            sidecars.iter().for_each(|s| counts.add(s));
        }
        reason = container_reason(object, reason, &mut counts);
    }
    if !object["metadata"]["deletionTimestamp"].is_null() {
        if text(&status["reason"]) == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if !matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")) {
            "Terminating".clone_into(&mut reason);
        }
    }
    (reason, counts)
}

fn sidecar_statuses(object: &Value) -> Vec<&Value> {
    let specs = object["spec"]["initContainers"].as_array();
    let sidecar = |name: &Value| specs.into_iter().flatten().any(|c| c["name"] == *name && is_sidecar(c));
    object["status"]["initContainerStatuses"].as_array().into_iter().flatten().filter(|s| sidecar(&s["name"])).collect()
}

/// Returns the reason of the first init container that is not done.
fn init_container_reason(object: &Value, counts: &mut ContainerCounts) -> Option<String> {
    let specs = object["spec"]["initContainers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let statuses = object["status"]["initContainerStatuses"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, s) in statuses.iter().enumerate() {
        counts.add(s);
        let (terminated, waiting) = (&s["state"]["terminated"], &s["state"]["waiting"]);
        if terminated["exitCode"] == 0 {
            continue;
        }
        if specs.iter().any(|c| c["name"] == s["name"] && is_sidecar(c)) && s["started"] == true {
            counts.ready += usize::from(s["ready"] == true);
            continue;
        }
        return Some(if terminated.is_object() {
            format!("Init:{}", terminated_reason(terminated))
        } else if let Some(reason) = waiting["reason"].as_str().filter(|r| !r.is_empty() && *r != "PodInitializing") {
            format!("Init:{reason}")
        } else {
            format!("Init:{i}/{}", specs.len())
        });
    }
    None
}

fn terminated_reason(terminated: &Value) -> String {
    match (terminated["reason"].as_str().unwrap_or(""), terminated["signal"].as_i64().unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn container_reason(object: &Value, mut reason: String, counts: &mut ContainerCounts) -> String {
    let (mut running, mut failure) = (false, None);
    for s in object["status"]["containerStatuses"].as_array().into_iter().flatten().rev() {
        counts.add(s);
        let state = &s["state"];
        if let Some(r) = state["waiting"]["reason"].as_str().filter(|r| !r.is_empty()) {
            r.clone_into(&mut reason);
        } else if state["terminated"].is_object() {
            reason = terminated_reason(&state["terminated"]);
            if state["terminated"]["exitCode"] != 0 {
                failure = Some(reason.clone());
            }
        } else if s["ready"] == true && state["running"].is_object() {
            running = true;
            counts.ready += 1;
        }
    }
    if reason == "Completed" {
        if running && condition(object, "Ready") == Some("True") {
            return "Running".to_owned();
        }
        return failure.unwrap_or_else(|| if running { "NotReady".to_owned() } else { reason });
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(object: &Value, expected: [&str; 3]) {
        let row = row(object, jiff::Timestamp::UNIX_EPOCH);
        let got: Vec<&str> = row.cells[1..4].iter().filter_map(Value::as_str).collect();
        assert_eq!(got, expected);
    }

    fn pod(spec: Value, status: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": spec, "status": status})
    }

    #[test]
    fn status_column_follows_print_pod() {
        let one = json!({"containers": [{"name": "c"}]});
        let ready = json!([{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}]);
        let running = json!({"name": "c", "ready": true, "restartCount": 0, "state": {"running": {}}});
        check(&pod(one.clone(), json!({"phase": "Pending"})), ["0/1", "Pending", "0"]);
        check(
            &pod(one.clone(), json!({"phase": "Running", "conditions": ready, "containerStatuses": [running]})),
            ["1/1", "Running", "0"],
        );
        let crash = json!({"name": "c", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                           "lastState": {"terminated": {"finishedAt": "1969-12-31T23:55:00Z"}}});
        check(
            &pod(one.clone(), json!({"phase": "Running", "containerStatuses": [crash]})),
            ["0/1", "CrashLoopBackOff", "3 (5m ago)"],
        );
        let done =
            json!({"name": "c", "restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        check(&pod(one.clone(), json!({"phase": "Succeeded", "containerStatuses": [done]})), ["0/1", "Completed", "0"]);
        let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
        check(&pod(one, json!({"phase": "Pending", "conditions": gated})), ["0/1", "SchedulingGated", "0"]);
        let init = json!({"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "c"}]});
        let at = json!([{"name": "i", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}, {"name": "j", "restartCount": 0, "state": {"running": {}}}]);
        check(&pod(init, json!({"phase": "Pending", "initContainerStatuses": at})), ["0/1", "Init:1/2", "0"]);
    }

    #[test]
    fn deleted_pod_is_terminating_or_unknown_if_node_is_lost() {
        let one = json!({"containers": [{"name": "c"}]});
        for (status, shown) in [
            (json!({"phase": "Running"}), "Terminating"),
            (json!({"phase": "Running", "reason": "NodeLost"}), "Unknown"),
            (json!({"phase": "Failed", "reason": "Evicted"}), "Evicted"),
        ] {
            let mut object = pod(one.clone(), status);
            object["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
            check(&object, ["0/1", shown, "0"]);
        }
    }
}
