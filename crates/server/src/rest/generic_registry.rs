//! What the verbs of all kinds need of the API server.

use super::{compaction::Compaction, large_requests::LargeRequests};
use crate::{
    admission::AdmissionControl,
    objects::{kind_registry::KindRegistry, large_object_cache::LargeObjectCache},
    proxy::webhook::WebhookClient,
};
use api::feature_gates::FeatureGates;
use auth::authorization::Authorizer;
use std::sync::Arc;
use store::Store;

/// The generic registry (upstream's `genericregistry.Store`): get, list, watch, create, update, patch, apply and delete
/// are functions of it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct GenericRegistry {
    pub(crate) store: Store,
    pub(crate) gates: Arc<FeatureGates>,
    /// Client of conversion webhooks.
    pub(crate) webhooks: Arc<WebhookClient>,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) admission: AdmissionControl,
    /// Held while addresses of a Service are allocated.
    pub(crate) ip_allocation_lock: Arc<tokio::sync::Mutex<()>>,
    /// Decoded large objects that were written recently.
    pub(crate) large_object_cache: Arc<LargeObjectCache>,
    /// The oldest revision that can still be listed.
    pub(crate) compaction: Arc<Compaction>,
    /// The threads of large requests.
    pub(crate) large_requests: Arc<LargeRequests>,
}

impl GenericRegistry {
    /// Creates the registry of the objects in a store.
    pub(crate) fn new(
        store: Store,
        webhooks: Arc<WebhookClient>,
        authorizer: Arc<Authorizer>,
        kinds: Arc<KindRegistry>,
    ) -> Self {
        let admission = AdmissionControl::new(store.clone(), Arc::clone(&webhooks), Arc::clone(&authorizer), kinds);
        Self {
            compaction: Arc::new(Compaction::new(store.revision())),
            store,
            gates: Arc::default(),
            webhooks,
            authorizer,
            admission,
            ip_allocation_lock: Arc::default(),
            large_object_cache: Arc::default(),
            large_requests: Arc::default(),
        }
    }

    /// Sets the feature gates.
    pub(crate) fn set_gates(&mut self, gates: &Arc<FeatureGates>) {
        self.gates = Arc::clone(gates);
        self.admission.gates = Arc::clone(gates);
    }
}
