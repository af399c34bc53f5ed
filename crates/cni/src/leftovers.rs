//! Plugins of an ADD that a killed Podium left running. They end, or are killed, before DEL runs: an ADD that continues
//! after DEL would leave its address allocated.

use crate::{Error, operations::blocking};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::Instant;

/// Time for a plugin to end, and to end after it is killed.
const GRACE: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum size of an environment that is searched, in bytes.
const MAX_ENVIRONMENT: u64 = 1 << 20;

/// Waits until no plugin runs for a sandbox, and kills those that do not end.
///
/// # Errors
/// When some still run: DEL must wait.
pub(crate) async fn end(sandbox: &str) -> Result<(), Error> {
    end_within(sandbox, GRACE).await
}

async fn end_within(sandbox: &str, grace: Duration) -> Result<(), Error> {
    let kill_time = Instant::now() + grace;
    loop {
        let now = Instant::now();
        let (id, kills) = (sandbox.to_owned(), now >= kill_time);
        let running = blocking(move || Ok(scan(&id, kills))).await?;
        if running == 0 {
            return Ok(());
        }
        if now >= kill_time + grace {
            return Err(Error::PluginsRunning { sandbox: sandbox.to_owned(), running });
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Returns the number of a sandbox's plugins, which may be killed, and may have started others meanwhile.
fn scan(sandbox: &str, kills: bool) -> usize {
    let plugins = plugins(sandbox);
    for pid in plugins.iter().filter(|_| kills) {
        // Looked at again, with the process pinned: the ID may have been reused.
        let Ok(process) = pidfd_open(*pid, PidfdFlags::empty()) else { continue };
        if is_plugin_of(*pid, sandbox) {
            tracing::warn!(sandbox, pid = pid.as_raw_nonzero(), "killing a CNI plugin of an earlier process");
            // It may have ended.
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
    plugins.len()
}

/// Returns the processes with the sandbox in their environment: plugins, and programs that they run.
fn plugins(sandbox: &str) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| is_plugin_of(*pid, sandbox)).collect()
}

fn is_plugin_of(pid: Pid, sandbox: &str) -> bool {
    let dir = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    // Containers choose their environment themselves.
    if !is_in_own_pid_namespace(&dir) {
        return false;
    }
    let mut environment = Vec::new();
    let file = File::open(dir.join("environ"));
    // A process that ends meanwhile has no environment.
    if file.and_then(|file| file.take(MAX_ENVIRONMENT).read_to_end(&mut environment)).is_err() {
        return false;
    }
    let wanted = format!("CNI_CONTAINERID={sandbox}");
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}

fn is_in_own_pid_namespace(process: &Path) -> bool {
    let namespace = |process: &Path| fs::read_link(process.join("ns/pid")).ok();
    namespace(process).is_some_and(|found| Some(found) == namespace(Path::new("/proc/self")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CloneFlags, unshare};
    use std::process::{Child, Command};

    const SHORT: Duration = Duration::from_millis(300);

    /// Kills a process when it is dropped.
    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Runs a script, whose own environment has no sandbox.
    fn script(text: &str) -> Running {
        Running(Command::new("sh").args(["-c", text]).spawn().unwrap())
    }

    async fn started(sandbox: &'static str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while plugins(sandbox).is_empty() {
            assert!(Instant::now() < deadline, "timed out waiting for the plugin of {sandbox}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    #[test]
    fn plugins_started_after_a_kill_are_killed_too() {
        run(async {
            let mut parent = script("for i in 1 2 3; do CNI_CONTAINERID=leftover-respawned sleep 1000; done");
            started("leftover-respawned").await;
            end_within("leftover-respawned", Duration::from_secs(2)).await.unwrap();
            parent.0.wait().unwrap();
            assert!(plugins("leftover-respawned").is_empty());
        });
    }

    #[test]
    fn plugins_that_do_not_end_are_an_error() {
        run(async {
            let parent = script("while :; do CNI_CONTAINERID=leftover-endless sleep 1000; done");
            started("leftover-endless").await;
            let error = end_within("leftover-endless", SHORT).await.unwrap_err().to_string();
            assert!(error.ends_with(r#"of an earlier process still run for sandbox "leftover-endless""#), "{error}");
            drop(parent);
            end_within("leftover-endless", SHORT).await.unwrap();
        });
    }

    #[test]
    fn processes_of_containers_are_no_plugins() {
        let spawned = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWPID).ok()?;
            let child = Command::new("sleep").arg("1000").env("CNI_CONTAINERID", "leftover-container").spawn();
            Some(Running(child.unwrap()))
        });
        let Some(mut container) = spawned.join().unwrap() else {
            return println!("skipped: no PID namespaces here");
        };
        run(async {
            end_within("leftover-container", SHORT).await.unwrap();
            assert_eq!(container.0.try_wait().unwrap(), None);
        });
    }
}
