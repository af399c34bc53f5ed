//! The API server, what it is made of, and which of its handlers answers a request.

use crate::{
    AdmissionPlugins, AuditLog, FrontProxy, NodeDialer, SigningKey, TokenFile, TokenLifetime, UserInfo,
    admit::Hooks,
    aggregation::Aggregation,
    audit::Trail,
    authorization::Follower,
    compaction::Compaction,
    component_statuses::{self, Components},
    create, custom_resource_definitions, delete, eviction,
    flowcontrol::FlowControl,
    ip_addresses::{self, IpAddresses},
    kinds::Subresource,
    large_object_cache::Recent,
    large_requests::LargeRequests,
    metrics::Metrics,
    node_proxy, node_stream, pods, read,
    registry::Registry,
    request::{Query, Resource},
    resource_metrics,
    response::{self, Reply},
    reviews, scale,
    status::ApiError,
    system_objects::{self, OwnObjects},
    tokens, update, watch,
    webhook::Webhooks,
    write::with_warnings,
};
use api::feature_gates::FeatureGates;
use bytes::Bytes;
use http::{HeaderMap, Method};
use hyper::upgrade::OnUpgrade;
use parking_lot::Mutex;
use std::sync::Arc;
use store::Store;
use tokio::time::Instant;

/// The API server. Cheap to clone.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) store: Store,
    pub(crate) dialer: Arc<dyn NodeDialer>,
    pub(crate) gates: Arc<FeatureGates>,
    /// The roles and bindings that decide who may do what.
    pub(crate) follower: Arc<Follower>,
    /// Signs the tokens of service accounts; without one there are none.
    pub(crate) signing_key: Option<Arc<SigningKey>>,
    /// How long requested tokens are valid at most.
    pub(crate) token_lifetime: TokenLifetime,
    /// Tokens that let in whom a file names.
    pub(crate) tokens: Option<Arc<TokenFile>>,
    /// Host and port, as others are told.
    pub(crate) address: Option<String>,
    /// What is served beside what is built in.
    pub(crate) registry: Arc<Registry>,
    /// Held by whoever chooses the addresses of a Service.
    pub(crate) allocating: Arc<tokio::sync::Mutex<()>>,
    /// Follows which addresses are whose.
    pub(crate) addresses: Arc<IpAddresses>,
    /// The admission plugins that are on.
    pub(crate) plugins: Arc<AdmissionPlugins>,
    /// Held by whoever takes from a quota.
    pub(crate) counting: Arc<tokio::sync::Mutex<()>>,
    /// Whose requests are carried out when there are too many.
    pub(crate) flows: Arc<FlowControl>,
    /// Who serves what is not served here.
    pub(crate) aggregation: Arc<Aggregation>,
    /// The authority by which clients are known, in PEM.
    pub(crate) clients: Option<Arc<str>>,
    /// Where it is noted who does what, if it is.
    pub(crate) audit: Option<Arc<AuditLog>>,
    /// Calls whoever converts or admits objects outside of this process.
    pub(crate) webhooks: Arc<Webhooks>,
    /// Who is asked about writes.
    pub(crate) hooks: Arc<Hooks>,
    /// Whether the parts of the control plane are there.
    pub(crate) components: Arc<Components>,
    /// What is measured.
    pub(crate) metrics: Arc<Metrics>,
    /// What nodes have said that is used there.
    pub(crate) nodes: Arc<resource_metrics::Nodes>,
    /// What was written lately.
    pub(crate) recent: Arc<Recent>,
    /// Which revisions can still be listed.
    pub(crate) compaction: Arc<Compaction>,
    /// The threads of requests with large objects.
    pub(crate) large: Arc<LargeRequests>,
    /// What there must be of its own.
    pub(crate) own: Arc<OwnObjects>,
}

/// A request whose body was read.
pub(crate) struct Call {
    pub(crate) user: UserInfo,
    pub(crate) method: Method,
    pub(crate) query: Query,
    pub(crate) raw_query: String,
    pub(crate) accept: String,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
    pub(crate) headers: HeaderMap,
    /// The connection itself, for those that speak something else on it.
    pub(crate) upgrade: Option<OnUpgrade>,
    /// By when there must be an answer, if it does not last.
    pub(crate) ends: Option<Instant>,
    /// What is noted of it; kept by whoever goes on after the answer.
    pub(crate) trail: Trail,
    /// What the client is told beside the answer, whatever that is.
    pub(crate) told: Mutex<Vec<String>>,
}

