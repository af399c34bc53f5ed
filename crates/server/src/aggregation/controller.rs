//! Controller of APIServices: checks the availability of their servers when a dependency changes, with backoff while
//! one is unavailable, and every 30 s, as no event reports that a server has stopped to answer.

use super::{Aggregator, PATH, Route, autoregister, availability};
use crate::http::clock::now;
use futures::FutureExt;
use http::Method;
use kinds::conditions::set_condition;
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use store::Key;

/// Maximal interval between checks.
const MAX_INTERVAL: Duration = Duration::from_secs(30);
/// First backoff while a server is unavailable.
const MIN_INTERVAL: Duration = Duration::from_millis(500);

impl Aggregator {
    /// Registers APIServices for the group versions that are served here, and checks the availability of all others.
    /// Never returns.
    pub(crate) async fn run(self) {
        autoregister::register_built_in(&self).await;
        let mut interval = MIN_INTERVAL;
        loop {
            autoregister::reconcile(&self).await;
            let routes = self.aggregation.routes();
            let checks = routes.values().map(|route| sync_status(self.clone(), Arc::clone(route)).boxed());
            let all_available = futures::future::join_all(checks).await.into_iter().all(|available| available);
            interval = if all_available { MAX_INTERVAL } else { interval.saturating_mul(2).min(MAX_INTERVAL) };
            if tokio::time::timeout(interval, self.aggregation.changed.notified()).await.is_ok() {
                interval = MIN_INTERVAL;
            }
        }
    }
}

/// Checks the availability of a server, and writes it to the APIService's status when it changed; returns whether it is
/// available.
async fn sync_status(aggregator: Aggregator, route: Arc<Route>) -> bool {
    let found = availability::check_availability(&aggregator.store, &route).await;
    if let Some(discovery) = found.discovery {
        aggregator.aggregation.discovered.write().insert(route.key(), discovery);
    }
    let available = found.status == "True";
    let Some(stored) = aggregator.store.get(&Key::new(super::STORAGE, "", route.name.as_str())) else {
        return available;
    };
    let Ok(mut object) = serde_json::from_slice::<Value>(&stored.data) else { return available };
    object["metadata"]["resourceVersion"] = stored.revision.to_string().into();
    let old_status = object["status"].clone();
    set_condition(&mut object["status"], "Available", found.status, found.reason, &found.message, now());
    if object["status"] != old_status {
        // A conflicting write wakes the controller again.
        aggregator.client.request(Method::PUT, &format!("{PATH}/{}/status", route.name), &object).await;
    }
    available
}
