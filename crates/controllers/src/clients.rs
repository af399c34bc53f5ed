//! API clients of the controllers, as with upstream's `--use-service-account-credentials`: each controller writes as
//! its service account in `kube-system`, with that account's role. Informers are shared and use
//! `system:kube-controller-manager`.

use informer::SharedInformerFactory;
use kube::Client;
use std::{fmt, sync::Arc};

/// Clients of all controllers.
#[derive(Clone)]
pub struct Clients {
    shared: Client,
    informers: SharedInformerFactory,
    for_service_account: Arc<dyn Fn(&str) -> Client + Send + Sync>,
}

impl Clients {
    /// Creates clients from the one for informers, and a function that returns the client of a service account in
    /// `kube-system`.
    pub fn new(shared: Client, for_service_account: impl Fn(&str) -> Client + Send + Sync + 'static) -> Self {
        let informers = SharedInformerFactory::new(shared.clone());
        Self { shared, informers, for_service_account: Arc::new(for_service_account) }
    }

    /// Returns the client for lists and watches.
    pub(crate) fn shared(&self) -> Client {
        self.shared.clone()
    }

    /// Returns the informers, which other components can share.
    #[must_use]
    pub fn informers(&self) -> &SharedInformerFactory {
        &self.informers
    }

    /// Returns the client of a controller's service account.
    pub(crate) fn for_service_account(&self, account: &str) -> Client {
        (self.for_service_account)(account)
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

/// Uses one client for everything.
impl From<Client> for Clients {
    fn from(client: Client) -> Self {
        Self::new(client.clone(), move |_| client.clone())
    }
}
