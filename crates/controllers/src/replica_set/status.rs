//! Status of a ReplicaSet (`calculateStatus`).

use crate::{clock::truncate_to_seconds, pod_summary::PodSummary};
use jiff::Timestamp;
use k8s_openapi::{
    api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use std::{sync::Arc, time::Duration};

const REPLICA_FAILURE: &str = "ReplicaFailure";

pub(super) fn calculate_status(
    set: &ReplicaSet,
    spec: &ReplicaSetSpec,
    claimed: &[Arc<PodSummary>],
    failure: Option<(&str, String)>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let old_status = set.status.clone().unwrap_or_default();
    let labels = spec.template.as_ref().and_then(|t| t.metadata.as_ref()?.labels.clone()).unwrap_or_default();
    let min_ready_seconds = spec.min_ready_seconds.unwrap_or(0);
    let active = || claimed.iter().filter(|m| m.active);
    let count =
        |is: &dyn Fn(&PodSummary) -> bool| i32::try_from(active().filter(|m| is(m)).count()).unwrap_or(i32::MAX);
    // Go omits zeros, so the stored status has none.
    let some = |n: i32| Some(n).filter(|n| *n != 0);
    let mut conditions = old_status.conditions.unwrap_or_default();
    match (failure, conditions.iter().any(|c| c.type_ == REPLICA_FAILURE)) {
        (Some((reason, message)), false) => conditions.push(ReplicaSetCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(Time(truncate_to_seconds(now))),
        }),
        (None, true) => conditions.retain(|c| c.type_ != REPLICA_FAILURE),
        _ => {}
    }
    let terminating = claimed.iter().filter(|m| m.terminating && !m.is_terminal());
    ReplicaSetStatus {
        replicas: count(&|_| true),
        fully_labeled_replicas: some(count(&|m| labels.iter().all(|(k, v)| m.labels.get(k) == Some(v)))),
        ready_replicas: some(count(&|m| m.ready.is_some())),
        available_replicas: some(count(&|m| m.is_available(min_ready_seconds, now))),
        terminating_replicas: Some(i32::try_from(terminating.count()).unwrap_or(i32::MAX)),
        observed_generation: set.metadata.generation,
        conditions: Some(conditions).filter(|c| !c.is_empty()),
    }
}

/// Returns the time until the next ready Pod is available.
pub(super) fn next_availability(
    claimed: &[Arc<PodSummary>],
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    claimed.iter().filter(|m| m.active).filter_map(|m| m.time_until_available(min_ready_seconds, now)).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(ready: Option<i64>, labels: &[(&str, &str)]) -> PodSummary {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let ready = ready.map(|s| Timestamp::from_second(s).unwrap());
        PodSummary { active: true, ready, labels, ..PodSummary::default() }
    }

    fn set(min_ready_seconds: i32) -> ReplicaSet {
        let spec = serde_json::json!({"minReadySeconds": min_ready_seconds, "selector": {}, "template": {"metadata": {"labels": {"a": "b"}}}});
        serde_json::from_value(serde_json::json!({"metadata": {"generation": 3}, "spec": spec})).unwrap()
    }

    #[track_caller]
    fn check(min_ready_seconds: i32, claimed: &[PodSummary], expected: [i32; 5]) {
        let claimed: Vec<Arc<PodSummary>> = claimed.iter().cloned().map(Arc::new).collect();
        let (set, now) = (set(min_ready_seconds), Timestamp::from_second(100).unwrap());
        let got = calculate_status(&set, set.spec.as_ref().unwrap(), &claimed, None, now);
        let number = |n: Option<i32>| n.unwrap_or(0);
        let got = [
            got.replicas,
            number(got.fully_labeled_replicas),
            number(got.ready_replicas),
            number(got.available_replicas),
            number(got.terminating_replicas),
        ];
        assert_eq!(got, expected);
    }

    #[test]
    fn status_counts_pods_by_state() {
        let ending = PodSummary { active: false, terminating: true, ..member(Some(1), &[]) };
        let ended = PodSummary { active: false, phase: "Failed".to_owned(), ..member(None, &[]) };
        check(0, &[], [0; 5]);
        check(0, &[member(None, &[("a", "b")]), member(Some(100), &[])], [2, 1, 1, 1, 0]);
        check(10, &[member(Some(91), &[]), member(Some(90), &[])], [2, 0, 2, 1, 0]);
        check(0, &[ending, ended, member(Some(5), &[])], [1, 0, 1, 1, 1]);
    }

    #[test]
    fn replica_failure_condition_is_removed_after_success() {
        let (mut set, now) = (set(0), Timestamp::from_second(100).unwrap());
        let spec = set.spec.clone().unwrap();
        let failed = calculate_status(&set, &spec, &[], Some(("FailedCreate", "no room".to_owned())), now);
        let conditions = failed.conditions.clone().unwrap();
        assert_eq!(
            (conditions[0].type_.as_str(), conditions[0].reason.as_deref()),
            (REPLICA_FAILURE, Some("FailedCreate"))
        );
        set.status = Some(failed);
        assert_eq!(calculate_status(&set, &spec, &[], None, now).conditions, None);
    }

    #[test]
    fn next_availability_is_that_of_the_first_ready_pod() {
        let now = Timestamp::from_second(100).unwrap();
        let claimed = [member(Some(95), &[]), member(Some(92), &[]), member(None, &[])].map(Arc::new);
        assert_eq!(next_availability(&claimed, 10, now), Some(Duration::from_secs(2)));
        assert_eq!(next_availability(&claimed, 0, now), None);
    }
}
