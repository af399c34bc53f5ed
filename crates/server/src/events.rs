//! Events are forgotten an hour after they were last seen (upstream's `--event-ttl`).

use crate::{ApiServer, object, status::ApiError};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::time::Duration;
use store::{Expect, Scope, Write, WriteError};

/// How long an event is kept.
const TTL: SignedDuration = SignedDuration::from_hours(1);
/// Sweeps are no closer together than this: what expires at about the same time goes at once.
const PAUSE: Duration = Duration::from_secs(30);

/// When an event was last seen, in any of the ways that it can say so.
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
    /// Forgets events as they expire. Never ends.
    pub(crate) async fn sweep_events(self) {
        loop {
            let wait = match self.forget_events(Timestamp::now()).await {
                Ok(wait) => wait,
                Err(error) => {
                    tracing::warn!(%error, "events that have expired could not be removed; trying again");
                    PAUSE
                }
            };
            tokio::time::sleep(wait.max(PAUSE)).await;
        }
    }

    /// Removes the events that were last seen more than an hour before `now`; gives the time until the next one expires.
    ///
    /// # Errors
    /// When the store does not take a removal; what is left is tried again by the next call.
    pub async fn forget_events(&self, now: Timestamp) -> Result<Duration, ApiError> {
        let kind: &dyn crate::kinds::Kind = &crate::kinds::CORE_EVENT;
        let mut next = TTL;
        for event in self.store.list(&Scope::resource(kind.info().storage), None, None).objects {
            let value = object::decode(kind, &event);
            // An event that has no time, which cannot be, is as good as gone.
            let age = last_seen(&value).map_or(TTL, |seen| now.duration_since(seen));
            if age < TTL {
                next = next.min(TTL - age);
                continue;
            }
            let expect = Expect::Revision(event.revision);
            let write = Write::delete(event.key.clone(), expect, object::encode(kind, value)?);
            match self.store.write(write).await {
                // Who came first has seen it again, or removed it.
                Ok(_) | Err(WriteError::Conflict { .. } | WriteError::NotFound) => {}
                Err(e) => return Err(ApiError::from_write(&e, kind.info(), &event.key.name)),
            }
        }
        Ok(Duration::try_from(next).unwrap_or_default())
    }
}
