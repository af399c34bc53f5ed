//! A table of nftables that is kept as it shall be.

use crate::Error;
use crate::program::run;
use crate::table::Table;
use std::time::Duration;
use tokio::time::Instant;

/// How often it is looked whether somebody has removed the table.
const LOOK: Duration = Duration::from_secs(60);
/// Longest wait after a failure.
const LONGEST: Duration = Duration::from_secs(30);
/// A transaction may take one part in this many of the time: a burst of changes costs few of them.
const SHARE: u32 = 10;

/// The table, as it was last written.
pub(crate) struct Kept {
    name: String,
    /// Whose rules they are, for the log.
    whose: &'static str,
    /// The chain that is looked for: listing one is cheaper than listing all.
    chain: &'static str,
    is: Option<Table>,
    failures: u32,
    began: Instant,
}

impl Kept {
    /// What is there under the name is not known yet, and replaced as a whole.
    pub(crate) fn new(name: String, whose: &'static str, chain: &'static str) -> Self {
        Self { name, whose, chain, is: None, failures: 0, began: Instant::now() }
    }

    /// Makes it so; returns whether it is.
    pub(crate) async fn bring(&mut self, shall: Table) -> bool {
        match self.write(&shall).await {
            Ok(()) => (self.is, self.failures) = (Some(shall), 0),
            Err(e) => {
                // Whatever is there now is replaced as a whole next time.
                (self.is, self.failures) = (None, self.failures.saturating_add(1));
                tracing::warn!("the rules of {} cannot be written: {e}", self.whose);
            }
        }
        self.failures == 0
    }

    async fn write(&self, shall: &Table) -> Result<(), Error> {
        match shall.script(&self.name, self.is.as_ref()) {
            script if script.is_empty() => Ok(()),
            script => run("nft", &["-f", "-"], &script).await.map(drop),
        }
    }

    /// Waits for the next time that it is to be brought: after a change, or after a while where that has failed.
    pub(crate) async fn wait(&mut self, changed: impl Future<Output = ()>) {
        if self.failures > 0 {
            tokio::time::sleep(Duration::from_secs(1).saturating_mul(1 << self.failures.min(8)).min(LONGEST)).await;
        } else {
            let next = Instant::now() + self.began.elapsed() * SHARE;
            tokio::select! {
                () = changed => tokio::time::sleep_until(next).await,
                () = tokio::time::sleep(LOOK) => self.look().await,
            }
        }
        self.began = Instant::now();
    }

    /// Looks whether the table that was written is still there.
    pub(crate) async fn look(&mut self) {
        if self.is.is_some() && run("nft", &["list", "chain", "ip", &self.name, self.chain], "").await.is_err() {
            tracing::warn!("somebody has removed the rules of {}: they are made anew", self.whose);
            self.is = None;
        }
    }
}
