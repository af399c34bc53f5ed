//! Versions of groups that other servers serve: APIServices with a Service (`k8s.io/kube-aggregator`).
//!
//! What they say is read again with every write of one. Whether their servers answer is looked at by [`watch`].

mod available;
mod discovery;
mod local;
mod pass;
mod watch;

pub(crate) use pass::answer;

use crate::{backend_connections, registry, service::ApiServer};
use base64::{Engine, engine::general_purpose::STANDARD};
use parking_lot::RwLock;
use rustls::{ClientConfig, client::ResolvesClientCert};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use store::Scope;
use tokio::sync::Notify;

/// Under what APIServices are stored.
const STORAGE: &str = "apiservices";
const ALL: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// A certificate by which other servers know this one.
#[derive(Debug, Clone)]
pub struct FrontProxy {
    /// The authority that signed it, which they must know, in PEM.
    pub authority: String,
    /// Gives certificate and key.
    pub client: Arc<dyn ResolvesClientCert>,
}

/// Group and version.
type Version = (String, String);

/// What is known of other servers.
#[derive(Default)]
pub(crate) struct Aggregation {
    routes: RwLock<Arc<BTreeMap<Version, Arc<Route>>>>,
    /// Whether there is any, which most requests ask first.
    any: AtomicBool,
    front: Option<FrontProxy>,
    /// Something changed that availability follows from.
    changed: Notify,
    /// What servers said last.
    said: RwLock<BTreeMap<Version, Said>>,
}

/// What a server says of a version that it serves.
#[derive(Debug, Clone, Default)]
struct Said {
    /// An `APIResourceList`.
    resources: Value,
    /// Where its OpenAPI document is, if there is one.
    document: Option<String>,
}

/// A version of a group that another server serves.
#[derive(Debug)]
struct Route {
    name: String,
    group: String,
    version: String,
    namespace: String,
    service: String,
    port: i64,
    /// How to speak to it, or why that is not known.
    tls: Result<Arc<ClientConfig>, String>,
    available: bool,
    /// Of the group, and of the version within.
    priority: (i64, i64),
}

impl Aggregation {
    pub(crate) fn new(front: Option<FrontProxy>) -> Self {
        Self { front, ..Self::default() }
    }

    pub(crate) fn front(&self) -> Option<&FrontProxy> {
        self.front.as_ref()
    }

    /// Who serves what is behind this path, if that is another server.
    fn route(&self, path: &str) -> Option<Arc<Route>> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        // Documents come from whoever serves what they are about.
        let path = path.strip_prefix("/openapi/v3").unwrap_or(path);
        let mut parts = path.split('/').filter(|p| !p.is_empty());
        let (Some("apis"), Some(group), Some(version)) = (parts.next(), parts.next(), parts.next()) else {
            return None;
        };
        self.routes.read().get(&(group.to_owned(), version.to_owned())).cloned()
    }

    fn routes(&self) -> Arc<BTreeMap<Version, Arc<Route>>> {
        Arc::clone(&self.routes.read())
    }

    /// Reads what the APIServices in the store say.
    pub(crate) fn load(&self, server: &ApiServer) {
        // Held while the store is read: whoever reads later has what is newer.
        let mut current = self.routes.write();
        let listing = server.store.list(&Scope::resource(STORAGE), None, None);
        let objects = listing.objects.iter().filter_map(|o| serde_json::from_slice::<Value>(&o.data).ok());
        let routes = objects.filter_map(|object| Route::read(&object, self.front.as_ref()));
        let routes: BTreeMap<Version, Arc<Route>> =
            routes.map(|r| ((r.group.clone(), r.version.clone()), Arc::new(r))).collect();
        self.any.store(!routes.is_empty(), Ordering::Relaxed);
        self.said.write().retain(|version, _| routes.contains_key(version));
        *current = Arc::new(routes);
    }

    /// Something was written of this resource.
    pub(crate) fn note(&self, server: &ApiServer, storage: &str) {
        match storage {
            STORAGE => self.load(server),
            "customresourcedefinitions" => {}
            "services" | "endpointslices" | "endpoints" if self.any.load(Ordering::Relaxed) => {}
            _ => return,
        }
        self.changed.notify_one();
    }
}

impl Route {
    /// `None` for what is served here.
    fn read(object: &Value, front: Option<&FrontProxy>) -> Option<Self> {
        let (spec, text) = (&object["spec"], |value: &Value| value.as_str().unwrap_or_default().to_owned());
        let service = spec["service"].as_object()?;
        let (group, version) = (text(&spec["group"]), text(&spec["version"]));
        // What is built in is served here, whatever is written, but for what only stands in for another server.
        if registry::built_in(&group, &version).any(|kind| !kind.info().stand_in) {
            return None;
        }
        let bundle = spec["caBundle"].as_str().and_then(|b| STANDARD.decode(b).ok()).unwrap_or_default();
        let authorities = (spec["insecureSkipTLSVerify"] != true).then_some(bundle.as_slice());
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let available = conditions.clone().any(|c| c["type"] == "Available" && c["status"] == "True");
        let number = |value: &Value| value.as_i64().unwrap_or(0);
        Some(Self {
            name: text(&object["metadata"]["name"]),
            tls: backend_connections::tls(authorities, front.map(|f| &f.client)),
            namespace: service.get("namespace").map(text).unwrap_or_default(),
            service: service.get("name").map(text).unwrap_or_default(),
            port: service.get("port").and_then(Value::as_i64).unwrap_or(443),
            available,
            priority: (number(&spec["groupPriorityMinimum"]), number(&spec["versionPriority"])),
            group,
            version,
        })
    }

    fn key(&self) -> Version {
        (self.group.clone(), self.version.clone())
    }
}
