//! The end of a container is told as soon as its process is gone, some 40 ms before the runtime is done with it.
//!
//! containerd's event says how the process ended. What the status says besides is there as well by then: the process
//! writes no more into the file of its termination message. Only the log is not complete, so whoever reads it waits for
//! the runtime ([`log_is_complete`]), and so does a status that needs the log, or what the runtime alone knows.

use crate::{
    Shared,
    logs::{self, KILLED},
};
use lifecycle::{ContainerExit, ContainerFact, Event, Pod};
use runtime::Exit;
use std::time::Duration;

/// How long the reader of a log waits for its last lines.
const LAST_LINES: Duration = Duration::from_secs(10);

/// The fact that follows from a runtime's event; `None` where only the runtime's own answer tells all of it.
pub(crate) async fn at_once(shared: &Shared, pod: &Pod, id: &str, exit: &Exit) -> Option<Event> {
    // A start that failed has an end of its own, and the event may be about one that came before.
    let started_at = pod.running_since(id)?;
    let container = pod.name_of(id)?;
    let (_, attempt) = pod.container_id(&container, false)?;
    let message = logs::message(shared, pod, &container, attempt).await;
    let needs_log = message.is_empty() && logs::falls_back(pod, &container, exit.code);
    let oom_kills = shared.cgroups.oom_kills(pod.object(), id);
    if needs_log
        || !has_processes_of_its_own(pod, &container)
        || may_have_lacked_memory(oom_kills, exit.code, memory_is_limited(pod, &container))
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
    Some(Event::Container { container, fact: ContainerFact::Reaped { id: id.to_owned(), exit } })
}

/// Whether all of a container's processes are gone when its first one is: the kernel ends a process namespace as a whole.
/// Where it is shared, the runtime kills the others, and they may outlive the event by a moment. An ephemeral container
/// may have joined that of another.
fn has_processes_of_its_own(pod: &Pod, container: &str) -> bool {
    let spec = crate::pods::spec(pod);
    let shared = spec.share_process_namespace == Some(true) || spec.host_pid == Some(true);
    !shared && api::pod::containers(spec).any(|(_, c)| c.name == container)
}

/// Whether the runtime may say that it was lack of memory: the kernel has counted a kill in the container's cgroup (which it
/// does before it sends SIGKILL), or the cgroup is gone already, and the container had a limit or was killed.
fn may_have_lacked_memory(oom_kills: Option<u64>, code: i32, limited: bool) -> bool {
    oom_kills.map_or(limited || code == KILLED, |kills| kills > 0)
}

/// Whether a container, or its Pod as a whole, may use just so much memory.
pub(crate) fn memory_is_limited(pod: &Pod, container: &str) -> bool {
    let own = pod.spec_of(container).and_then(|c| c.resources.as_ref());
    let of_pod = crate::pods::spec(pod).resources.as_ref();
    own.into_iter().chain(of_pod).any(|r| r.limits.as_ref().is_some_and(|limits| limits.contains_key("memory")))
}

/// Waits until the log of a container whose process is gone has its last lines: until the runtime is done with it.
pub(crate) async fn log_is_complete(shared: &Shared, uid: &str, id: &str) {
    let Some(mut known) = shared.pods.by_uid(uid).map(|handle| handle.state) else { return };
    // Of a Pod that is gone nobody tells any more; what there is of the log is there.
    if tokio::time::timeout(LAST_LINES, known.wait_for(|pod| !pod.is_clearing(id))).await.is_err() {
        tracing::warn!(container = id, "the runtime does not say that a log is complete; it is read as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod as ApiPod;
    use serde_json::{Value, json};
    use std::sync::Arc;

    #[test]
    fn lack_of_memory_is_possible_where_the_kernel_says_so_or_says_nothing() {
        let check = |oom_kills, code, limited, expected| {
            assert_eq!(may_have_lacked_memory(oom_kills, code, limited), expected, "{oom_kills:?} {code} {limited}");
        };
        check(Some(0), 0, true, false);
        check(Some(0), 0, false, false);
        check(Some(0), KILLED, true, false);
        check(Some(1), 0, true, true);
        // Of a machine that lacks memory as a whole.
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
    fn processes_that_are_shared_may_outlive_their_first_one() {
        let check = |fields: Value, container: &str, expected: bool| {
            let mut spec = json!({"containers": [{"name": "c"}], "initContainers": [{"name": "i"}],
                "ephemeralContainers": [{"name": "e", "targetContainerName": "c"}]});
            spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            assert_eq!(has_processes_of_its_own(&pod(&spec), container), expected, "{fields} {container}");
        };
        check(json!({}), "c", true);
        check(json!({"shareProcessNamespace": false, "hostPID": false}), "i", true);
        check(json!({}), "e", false);
        check(json!({"shareProcessNamespace": true}), "c", false);
        check(json!({"hostPID": true}), "c", false);
    }

    #[test]
    fn memory_is_limited_by_the_container_or_by_its_pod() {
        let check = |container: Value, of_pod: Value, expected: bool| {
            let spec = json!({"resources": of_pod, "containers": [{"name": "c", "resources": container},
                {"name": "d", "resources": {"limits": {"memory": "1Mi"}}}]});
            assert_eq!(memory_is_limited(&pod(&spec), "c"), expected, "{container} {of_pod}");
        };
        check(json!({}), json!({}), false);
        check(json!({"requests": {"memory": "1Mi"}, "limits": {"cpu": "1"}}), json!({}), false);
        check(json!({"limits": {"memory": "1Mi"}}), json!({}), true);
        check(json!({}), json!({"limits": {"memory": "1Mi"}}), true);
    }
}