impl ApiServer {
    /// A server of the objects in this store, which reaches kubelets through this dialer.
    #[must_use]
    pub fn new(store: Store, dialer: Arc<dyn NodeDialer>) -> Self {
        let follower = Arc::new(Follower::new(store.clone()));
        let hooks = Arc::new(Hooks::new(store.clone()));
        let webhooks = Arc::new(Webhooks::new(store.clone()));
        let addresses = Arc::new(IpAddresses::new(store.clone()));
        let compaction = Arc::new(Compaction::new(store.revision()));
        let server = Self {
            store,
            compaction,
            webhooks,
            hooks,
            dialer,
            gates: Arc::default(),
            follower,
            signing_key: None,
            token_lifetime: TokenLifetime::default(),
            tokens: None,
            address: None,
            registry: Arc::default(),
            allocating: Arc::default(),
            addresses,
            counting: Arc::default(),
            plugins: Arc::default(),
            own: Arc::default(),
            audit: None,
            aggregation: Arc::default(),
            clients: None,
            flows: Arc::default(),
            components: Arc::default(),
            metrics: Arc::default(),
            nodes: Arc::default(),
            recent: Arc::default(),
            large: Arc::default(),
        };
        Registry::load(&server);
        server.aggregation.load(&server);
        server.flows.load(&server);
        server
    }

    /// The same server with these features; without, there are the defaults.
    #[must_use]
    pub fn with_gates(mut self, gates: FeatureGates) -> Self {
        self.gates = Arc::new(gates);
        self.registry.set_gates(&self.gates);
        Registry::load(&self);
        self
    }

    /// The same server with these admission plugins; without, there are the default ones.
    #[must_use]
    pub fn with_admission(self, plugins: AdmissionPlugins) -> Self {
        Self { plugins: Arc::new(plugins), ..self }
    }

    /// The same server, which issues tokens for service accounts, mounts them into Pods, and knows who shows one.
    #[must_use]
    pub fn with_signing_key(self, key: SigningKey) -> Self {
        Self { signing_key: Some(Arc::new(key)), ..self }
    }

    /// The same server, whose requested tokens are valid for so long at most.
    #[must_use]
    pub fn with_token_lifetime(self, token_lifetime: TokenLifetime) -> Self {
        Self { token_lifetime, ..self }
    }

    /// The same server, which lets in whoever shows one of these tokens.
    #[must_use]
    pub fn with_tokens(self, tokens: TokenFile) -> Self {
        Self { tokens: Some(Arc::new(tokens)), ..self }
    }

    /// The same server, which tells others that it is found at this host and port.
    #[must_use]
    pub fn with_address(self, address: &str) -> Self {
        Self { address: Some(address.to_owned()), ..self }
    }

    /// The same server, which carries out so many requests at a time (upstream's `--max-requests-inflight` and
    /// `--max-mutating-requests-inflight`, together).
    #[must_use]
    pub fn with_requests_at_a_time(self, total: usize) -> Self {
        let server = Self { flows: Arc::new(FlowControl::new(total)), ..self };
        server.flows.load(&server);
        server
    }

    /// The same server, which notes who does what.
    #[must_use]
    pub fn with_audit(self, log: Arc<AuditLog>) -> Self {
        Self { audit: Some(log), ..self }
    }

    /// The same server, which other servers know by this certificate; its own clients are known by this authority, in PEM.
    #[must_use]
    pub fn with_front_proxy(self, front: FrontProxy, clients: &str) -> Self {
        let (aggregation, clients) = (Arc::new(Aggregation::new(Some(front))), Some(clients.into()));
        let server = Self { aggregation, clients, ..self };
        server.aggregation.load(&server);
        server
    }

