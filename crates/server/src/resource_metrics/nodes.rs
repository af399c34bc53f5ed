//! Asks kubelets, when somebody wants to know and not before: two samples of a node, a second apart at least.

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

/// So long a kubelet may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Two samples and a pause between them; more only when the clock is set meanwhile.
const STEPS: usize = 8;

/// What is known of nodes, by their names. Who asks for a node holds its samples meanwhile: whoever comes then finds what
/// the first one has brought.
#[derive(Default)]
pub(crate) struct Nodes(Mutex<HashMap<String, Arc<tokio::sync::Mutex<Ring>>>>);

impl Nodes {
    /// Samples of these nodes; those that do not answer are missing.
    pub(super) async fn pairs(&self, server: &ApiServer, nodes: BTreeSet<String>) -> HashMap<String, Pair> {
        let ring = |node: &str| Arc::clone(self.0.lock().entry(node.to_owned()).or_default());
        let looks: Vec<_> = nodes.into_iter().map(|node| look(server.clone(), ring(&node), node).boxed()).collect();
        join_all(looks).await.into_iter().flatten().collect()
    }

    /// Forgets nodes that are gone.
    pub(super) fn keep(&self, is_there: impl Fn(&str) -> bool) {
        self.0.lock().retain(|node, _| is_there(node));
    }
}

async fn look(server: ApiServer, ring: Arc<tokio::sync::Mutex<Ring>>, node: String) -> Option<(String, Pair)> {
    let mut ring = ring.lock().await;
    for _ in 0..STEPS {
        match ring.step(Timestamp::now()) {
            Step::Done(pair) => return Some((node, pair)),
            Step::Failed => return None,
            Step::Wait(time) => tokio::time::sleep(time).await,
            Step::Sample => {
                let asked = Timestamp::now();
                match ask(&server, &node).await {
                    Ok(text) => ring.add(exposition::read(&text, asked)),
                    Err(why) => {
                        tracing::debug!(node, why, "a kubelet does not say what is used");
                        ring.failed(Timestamp::now());
                    }
                }
            }
        }
    }
    None
}

async fn ask(server: &ApiServer, node: &str) -> Result<String, String> {
    let answer = node_proxy::text(server, node, "/metrics/resource");
    let in_time = tokio::time::timeout(PATIENCE, answer).await;
    in_time.map_err(|_| "it takes too long".to_owned())?.map_err(|error| error.to_string())
}
