//! Keeps what is known of other servers as it is: looked at when anything changes that it follows from, more often while
//! something is not available, and every 30 s, for no event says that a server has ceased to answer.

use super::{ALL, Route, available, local};
use crate::{custom_resource_definitions::set_condition, service::ApiServer};
use futures::FutureExt;
use http::Method;
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use store::Key;

/// The longest pause between looks.
const PAUSE: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(500);

impl ApiServer {
    /// Makes an APIService for what is served here, and looks whether those who serve the rest do. Never ends.
    pub async fn aggregate(self) {
        local::begin(&self).await;
        let mut pause = FIRST_PAUSE;
        loop {
            local::follow(&self).await;
            let routes = self.aggregation.routes();
            let looks = routes.values().map(|route| settle(self.clone(), Arc::clone(route)).boxed());
            let all_are_there = futures::future::join_all(looks).await.into_iter().all(|there| there);
            pause = if all_are_there { PAUSE } else { pause.saturating_mul(2).min(PAUSE) };
            if tokio::time::timeout(pause, self.aggregation.changed.notified()).await.is_ok() {
                pause = FIRST_PAUSE;
            }
        }
    }
}

/// Writes down whether the server of this answers, if that is news.
async fn settle(server: ApiServer, route: Arc<Route>) -> bool {
    let found = available::look(&server, &route).await;
    if let Some(said) = found.said {
        server.aggregation.said.write().insert(route.key(), said);
    }
    let there = found.status == "True";
    let Some(stored) = server.store.get(&Key::new(super::STORAGE, "", route.name.as_str())) else { return there };
    let Ok(mut object) = serde_json::from_slice::<Value>(&stored.data) else { return there };
    object["metadata"]["resourceVersion"] = stored.revision.to_string().into();
    let before = object["status"].clone();
    set_condition(&mut object["status"], "Available", found.status, found.reason, &found.message);
    if object["status"] != before {
        // Whoever was faster has written something that is looked at next.
        server.ask(Method::PUT, &format!("{ALL}/{}/status", route.name), &object).await;
    }
    there
}
