//! The kernel's own word on who was killed for lack of memory.
//!
//! containerd hears of it through a notification that it asks for once a container runs: what is killed in its first
//! moments is told as any other SIGKILL, and the reason is lost. The kernel's log names the container's cgroup.

use std::{
    fs::OpenOptions,
    io::{ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// The longest record that the kernel gives (`PRINTK_MESSAGE_MAX`, prefix included).
const RECORD: usize = 8192;

/// Whether the kernel's log says so of this container. Without access to the log nobody knows, and it is no.
pub(crate) fn killed(container: &str) -> bool {
    told(Path::new("/dev/kmsg"), container)
}

fn told(log: &Path, container: &str) -> bool {
    let Ok(mut log) = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(log) else {
        return false;
    };
    let mut record = [0; RECORD];
    loop {
        match log.read(&mut record) {
            Ok(0) => return false,
            Ok(read) if says(&String::from_utf8_lossy(&record[..read]), container) => return true,
            // What was overwritten while we read is skipped.
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
            Err(_) => return false,
        }
    }
}

/// Whether a record (of `dump_oom_victim`) tells of a victim in the cgroup of this container, which both cgroup drivers
/// name after it.
fn says(record: &str, container: &str) -> bool {
    let Some((_, victim)) = record.split_once("oom-kill:").and_then(|(_, text)| text.split_once("task_memcg=")) else {
        return false;
    };
    victim.split(',').next().is_some_and(|cgroup| cgroup.contains(container))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_names_the_cgroup_of_its_victim() {
        let id = "bcc005bc0f49";
        let check = |record: &str, expected: bool| assert_eq!(says(record, id), expected, "{record}");
        let cgroup = "6,971,40291324631,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=bcc005bc0f49,\
                      mems_allowed=0,oom_memcg=/kubepods/pod5,task_memcg=";
        check(&format!("{cgroup}/kubepods/pod5/bcc005bc0f49,task=dd,pid=14594,uid=0"), true);
        check(&format!("{cgroup}/kubepods.slice/cri-containerd-bcc005bc0f49.scope,task=dd,pid=1,uid=0"), true);
        // The allocation of one container may end another's process.
        check(&format!("{cgroup}/kubepods/pod5/aaaaaaaaaaaa,task=dd,pid=14594,uid=0"), false);
        check("6,972,1,-;Memory cgroup out of memory: Killed process 14594 (bcc005bc0f49)", false);
        check("", false);
    }

    #[test]
    fn a_log_is_read_to_its_end() {
        let log = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(log.path(), "6,1,1,-;oom-kill:task_memcg=/kubepods/pod5/abc,task=dd").unwrap();
        assert!(told(log.path(), "abc"));
        assert!(!told(log.path(), "def"));
        assert!(!told(Path::new("/nowhere"), "abc"));
    }
}
