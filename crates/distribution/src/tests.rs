//! Tests of pulls from a registry on loopback, which may be broken or malicious.

mod authorization;
mod errors;
mod image;
mod limits;
mod memory_store;
mod mirrors;
mod proxies;
mod pulls;
mod registry;
mod tls;
mod transfers;

use crate::{
    BlobStore, LayerProgress, Platform, PullError, PullOptions, Pulled, Timeouts,
    connector::{Network, Resolver},
    pull::pull_over,
};
use hyper_util::client::proxy::matcher::Matcher;
use memory_store::MemoryStore;
use parking_lot::Mutex;
use std::{collections::HashMap, net::IpAddr, path::Path, sync::Arc, time::Duration};

/// Deadline of every condition.
const DEADLINE: Duration = Duration::from_secs(60);
/// Names that resolve to this machine.
const NAMES: [&str; 4] = ["auth.test", "cdn.test", "mirror.test", "registry.test"];

/// Options with short times, for an image of amd64.
fn options() -> PullOptions {
    let timeouts = Timeouts {
        dial: Duration::from_secs(10),
        response: Duration::from_secs(10),
        idle: Duration::from_secs(10),
        document: Duration::from_secs(20),
        backoff: Duration::from_millis(1),
    };
    let platform = Platform { architecture: "amd64".to_owned(), variant: String::new() };
    PullOptions { platform, timeouts, max_size: 1 << 30, ..PullOptions::default() }
}

/// Options with a `hosts.toml` for a registry.
fn options_with_hosts(dir: &Path, domain: &str, text: &str) -> PullOptions {
    let host = dir.join(domain);
    std::fs::create_dir_all(&host).unwrap();
    std::fs::write(host.join("hosts.toml"), text).unwrap();
    PullOptions { certs_dirs: vec![dir.to_owned()], ..options() }
}

/// Pulls an image over the test network.
async fn pull(reference: &str, options: &PullOptions, store: &Arc<MemoryStore>) -> Result<Pulled, PullError> {
    pull_with_progress(reference, options, store).await.0
}

/// Pulls an image, and returns the reported progress, too.
async fn pull_with_progress(
    reference: &str,
    options: &PullOptions,
    store: &Arc<MemoryStore>,
) -> (Result<Pulled, PullError>, Vec<LayerProgress>) {
    let network = network(Matcher::builder().build());
    let store: Arc<dyn BlobStore> = Arc::<MemoryStore>::clone(store);
    let reports = Mutex::new(Vec::new());
    let progress = |report: LayerProgress| reports.lock().push(report);
    let pulled = Box::pin(pull_over(&network, reference, options, &store, &progress)).await;
    (pulled, reports.into_inner())
}

/// Network of this machine only.
fn network(proxies: Matcher) -> Network {
    let localhost = IpAddr::from([127, 0, 0, 1]);
    let names: HashMap<String, IpAddr> = NAMES.iter().map(|name| ((*name).to_owned(), localhost)).collect();
    Network { resolver: Resolver::Static(Arc::new(names)), proxies: Arc::new(proxies) }
}
