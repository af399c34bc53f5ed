//! What requests to kubelets need of the API server.

use crate::proxy::node_dialer::NodeDialer;
use std::sync::Arc;
use store::Store;

/// Finds the nodes of Pods, and reaches their kubelets. Cheap to clone.
#[derive(Clone)]
pub(crate) struct KubeletClient {
    pub(crate) store: Store,
    pub(crate) dialer: Arc<dyn NodeDialer>,
}
