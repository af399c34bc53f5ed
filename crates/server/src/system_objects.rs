//! What must be there of the API's own: made again when somebody takes it away or changes it, as upstream's controllers
//! for it do every ten seconds or every minute (`kubernetesservice`, `clusterauthenticationtrust`, `systemnamespaces`).

use crate::{ApiServer, request::RequestInfo, tokens::legacy};
use futures::FutureExt;
use http::Method;
use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
};

/// By where they are stored, their namespaces and their names.
const OWN: [(&str, &str, &str); 6] = [
    // The one that may be deleted: nodes tell there that they live.
    ("namespaces", "", "kube-node-lease"),
    ("configmaps", "kube-system", legacy::TRACKING),
    ("services", "default", "kubernetes"),
    ("endpoints", "default", "kubernetes"),
    ("endpointslices", "default", "kubernetes"),
    ("configmaps", "kube-system", "extension-apiserver-authentication"),
];

/// What is known of them.
#[derive(Debug, Default)]
pub(crate) struct SystemObjects {
    /// Where the API answers, once its objects were made.
    address: Mutex<Option<SocketAddr>>,
    /// Whether somebody looks after them already, and has not begun to.
    pending: AtomicBool,
}

impl SystemObjects {
    /// Where the API's own Service leads, if that is anywhere from a Pod.
    pub(crate) fn reached(&self) -> Option<SocketAddr> {
        self.address.lock().filter(|address| !address.ip().is_loopback())
    }

    /// From now on they are looked after.
    pub(crate) fn made(&self, address: SocketAddr) {
        *self.address.lock() = Some(address);
    }
}

/// Whether a request may change one of them.
pub(crate) fn is_affected_by(resource: &RequestInfo, method: &Method) -> bool {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let storage = resource.kind.info().storage;
    // A collection is deleted without names.
    let names = |name: &str| resource.name.as_deref().is_none_or(|asked| asked == name);
    !is_read
        && *method != Method::POST
        && OWN.iter().any(|(of, namespace, name)| *of == storage && *namespace == resource.namespace && names(name))
}

impl ApiServer {
    /// Somebody may have changed one of them.
    pub(crate) fn reconcile_system_objects(&self) {
        let Some(address) = *self.system_objects.address.lock() else { return };
        if self.system_objects.pending.swap(true, Ordering::AcqRel) {
            return;
        }
        let server = self.clone();
        let look = async move {
            // From here on, a write asks for another look.
            server.system_objects.pending.store(false, Ordering::Release);
            server.bootstrap_namespaces().await;
            server.bootstrap_service(address).await;
            server.publish_client_cas().await;
            server.bootstrap_token_tracking().await;
        };
        tokio::spawn(look.boxed());
    }
}
