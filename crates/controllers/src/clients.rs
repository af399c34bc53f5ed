//! Who controllers are when they ask the API: as upstream's with `--use-service-account-credentials`, each is the service
//! account of its name in `kube-system`, whose role allows what it does; what they look at is watched by
//! `system:kube-controller-manager` for all.

use kube::Client;
use std::{fmt, sync::Arc};

/// The clients of all controllers.
#[derive(Clone)]
pub struct Clients {
    shared: Client,
    for_service_account: Arc<dyn Fn(&str) -> Client + Send + Sync>,
}

impl Clients {
    /// One that watches for all, and those of service accounts in `kube-system` by their names.
    pub fn new(shared: Client, for_service_account: impl Fn(&str) -> Client + Send + Sync + 'static) -> Self {
        Self { shared, for_service_account: Arc::new(for_service_account) }
    }

    /// Lists and watches.
    pub(crate) fn shared(&self) -> Client {
        self.shared.clone()
    }

    /// What a controller does otherwise.
    pub(crate) fn for_service_account(&self, account: &str) -> Client {
        (self.for_service_account)(account)
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

/// One client for everything.
impl From<Client> for Clients {
    fn from(client: Client) -> Self {
        Self::new(client.clone(), move |_| client.clone())
    }
}
