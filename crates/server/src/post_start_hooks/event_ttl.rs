//! Expiry of Events, an hour after they were last seen (upstream's `--event-ttl`).

use crate::{
    ApiServer,
    objects::{object, storage_errors},
};
use errors::ApiError;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::time::Duration;
use store::{Precondition, Scope, Write, WriteError};

/// Upstream's default of `--event-ttl`.
const TTL: SignedDuration = SignedDuration::from_hours(1);
/// Minimal interval between sweeps, so that events that expire at about the same time are deleted together.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// Returns the latest timestamp of an event.
fn last_seen(event: &Value) -> Option<Timestamp> {
    let metadata = &event["metadata"];
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &metadata["creationTimestamp"],
    ];
    times.into_iter().filter_map(|t| t.as_str()?.parse().ok()).max()
}

impl ApiServer {
    /// Deletes expired events. Never returns.
    pub(crate) async fn sweep_events(self) {
        loop {
            let wait = match self.delete_expired_events(Timestamp::now()).await {
                Ok(wait) => wait,
                Err(error) => {
                    tracing::warn!(%error, "failed to delete expired events, retrying");
                    MIN_SWEEP_INTERVAL
                }
            };
            tokio::time::sleep(wait.max(MIN_SWEEP_INTERVAL)).await;
        }
    }

    /// Deletes the events that were last seen more than an hour before `now`; returns the time until the next one expires.
    ///
    /// # Errors
    /// When the store rejects a deletion; the next call retries the remaining events.
    pub async fn delete_expired_events(&self, now: Timestamp) -> Result<Duration, ApiError> {
        let kind: &dyn kinds::Kind = &kinds::CORE_EVENT;
        let mut next = TTL;
        for event in self.registry.store.list(&Scope::resource(kind.info().storage), None, None).objects {
            let value = object::decode(kind, &event);
            // An event without any timestamp is treated as expired.
            let age = last_seen(&value).map_or(TTL, |seen| now.duration_since(seen));
            if age < TTL {
                next = next.min(TTL - age);
                continue;
            }
            let expect = Precondition::Revision(event.revision);
            let write = Write::delete(event.key.clone(), expect, object::encode(kind, value)?);
            match self.registry.store.write(write).await {
                // A concurrent writer has updated or deleted it.
                Ok(_) | Err(WriteError::Conflict { .. } | WriteError::NotFound) => {}
                Err(e) => return Err(storage_errors::from_write_error(&e, kind.info(), &event.key.name)),
            }
        }
        Ok(Duration::try_from(next).unwrap_or_default())
    }
}
