//! OOM kills in the kernel log.
//!
//! containerd subscribes to OOM notifications after a container has started. An OOM kill right after the start is
//! reported
//! as a plain SIGKILL, without the reason. The kernel log has the cgroup of the victim.

use std::{
    fs::OpenOptions,
    io::{ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Maximum size of a kernel log record (`PRINTK_MESSAGE_MAX`, including the prefix).
const MAX_RECORD_SIZE: usize = 8192;

/// Returns whether the kernel log has an OOM kill of this container. False without access to the log.
pub(crate) fn was_oom_killed(container: &str) -> bool {
    log_contains_kill(Path::new("/dev/kmsg"), container)
}

fn log_contains_kill(log: &Path, container: &str) -> bool {
    let Ok(mut log) = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(log) else {
        return false;
    };
    let mut record = [0; MAX_RECORD_SIZE];
    loop {
        match log.read(&mut record) {
            Ok(0) => return false,
            Ok(read) if is_kill_of(&String::from_utf8_lossy(&record[..read]), container) => return true,
            // Records that were overwritten meanwhile are skipped.
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
            Err(_) => return false,
        }
    }
}

/// Returns whether a record (of `dump_oom_victim`) is about a victim in the cgroup of this container. Both cgroup
/// drivers
/// use its id as the cgroup's name.
fn is_kill_of(record: &str, container: &str) -> bool {
    let Some((_, victim)) = record.split_once("oom-kill:").and_then(|(_, text)| text.split_once("task_memcg=")) else {
        return false;
    };
    victim.split(',').next().is_some_and(|cgroup| cgroup.contains(container))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oom_kill_record_matches_the_victims_cgroup() {
        let id = "bcc005bc0f49";
        let check = |record: &str, expected: bool| assert_eq!(is_kill_of(record, id), expected, "{record}");
        let cgroup = "6,971,40291324631,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=bcc005bc0f49,\
                      mems_allowed=0,oom_memcg=/kubepods/pod5,task_memcg=";
        check(&format!("{cgroup}/kubepods/pod5/bcc005bc0f49,task=dd,pid=14594,uid=0"), true);
        check(&format!("{cgroup}/kubepods.slice/cri-containerd-bcc005bc0f49.scope,task=dd,pid=1,uid=0"), true);
        // An allocation in one container may kill a process of another one.
        check(&format!("{cgroup}/kubepods/pod5/aaaaaaaaaaaa,task=dd,pid=14594,uid=0"), false);
        check("6,972,1,-;Memory cgroup out of memory: Killed process 14594 (bcc005bc0f49)", false);
        check("", false);
    }

    #[test]
    fn kernel_log_is_read_to_its_end() {
        let log = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(log.path(), "6,1,1,-;oom-kill:task_memcg=/kubepods/pod5/abc,task=dd").unwrap();
        assert!(log_contains_kill(log.path(), "abc"));
        assert!(!log_contains_kill(log.path(), "def"));
        assert!(!log_contains_kill(Path::new("/nowhere"), "abc"));
    }
}
