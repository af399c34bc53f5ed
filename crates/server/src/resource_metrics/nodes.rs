//! Scrapes kubelets on request: two samples of a node, at least a second apart.

use super::{
    exposition,
    usage::{Pair, Ring, Step},
};
use crate::{node_proxy, service::ApiServer};
use futures::{FutureExt, future::join_all};
use jiff::Timestamp;
use parking_lot::Mutex;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

/// Timeout of a scrape.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum steps: two samples and a wait between them, and more when the clock is changed.
const MAX_STEPS: usize = 8;

/// Samples by node name. A request locks the samples of a node while it scrapes; concurrent requests share the result.
#[derive(Default)]
pub(crate) struct Nodes(Mutex<HashMap<String, Arc<tokio::sync::Mutex<Ring>>>>);

impl Nodes {
    /// Returns the samples of nodes. Nodes whose scrape fails are missing.
    pub(super) async fn pairs(&self, server: &ApiServer, nodes: BTreeSet<String>) -> HashMap<String, Pair> {
        let ring = |node: &str| Arc::clone(self.0.lock().entry(node.to_owned()).or_default());
        let scrapes: Vec<_> =
            nodes.into_iter().map(|node| sample_node(server.clone(), ring(&node), node).boxed()).collect();
        join_all(scrapes).await.into_iter().flatten().collect()
    }

    /// Drops the samples of deleted nodes.
    pub(super) fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.0.lock().retain(|node, _| exists(node));
    }
}

async fn sample_node(server: ApiServer, ring: Arc<tokio::sync::Mutex<Ring>>, node: String) -> Option<(String, Pair)> {
    let mut ring = ring.lock().await;
    for _ in 0..MAX_STEPS {
        match ring.step(Timestamp::now()) {
            Step::Done(pair) => return Some((node, pair)),
            Step::Failed => return None,
            Step::Wait(time) => tokio::time::sleep(time).await,
            Step::Sample => {
                let requested_at = Timestamp::now();
                match scrape(&server, &node).await {
                    Ok(text) => ring.add(exposition::parse(&text, requested_at)),
                    Err(error) => {
                        tracing::debug!(node, error, "failed to scrape resource metrics");
                        ring.failed(Timestamp::now());
                    }
                }
            }
        }
    }
    None
}

async fn scrape(server: &ApiServer, node: &str) -> Result<String, String> {
    let response = node_proxy::text(server, node, "/metrics/resource");
    let in_time = tokio::time::timeout(SCRAPE_TIMEOUT, response).await;
    in_time.map_err(|_| "timed out".to_owned())?.map_err(|error| error.to_string())
}
