//! Starting containerd again when it dies, and clearing up what it forgets.

use super::{config::Paths, orphans, process::Process, programs::Programs};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Who ran this long did not die of its start: the next one is not made to wait.
const HEALTHY: Duration = Duration::from_secs(60);

/// Keeps containerd running until told to end it.
pub(super) async fn supervise(mut process: Process, paths: Paths, programs: Programs, stop: CancellationToken) {
    let mut pause = FIRST_PAUSE;
    let mut rounds = interval(orphans::ROUND);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let started = tokio::time::Instant::now();
        loop {
            tokio::select! {
                () = process.ended() => break,
                () = stop.cancelled() => return process.end().await,
                _ = rounds.tick() => orphans::end_orphans(&paths).await,
            }
        }
        tracing::error!(log = %paths.log.display(), "containerd died; starting it again");
        if started.elapsed() > HEALTHY {
            pause = FIRST_PAUSE;
        }
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            match Process::spawn(&paths, &programs) {
                Ok(new) => {
                    process = new;
                    break;
                }
                Err(error) => tracing::error!(%error, "containerd cannot be started"),
            }
        }
    }
}
