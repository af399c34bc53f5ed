//! Replays histories dumped on a node (`podium explain POD --history`) and compares plan and status.
//!
//! To turn the dump of a misbehaving Pod into a test, put it into `tests/histories` after the fix; `UPDATE_EXPECT=1`
//! rewrites its last line with the new result. New fields of the Pod state need a serde default for these dumps, as for
//! checkpoints of an older kubelet.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use k8s_openapi::api::core::v1::PodStatus;
use lifecycle::{HistoryRecord, Plan, ReplayError, replay};
use std::{fs, path::PathBuf};

/// Returns the replayed plan and status.
#[track_caller]
fn check(name: &str, events: usize) -> (Plan, PodStatus) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/histories").join(name);
    let dump = fs::read_to_string(&path).unwrap();
    let replayed = replay(&dump).unwrap();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let (plan, status) = replayed.replayed.clone();
        let (before, last) = dump.trim_end().rsplit_once('\n').unwrap();
        let HistoryRecord::After { at, .. } = serde_json::from_str(last).unwrap() else { unreachable!() };
        let last = serde_json::to_string(&HistoryRecord::After { at, plan, status: Box::new(status) }).unwrap();
        fs::write(path, format!("{before}\n{last}\n")).unwrap();
    } else {
        assert_eq!(replayed.replayed, replayed.recorded, "{name}");
    }
    assert_eq!(replayed.events, events, "{name}");
    replayed.replayed
}

#[test]
fn replay_of_pod_that_fails_once_matches() {
    let (plan, status) = check("pod_that_fails_once.jsonl", 36);
    assert_eq!((plan.actions.len(), plan.wake), (0, None));
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
    assert_eq!(status.container_statuses.unwrap()[0].restart_count, 1);
}

#[test]
fn replay_of_invalid_history_is_rejected() {
    assert!(matches!(replay(""), Err(ReplayError::Incomplete)));
    assert!(matches!(replay("{}"), Err(ReplayError::Line(1, _))));
    let event_line = r#"{"fact":{"at":"2026-01-01T00:00:00Z","event":"Gone"}}"#;
    assert!(matches!(replay(event_line), Err(ReplayError::Incomplete)));
}
