//! Supervisor of containerd: restarts it after a crash, and removes orphaned shims.

use super::{config::Paths, orphans, process::Process, programs::Programs};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// Uptime after which the restart backoff is reset.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(60);

/// Restarts containerd with backoff after each crash, until it is cancelled; then stops it.
pub(super) async fn supervise(mut process: Process, paths: Paths, programs: Programs, stop: CancellationToken) {
    let mut backoff = INITIAL_BACKOFF;
    let mut rounds = interval(orphans::CHECK_INTERVAL);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let started = tokio::time::Instant::now();
        loop {
            tokio::select! {
                () = process.ended() => break,
                () = stop.cancelled() => return process.end().await,
                _ = rounds.tick() => orphans::kill_orphaned_shims(&paths).await,
            }
        }
        tracing::error!(log = %paths.log.display(), "containerd exited unexpectedly, restarting");
        if started.elapsed() > BACKOFF_RESET_AFTER {
            backoff = INITIAL_BACKOFF;
        }
        loop {
            tokio::select! {
                () = tokio::time::sleep(backoff) => {}
                () = stop.cancelled() => return,
            }
            backoff = (backoff * 2).min(MAX_BACKOFF);
            match Process::spawn(&paths, &programs) {
                Ok(new) => {
                    process = new;
                    break;
                }
                Err(error) => tracing::error!(%error, "failed to start containerd"),
            }
        }
    }
}
