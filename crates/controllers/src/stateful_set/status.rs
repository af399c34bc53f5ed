//! Status of a StatefulSet (`updateStatus`, `completeRollingUpdate`).

use super::plan::{StatefulSetSnapshot, is_ready, revision};
use crate::pod_summary::PodSummary;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};

/// Returns the status. `rolled` is the number of Pods just deleted for the rolling update, which the informer still
/// shows.
pub(super) fn status(
    set: &StatefulSet,
    snapshot: &StatefulSetSnapshot<'_>,
    rolled: i32,
    collisions: i32,
) -> StatefulSetStatus {
    let count = |is: &dyn Fn(&PodSummary) -> bool| {
        i32::try_from(snapshot.pods.values().filter(|pod| is(pod)).count()).unwrap_or(i32::MAX)
    };
    let after = snapshot.spec.min_ready_seconds.unwrap_or(0);
    let at_revision = |name: &str| count(&|pod| !pod.terminating && revision(pod) == name);
    let (replicas, ready) = (count(&|_| true), count(&is_ready));
    let available = count(&|pod| is_ready(pod) && pod.is_available(after, snapshot.now));
    let (mut current, updated) = ((at_revision(snapshot.current) - rolled).max(0), at_revision(snapshot.update));
    let mut name = snapshot.current;
    let desired = i32::try_from(snapshot.count()).unwrap_or(i32::MAX);
    if snapshot.is_rolling() && [updated, ready, replicas] == [desired; 3] {
        (current, name) = (updated, snapshot.update);
    }
    // Go omits zeros, so the stored status has none.
    let some = |n: i32| Some(n).filter(|n| *n != 0);
    StatefulSetStatus {
        replicas,
        ready_replicas: some(ready),
        available_replicas: Some(available),
        current_replicas: some(current),
        updated_replicas: some(updated),
        current_revision: Some(name.to_owned()),
        update_revision: Some(snapshot.update.to_owned()),
        collision_count: Some(collisions),
        observed_generation: set.metadata.generation,
        conditions: None,
    }
}
