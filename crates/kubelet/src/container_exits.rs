//! Early container exits: an exit is reported when the process ends, some 40 ms before the runtime has finished its
//! cleanup.
//!
//! containerd's event has the exit code. The termination message is complete by then, because the process no longer
//! writes.
//! The log may be incomplete: log readers wait for the runtime ([`wait_log_complete`]), and so does a status that
//! needs the
//! log, or facts that only the runtime has.

use crate::{
    Shared,
    logs::{self, KILLED},
};
use lifecycle::{ContainerEvent, ContainerExit, Pod, PodLifecycleEvent};
use runtime::Exit;
use std::time::Duration;

/// Maximum wait for the last lines of a log.
const LOG_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the event for a runtime's exit event, or `None` if only the runtime's container status has all facts.
pub(crate) async fn early_exit(shared: &Shared, pod: &Pod, id: &str, exit: &Exit) -> Option<PodLifecycleEvent> {
    // A failed start reports its own exit, and the event may be about an earlier container.
    let started_at = pod.running_since(id)?;
    let container = pod.name_of(id)?;
    let (_, attempt) = pod.container_id(&container, false)?;
    let message = logs::read_termination_message(shared, pod, &container, attempt).await;
    let needs_log = message.is_empty() && logs::falls_back_to_logs(pod, &container, exit.code);
    let oom_kills = shared.cgroups.oom_kills(pod.object(), id);
    if needs_log
        || !has_own_pid_namespace(pod, &container)
        || may_be_oom_killed(oom_kills, exit.code, has_memory_limit(pod, &container))
    {
        return None;
    }
    let exit = ContainerExit {
        code: exit.code,
        reason: exit.reason.clone(),
        message,
        started_at: Some(started_at),
        finished_at: exit.finished_at,
    };
    Some(PodLifecycleEvent::Container { container, event: ContainerEvent::Reaped { id: id.to_owned(), exit } })
}

/// Returns whether all processes of a container end with its first one: the kernel ends a PID namespace as a whole.
/// With a
/// shared PID namespace the runtime kills the others, which may outlive the event. An ephemeral container may have
/// joined
/// the namespace of another container.
fn has_own_pid_namespace(pod: &Pod, container: &str) -> bool {
    let spec = crate::pods::spec(pod);
    let shared = spec.share_process_namespace == Some(true) || spec.host_pid == Some(true);
    !shared && api::pod::containers(spec).any(|(_, c)| c.name == container)
}

/// Returns whether the runtime may report `OOMKilled`: the kernel counted an OOM kill in the container's cgroup
/// (before it
/// sends SIGKILL), or the cgroup is already removed and the container had a limit or was killed.
fn may_be_oom_killed(oom_kills: Option<u64>, code: i32, limited: bool) -> bool {
    oom_kills.map_or(limited || code == KILLED, |kills| kills > 0)
}

/// Returns whether a container or its Pod has a memory limit.
pub(crate) fn has_memory_limit(pod: &Pod, container: &str) -> bool {
    let resources = pod.spec_of(container).and_then(|c| c.resources.as_ref());
    let of_pod = crate::pods::spec(pod).resources.as_ref();
    resources.into_iter().chain(of_pod).any(|r| r.limits.as_ref().is_some_and(|limits| limits.contains_key("memory")))
}

/// Waits until the log of an exited container is complete, which is when the runtime finished its cleanup.
pub(crate) async fn wait_log_complete(shared: &Shared, uid: &str, id: &str) {
    let Some(mut state) = shared.pods.by_uid(uid).map(|handle| handle.state) else { return };
    // The state of a removed Pod does not change any more: its log is as complete as it gets.
    if tokio::time::timeout(LOG_TIMEOUT, state.wait_for(|pod| !pod.is_cleaning_up(id))).await.is_err() {
        tracing::warn!(container = id, "runtime did not finish container cleanup, reading the log as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod as ApiPod;
    use serde_json::{Value, json};
    use std::sync::Arc;

    #[test]
    fn oom_kill_is_possible_if_counted_or_cgroup_is_gone() {
        let check = |oom_kills, code, limited, expected| {
            assert_eq!(may_be_oom_killed(oom_kills, code, limited), expected, "{oom_kills:?} {code} {limited}");
        };
        check(Some(0), 0, true, false);
        check(Some(0), 0, false, false);
        check(Some(0), KILLED, true, false);
        check(Some(1), 0, true, true);
        // The node as a whole was out of memory.
        check(Some(1), KILLED, false, true);
        check(None, 0, true, true);
        check(None, 0, false, false);
        check(None, KILLED, false, true);
    }

    fn pod(spec: &Value) -> Pod {
        let object: ApiPod = serde_json::from_value(json!({"spec": spec})).unwrap();
        Pod::new(Arc::new(object), jiff::Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn shared_pid_namespace_is_detected() {
        let check = |fields: Value, container: &str, expected: bool| {
            let mut spec = json!({"containers": [{"name": "c"}], "initContainers": [{"name": "i"}],
                "ephemeralContainers": [{"name": "e", "targetContainerName": "c"}]});
            spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            assert_eq!(has_own_pid_namespace(&pod(&spec), container), expected, "{fields} {container}");
        };
        check(json!({}), "c", true);
        check(json!({"shareProcessNamespace": false, "hostPID": false}), "i", true);
        check(json!({}), "e", false);
        check(json!({"shareProcessNamespace": true}), "c", false);
        check(json!({"hostPID": true}), "c", false);
    }

    #[test]
    fn memory_limit_of_container_or_pod_is_detected() {
        let check = |container: Value, of_pod: Value, expected: bool| {
            let spec = json!({"resources": of_pod, "containers": [{"name": "c", "resources": container},
                {"name": "d", "resources": {"limits": {"memory": "1Mi"}}}]});
            assert_eq!(has_memory_limit(&pod(&spec), "c"), expected, "{container} {of_pod}");
        };
        check(json!({}), json!({}), false);
        check(json!({"requests": {"memory": "1Mi"}, "limits": {"cpu": "1"}}), json!({}), false);
        check(json!({"limits": {"memory": "1Mi"}}), json!({}), true);
        check(json!({}), json!({"limits": {"memory": "1Mi"}}), true);
    }
}
