//! Plugins of an ADD that a killed Podium left running. They end, or are killed, before DEL runs: an ADD that continues
//! after DEL would leave its address allocated.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::{
    fs::{self, File},
    io::Read,
    time::Duration,
};

/// Time for a plugin to end, and to end after it is killed.
const GRACE: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum size of an environment that is searched, in bytes.
const MAX_ENVIRONMENT: u64 = 1 << 20;

/// Waits until no plugin runs for a sandbox, and kills those that do not end.
pub(crate) async fn end(sandbox: &str) {
    if wait(sandbox).await {
        return;
    }
    for pid in plugins(sandbox) {
        // Looked at again, with the process pinned: the ID may have been reused.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if is_plugin_of(pid, sandbox) {
            tracing::warn!(sandbox, pid = pid.as_raw_nonzero(), "killing a CNI plugin of an earlier process");
            // It may have ended.
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
    if !wait(sandbox).await {
        tracing::warn!(sandbox, "a CNI plugin of an earlier process does not end");
    }
}

async fn wait(sandbox: &str) -> bool {
    let ended = async {
        while !plugins(sandbox).is_empty() {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    };
    tokio::time::timeout(GRACE, ended).await.is_ok()
}

/// Returns the processes with the sandbox in their environment: plugins, and programs that they run.
fn plugins(sandbox: &str) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| is_plugin_of(*pid, sandbox)).collect()
}

fn is_plugin_of(pid: Pid, sandbox: &str) -> bool {
    let mut environment = Vec::new();
    let file = File::open(format!("/proc/{}/environ", pid.as_raw_nonzero()));
    // A process that ends meanwhile has no environment.
    if file.and_then(|file| file.take(MAX_ENVIRONMENT).read_to_end(&mut environment)).is_err() {
        return false;
    }
    let wanted = format!("CNI_CONTAINERID={sandbox}");
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}
