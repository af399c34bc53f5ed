//! API aggregation: group versions that extension API servers serve, by APIServices with a Service
//! (`k8s.io/kube-aggregator`).
//!
//! Every write of an APIService reloads the routes. [`controller`] checks whether the servers are available.

mod autoregister;
mod availability;
mod controller;
mod discovery;
mod proxy;

pub(crate) use proxy::proxy_request;

use crate::{
    http::loopback_client::LoopbackClient,
    objects::kind_registry::{self, KindRegistry},
    proxy::{backend_connections, backend_tls::TlsConfigError},
};
use auth::pki::FrontProxy;
use base64::{Engine, engine::general_purpose::STANDARD};
use parking_lot::RwLock;
use request::{RequestInfo, RequestTarget};
use rustls::ClientConfig;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use store::{Scope, Store};
use tokio::sync::Notify;

/// Storage name of APIServices.
const STORAGE: &str = "apiservices";
const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// Group and version.
type GroupVersion = (String, String);

/// Returns the group and version of a discovery or OpenAPI document, which come from the group version's server.
fn document_group_version(path: &str) -> Option<GroupVersion> {
    let path = path.strip_prefix("/openapi/v3").unwrap_or(path);
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let (Some("apis"), Some(group), Some(version)) = (parts.next(), parts.next(), parts.next()) else { return None };
    Some((group.to_owned(), version.to_owned()))
}

/// Routes to extension API servers, and their last discovery documents.
#[derive(Default)]
pub(crate) struct Aggregation {
    routes: RwLock<Arc<BTreeMap<GroupVersion, Arc<Route>>>>,
    /// Whether there is any route: a fast path for most requests.
    has_routes: AtomicBool,
    front: Option<FrontProxy>,
    /// Notified when something changed that availability depends on.
    changed: Notify,
    /// The last discovery of each version.
    discovered: RwLock<BTreeMap<GroupVersion, ServerDiscovery>>,
}

/// What the controllers of APIServices need of the API server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Aggregator {
    pub(crate) aggregation: Arc<Aggregation>,
    pub(crate) store: Store,
    /// The kinds that are served here.
    pub(crate) kinds: Arc<KindRegistry>,
    pub(crate) client: LoopbackClient,
}

/// Discovery of a group version by its extension API server.
#[derive(Debug, Clone, Default)]
struct ServerDiscovery {
    /// An `APIResourceList`.
    resources: Value,
    /// Relative URL of its OpenAPI v3 document, if it has one.
    openapi_url: Option<String>,
}

/// A group version that an extension API server serves.
#[derive(Debug)]
struct Route {
    name: String,
    group: String,
    version: String,
    namespace: String,
    service: String,
    port: i64,
    /// TLS configuration, or the error why there is none.
    tls: Result<Arc<ClientConfig>, TlsConfigError>,
    available: bool,
    /// `groupPriorityMinimum` and `versionPriority`.
    priority: (i64, i64),
}

impl Aggregation {
    pub(crate) fn new(front: Option<FrontProxy>) -> Self {
        Self { front, ..Self::default() }
    }

    pub(crate) fn front(&self) -> Option<&FrontProxy> {
        self.front.as_ref()
    }

    /// Returns the route of a request that an extension API server serves.
    fn route(&self, info: &RequestInfo) -> Option<Arc<Route>> {
        if !self.has_routes.load(Ordering::Relaxed) {
            return None;
        }
        let key = match (&info.attributes.target, &info.resource_path) {
            (RequestTarget::Resource(resource), Some(path)) => (resource.group.clone(), path.api_version.clone()),
            (RequestTarget::Resource(_), None) => return None,
            (RequestTarget::NonResource(path), _) => document_group_version(path)?,
        };
        self.routes.read().get(&key).cloned()
    }

    fn routes(&self) -> Arc<BTreeMap<GroupVersion, Arc<Route>>> {
        Arc::clone(&self.routes.read())
    }

    /// Reloads the routes from the APIServices in the store.
    pub(crate) fn load(&self, store: &Store) {
        // Held while the store is read, so that concurrent loads do not replace newer routes.
        let mut current = self.routes.write();
        let listing = store.list(&Scope::resource(STORAGE), None, None);
        let objects = listing.objects.iter().filter_map(|o| serde_json::from_slice::<Value>(&o.data).ok());
        let routes = objects.filter_map(|object| Route::read(&object, self.front.as_ref()));
        let routes: BTreeMap<GroupVersion, Arc<Route>> =
            routes.map(|r| ((r.group.clone(), r.version.clone()), Arc::new(r))).collect();
        self.has_routes.store(!routes.is_empty(), Ordering::Relaxed);
        self.discovered.write().retain(|version, _| routes.contains_key(version));
        *current = Arc::new(routes);
    }

    /// Reloads the routes, or wakes the controller, after a write of this resource.
    pub(crate) fn handle_write(&self, store: &Store, storage: &str) {
        match storage {
            STORAGE => self.load(store),
            "customresourcedefinitions" => {}
            "services" | "endpointslices" | "endpoints" if self.has_routes.load(Ordering::Relaxed) => {}
            _ => return,
        }
        self.changed.notify_one();
    }
}

impl Route {
    /// Returns `None` for a group version that this server serves.
    fn read(object: &Value, front: Option<&FrontProxy>) -> Option<Self> {
        let (spec, text) = (&object["spec"], |value: &Value| value.as_str().unwrap_or_default().to_owned());
        let service = spec["service"].as_object()?;
        let (group, version) = (text(&spec["group"]), text(&spec["version"]));
        // Built-in group versions are served here, unless they only stand in for an extension API server.
        if kind_registry::built_in_kinds(&group, &version).any(|kind| !kind.info().aggregation_fallback) {
            return None;
        }
        let ca_bundle = spec["caBundle"].as_str().and_then(|b| STANDARD.decode(b).ok()).unwrap_or_default();
        let roots = (spec["insecureSkipTLSVerify"] != true).then_some(ca_bundle.as_slice());
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let available = conditions.clone().any(|c| c["type"] == "Available" && c["status"] == "True");
        let number = |value: &Value| value.as_i64().unwrap_or(0);
        Some(Self {
            name: text(&object["metadata"]["name"]),
            tls: backend_connections::tls_config(roots, front.map(|f| &f.client)),
            namespace: service.get("namespace").map(text).unwrap_or_default(),
            service: service.get("name").map(text).unwrap_or_default(),
            port: service.get("port").and_then(Value::as_i64).unwrap_or(443),
            available,
            priority: (number(&spec["groupPriorityMinimum"]), number(&spec["versionPriority"])),
            group,
            version,
        })
    }

    fn key(&self) -> GroupVersion {
        (self.group.clone(), self.version.clone())
    }
}
