//! Synchronization of an nftables table with its desired state: writes the rules of Services (`syncProxyRules`), policies and
//! masquerading to the kernel.

use crate::{Error, command::run, nft, nft_table::Table};
use std::time::Duration;
use tokio::time::Instant;

/// Interval of the check whether the table still exists.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum backoff after a failure.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Syncs take at most one part in this many of the time: bursts of changes are coalesced.
const SYNC_TIME_SHARE: u32 = 10;

/// Synchronizes a table.
pub(crate) struct TableSync {
    name: String,
    /// Name of the rules in log lines.
    owner: &'static str,
    /// Chain whose existence is checked: listing one chain is cheaper than the table.
    chain: &'static str,
    applied: Option<Table>,
    failures: u32,
    last_sync: Instant,
}

impl TableSync {
    /// Creates the state; the first sync replaces an existing table, whose contents are unknown.
    pub(crate) fn new(name: String, owner: &'static str, chain: &'static str) -> Self {
        Self { name, owner, chain, applied: None, failures: 0, last_sync: Instant::now() }
    }

    /// Syncs the table; returns whether this succeeded.
    pub(crate) async fn sync(&mut self, desired: Table) -> bool {
        match self.write(&desired).await {
            Ok(()) => (self.applied, self.failures) = (Some(desired), 0),
            Err(e) => {
                // The contents are unknown now: the next sync replaces the table.
                (self.applied, self.failures) = (None, self.failures.saturating_add(1));
                tracing::warn!(owner = self.owner, error = %e, "failed to sync nftables rules");
            }
        }
        self.failures == 0
    }

    async fn write(&self, desired: &Table) -> Result<(), Error> {
        match desired.script(&self.name, self.applied.as_ref()) {
            script if script.is_empty() => Ok(()),
            script => nft::apply(&script).await,
        }
    }

    /// Waits for the next sync: after a change, or after a backoff if the last one failed.
    pub(crate) async fn wait(&mut self, changed: impl Future<Output = ()>) {
        if self.failures > 0 {
            tokio::time::sleep(Duration::from_secs(1).saturating_mul(1 << self.failures.min(8)).min(MAX_BACKOFF)).await;
        } else {
            let next = Instant::now() + self.last_sync.elapsed() * SYNC_TIME_SHARE;
            tokio::select! {
                () = changed => tokio::time::sleep_until(next).await,
                () = tokio::time::sleep(CHECK_INTERVAL) => self.check().await,
            }
        }
        self.last_sync = Instant::now();
    }

    /// Checks whether the table was removed.
    pub(crate) async fn check(&mut self) {
        if self.applied.is_some() && run("nft", &["list", "chain", "ip", &self.name, self.chain], "").await.is_err() {
            tracing::warn!(owner = self.owner, "nftables table was removed, restoring rules");
            self.applied = None;
        }
    }
}
