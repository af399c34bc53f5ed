//! Scrapes kubelets on request: two samples of a node, at least a second apart.

use super::{
    exposition,
    usage::{NextStep, NodeSamples, SamplePair},
};
use crate::registry::{kubelet_client::KubeletClient, node_proxy};
use errors::ApiError;
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
pub(crate) struct NodeSampleCache(Mutex<HashMap<String, Arc<tokio::sync::Mutex<NodeSamples>>>>);

impl NodeSampleCache {
    /// Returns the samples of nodes. Nodes whose scrape fails are missing.
    pub(super) async fn sample_pairs(
        &self,
        kubelets: &KubeletClient,
        nodes: BTreeSet<String>,
    ) -> HashMap<String, SamplePair> {
        let samples = |node: &str| Arc::clone(self.0.lock().entry(node.to_owned()).or_default());
        let scrapes: Vec<_> =
            nodes.into_iter().map(|node| sample_node(kubelets.clone(), samples(&node), node).boxed()).collect();
        join_all(scrapes).await.into_iter().flatten().collect()
    }

    /// Drops the samples of deleted nodes.
    pub(super) fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.0.lock().retain(|node, _| exists(node));
    }
}

async fn sample_node(
    kubelets: KubeletClient,
    samples: Arc<tokio::sync::Mutex<NodeSamples>>,
    node: String,
) -> Option<(String, SamplePair)> {
    let mut samples = samples.lock().await;
    for _ in 0..MAX_STEPS {
        match samples.next_step(Timestamp::now()) {
            NextStep::Done(pair) => return Some((node, pair)),
            NextStep::Failed => return None,
            NextStep::Wait(time) => tokio::time::sleep(time).await,
            NextStep::Sample => {
                let requested_at = Timestamp::now();
                match scrape(&kubelets, &node).await {
                    Ok(text) => samples.add(exposition::parse(&text, requested_at)),
                    Err(error) => {
                        tracing::debug!(node, %error, "failed to scrape resource metrics");
                        samples.failed(Timestamp::now());
                    }
                }
            }
        }
    }
    None
}

/// Failed scrape of a kubelet.
#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error("timed out")]
    Timeout,
    #[error("{0}")]
    Request(Box<ApiError>),
}

async fn scrape(kubelets: &KubeletClient, node: &str) -> Result<String, ScrapeError> {
    let response = node_proxy::text(kubelets, node, "/metrics/resource");
    let in_time = tokio::time::timeout(SCRAPE_TIMEOUT, response).await;
    in_time.map_err(|_| ScrapeError::Timeout)?.map_err(|error| ScrapeError::Request(Box::new(error)))
}
