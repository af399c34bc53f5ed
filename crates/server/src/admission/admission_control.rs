//! What the admission plugins need of the API server.

use super::{AdmissionPlugins, RegistrationInformer};
use crate::{objects::kind_registry::KindRegistry, proxy::webhook::WebhookClient};
use api::feature_gates::FeatureGates;
use auth::authorization::Authorizer;
use std::sync::Arc;
use store::Store;

/// The state of admission control. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AdmissionControl {
    pub(crate) store: Store,
    pub(crate) gates: Arc<FeatureGates>,
    /// The enabled admission plugins.
    pub(crate) plugins: Arc<AdmissionPlugins>,
    /// Registered admission webhooks and policies.
    pub(crate) registrations: Arc<RegistrationInformer>,
    pub(crate) webhooks: Arc<WebhookClient>,
    pub(crate) authorizer: Arc<Authorizer>,
    /// The kinds that are served.
    pub(crate) kinds: Arc<KindRegistry>,
    /// Held while a write is charged to a ResourceQuota.
    pub(crate) quota_lock: Arc<tokio::sync::Mutex<()>>,
    /// Whether the server issues tokens of service accounts, which are then mounted into Pods.
    pub(crate) issues_tokens: bool,
}

impl AdmissionControl {
    /// Creates admission control with the default plugins.
    pub(crate) fn new(
        store: Store,
        webhooks: Arc<WebhookClient>,
        authorizer: Arc<Authorizer>,
        kinds: Arc<KindRegistry>,
    ) -> Self {
        Self {
            registrations: Arc::new(RegistrationInformer::new(store.clone())),
            store,
            gates: Arc::default(),
            plugins: Arc::default(),
            webhooks,
            authorizer,
            kinds,
            quota_lock: Arc::default(),
            issues_tokens: false,
        }
    }
}
