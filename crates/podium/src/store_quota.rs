//! Storage quota: its default, and the Events for its alarm.

use crate::node_event;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use std::path::Path;
use tokio::sync::watch;

/// Default of etcd's `--quota-backend-bytes`.
const MAX_DEFAULT: u64 = 2 << 30;
/// Divisor of the memory for the default quota. All objects are kept in memory.
const MEMORY_DIVISOR: u64 = 4;
/// Lower bound of the default quota, enough for a small cluster.
const MIN_DEFAULT: u64 = 64 << 20;

/// Returns the quota in bytes; 0 selects the default, as in etcd.
pub(crate) fn bytes(configured: u64) -> u64 {
    match configured {
        0 => default_bytes(memory(Path::new("/proc"), Path::new("/sys/fs/cgroup"))),
        configured => configured,
    }
}

fn default_bytes(memory: Option<u64>) -> u64 {
    memory.map_or(MAX_DEFAULT, |memory| (memory / MEMORY_DIVISOR).clamp(MIN_DEFAULT, MAX_DEFAULT))
}

/// Returns the memory available to this process: the machine's, or the limit of its cgroup.
fn memory(proc: &Path, cgroups: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(proc.join("meminfo")).ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    let machine: Option<u64> = total.map(|kilobytes: u64| kilobytes << 10);
    // `0::/path` is the cgroup of the process (cgroup v2).
    let cgroup = std::fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let groups = cgroups.join(path);
    let groups = groups.ancestors().take_while(|group| group.starts_with(cgroups));
    let limits = groups.filter_map(|group| std::fs::read_to_string(group.join("memory.max")).ok()?.trim().parse().ok());
    limits.chain(machine).min()
}

/// Creates an Event about the Node when the quota alarm is raised, and when it is disarmed. Never returns.
pub(crate) async fn report(mut alarm: watch::Receiver<bool>, client: Client, node: String) {
    let mut reported = false;
    loop {
        let is_raised = *alarm.borrow_and_update();
        if is_raised != reported {
            node_event::create(&client, &event(&node, is_raised)).await;
            reported = is_raised;
        }
        if alarm.changed().await.is_err() {
            return;
        }
    }
}

fn event(node: &str, is_raised: bool) -> Event {
    let (kind, reason, message) = match is_raised {
        true => (
            "Warning",
            "StoreQuotaExceeded",
            "The API server refuses to create and enlarge objects: the quota of its store is used up. Delete objects, or \
             start Podium with a larger --quota-backend-bytes",
        ),
        false => ("Normal", "StoreQuotaRecovered", "The API server accepts all writes again"),
    };
    node_event::event(node, kind, reason, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_quota_is_a_quarter_of_memory_within_bounds() {
        assert_eq!(default_bytes(None), 2 << 30);
        assert_eq!(default_bytes(Some(64 << 30)), 2 << 30);
        assert_eq!(default_bytes(Some(4 << 30)), 1 << 30);
        assert_eq!(default_bytes(Some(100 << 20)), 64 << 20);
        assert_eq!(bytes(7), 7);
        assert!(bytes(0) >= MIN_DEFAULT);
    }

    #[test]
    fn memory_is_the_minimum_of_machine_and_cgroup_limits() {
        let dir = tempfile::tempdir().unwrap();
        let (proc, cgroups) = (dir.path().join("proc"), dir.path().join("cgroup"));
        std::fs::create_dir_all(proc.join("self")).unwrap();
        std::fs::create_dir_all(cgroups.join("a.slice/b.service")).unwrap();
        assert_eq!(memory(&proc, &cgroups), None);
        std::fs::write(proc.join("meminfo"), "MemTotal:        4096 kB\nMemFree: 1 kB\n").unwrap();
        assert_eq!(memory(&proc, &cgroups), Some(4 << 20));
        std::fs::write(proc.join("self/cgroup"), "0::/a.slice/b.service\n").unwrap();
        std::fs::write(cgroups.join("a.slice/b.service/memory.max"), "max\n").unwrap();
        std::fs::write(cgroups.join("a.slice/memory.max"), "1048576\n").unwrap();
        assert_eq!(memory(&proc, &cgroups), Some(1 << 20));
    }

    #[test]
    fn quota_event_has_reason_node_and_timestamp() {
        for (is_raised, reason) in [(true, "StoreQuotaExceeded"), (false, "StoreQuotaRecovered")] {
            let event = event("n", is_raised);
            assert_eq!((event.reason.as_deref(), event.involved_object.name.as_deref()), (Some(reason), Some("n")));
            assert!(event.last_timestamp.is_some());
        }
    }
}