    /// A request for a part of an object that has rules of its own.
    async fn part(&self, part: &Subresource, resource: &Resource, call: &Call) -> Reply {
        match call.method.as_str() {
            "GET" if part.verbs.contains(&"get") => read::get(self, resource, call).await,
            "PUT" if part.verbs.contains(&"update") => update::update(self, resource, call).await,
            "PATCH" if part.verbs.contains(&"patch") => update::patch(self, resource, call).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// Carries out a request; what follows from it for what is served is true when it is answered.
    pub(crate) async fn carried_out(&self, resource: Resource, mut call: Call) -> Reply {
        let kind = resource.kind.clone();
        let concerns = custom_resource_definitions::concern(&resource, &call.method);
        let is_write = !matches!(call.method, Method::GET | Method::HEAD);
        let is_own = system_objects::concern(&resource, &call.method);
        let mut answer = self.dispatch(resource, &mut call).await;
        if concerns {
            answer = custom_resource_definitions::settled(self, answer).await;
        }
        if is_write && answer.is_ok() {
            self.aggregation.note(self, kind.info().storage);
            self.note_flows(kind.info().storage);
            if is_own {
                self.look_after_own();
            }
            if ip_addresses::concern(kind.info().storage, &call) {
                ip_addresses::settle(self).await;
            }
        }
        let told = std::mem::take(&mut *call.told.lock());
        if !told.is_empty() {
            let response = answer.unwrap_or_else(|error| response::error(&error));
            answer = Ok(with_warnings(response, &told));
        }
        match kind.deprecation() {
            Some(warning) => {
                call.trail.annotate("k8s.io/deprecated", "true".to_owned());
                answer.map(|response| with_warnings(response, &[warning.to_owned()]))
            }
            None => answer,
        }
    }

    async fn dispatch(&self, resource: Resource, call: &mut Call) -> Reply {
        let info = resource.kind.info();
        match (info.storage, resource.subresource.as_deref()) {
            ("bindings", None) if info.question => return pods::bind_any(self, &resource, call).await,
            (_, None) if info.stand_in => return resource_metrics::answer(self, &resource, call).await,
            (_, None) if info.computed => return component_statuses::answer(self, &resource, call),
            (_, None) if info.question => return reviews::answer(self, &resource, call).await,
            (_, None | Some("status")) => {}
            (_, Some("scale")) if info.subresource("scale").is_some() => {
                return scale::answer(self, &resource, call).await;
            }
            ("pods", Some("binding")) if call.method == Method::POST => {
                return pods::bind(self, &resource, call).await;
            }
            ("pods", Some("eviction")) if call.method == Method::POST => {
                return eviction::answer(self, &resource, call).await;
            }
            ("serviceaccounts", Some("token")) if call.method == Method::POST => {
                return tokens::create(self, &resource, call).await;
            }
            ("pods", Some("log")) if call.method == Method::GET => {
                return node_proxy::log(self, &resource, call).await;
            }
            ("pods", Some("exec" | "attach" | "portforward")) if matches!(call.method, Method::GET | Method::POST) => {
                return node_stream::open(self, &resource, call).await;
            }
            (_, Some(name)) => {
                let found = info.subresource(name).ok_or_else(ApiError::no_such_path)?;
                if found.kind != info.kind {
                    return Err(ApiError::method_not_allowed());
                }
                return self.part(found, &resource, call).await;
            }
        }
        if resource.subresource.is_some() && !info.status {
            return Err(ApiError::no_such_path());
        }
        match (call.method.as_str(), resource.name.is_some()) {
            // Of what has a name there is nothing to watch but by a selector: there, upstream ignores `watch`.
            ("GET", true) => read::get(self, &resource, call).await,
            ("GET", false) if call.query.flag("watch") => watch::watch(self, &resource, call),
            ("GET", false) => read::list(self, &resource, call).await,
            ("POST", false) => create::create(self, &resource, call).await,
            ("PUT", true) => update::update(self, &resource, call).await,
            ("PATCH", true) => update::patch(self, &resource, call).await,
            // What is deleted is the whole: nobody may do that who may no more than see its status.
            ("DELETE", true) if resource.subresource.is_none() => delete::one(self, &resource, call).await,
            ("DELETE", false) => delete::collection(self, &resource, call).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}
