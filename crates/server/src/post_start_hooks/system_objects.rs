//! Objects that the API server maintains for itself. They are restored when a client changes or deletes one; upstream has
//! controllers that restore them periodically (`kubernetesservice`, `clusterauthenticationtrust`, `systemnamespaces`).

use crate::{ApiServer, objects::request_scope::RequestScope, post_start_hooks::legacy_token_tracking};
use futures::FutureExt;
use http::Method;
use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
};

/// Storage, namespace and name of the system objects.
const SYSTEM_OBJECTS: [(&str, &str, &str); 6] = [
    // Clients may delete this namespace, which the Leases of nodes need.
    ("namespaces", "", "kube-node-lease"),
    ("configmaps", "kube-system", legacy_token_tracking::TRACKING_CONFIG_MAP),
    ("services", "default", "kubernetes"),
    ("endpoints", "default", "kubernetes"),
    ("endpointslices", "default", "kubernetes"),
    ("configmaps", "kube-system", "extension-apiserver-authentication"),
];

/// State of the system objects.
#[derive(Debug, Default)]
pub(crate) struct SystemObjects {
    /// Address of the API server, once its objects were created.
    address: Mutex<Option<SocketAddr>>,
    /// Whether a reconciliation is scheduled, and has not begun.
    pending: AtomicBool,
}

impl SystemObjects {
    /// Returns the endpoint of the `kubernetes` Service, unless it is a loopback address, which Pods cannot reach.
    pub(crate) fn endpoint(&self) -> Option<SocketAddr> {
        self.address.lock().filter(|address| !address.ip().is_loopback())
    }

    /// Starts to maintain the system objects.
    pub(crate) fn set_address(&self, address: SocketAddr) {
        *self.address.lock() = Some(address);
    }
}

/// Whether a request may change a system object.
pub(crate) fn is_affected_by(resource: &RequestScope, method: &Method) -> bool {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let storage = resource.kind.info().storage;
    // A request to delete a collection has no name.
    let matches_name = |name: &str| resource.name.as_deref().is_none_or(|requested| requested == name);
    !is_read
        && *method != Method::POST
        && SYSTEM_OBJECTS.iter().any(|(storage_name, namespace, name)| {
            *storage_name == storage && *namespace == resource.namespace && matches_name(name)
        })
}

impl ApiServer {
    /// Restores the system objects in a task, after a write that may have changed one.
    pub(crate) fn reconcile_system_objects(&self) {
        let Some(address) = *self.system_objects.address.lock() else { return };
        if self.system_objects.pending.swap(true, Ordering::AcqRel) {
            return;
        }
        let server = self.clone();
        let look = async move {
            // A later write schedules another reconciliation.
            server.system_objects.pending.store(false, Ordering::Release);
            server.bootstrap_namespaces().await;
            server.bootstrap_service(address).await;
            server.publish_client_cas().await;
            server.bootstrap_token_tracking().await;
        };
        tokio::spawn(look.boxed());
    }
}
