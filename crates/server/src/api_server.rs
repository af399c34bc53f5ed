//! [`ApiServer`], its state, and the dispatch of resource requests to handlers.

use crate::{
    AdmissionPlugins,
    aggregation::{Aggregation, Aggregator},
    customresources::custom_resource_definitions::{self, CustomResources, Definitions},
    documents::openapi::DocumentCache,
    http::{authentication::Authentication, loopback_client::LoopbackClient},
    ip_allocator::ip_addresses::{self, IpAddresses},
    metrics::Metrics,
    objects::{call::Call, kind_registry::KindRegistry, request_scope::RequestScope, write::with_warnings},
    post_start_hooks::system_objects::{self, SystemObjects},
    proxy::{node_dialer::NodeDialer, webhook::WebhookClient},
    registry::{
        component_statuses::{self, Components},
        eviction,
        kubelet_client::KubeletClient,
        node_proxy, node_stream, pod_binding,
        resource_metrics::{self, NodeSampleCache},
        reviews, token_request,
    },
    rest::{create, delete, generic_registry::GenericRegistry, read, scale, update, watch},
};
use api::feature_gates::FeatureGates;
use audit::AuditLog;
use auth::{
    authorization::Authorizer,
    pki::FrontProxy,
    tokens::{SigningKey, TokenFile, TokenLifetime},
};
use errors::ApiError;
use flowcontrol::FlowControl;
use http::Method;
use kinds::Subresource;
use response::{BoxError, HandlerResult};
use std::sync::Arc;
use store::Store;

/// The API server. Cheap to clone.
#[derive(Clone)]
pub struct ApiServer {
    /// The objects of all kinds, and what get, list, watch, create, update, patch, apply and delete need.
    pub(crate) registry: GenericRegistry,
    /// The kinds that are served, built-in and custom.
    pub(crate) kinds: Arc<KindRegistry>,
    /// The CustomResourceDefinitions behind the custom kinds.
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) kubelets: KubeletClient,
    pub(crate) authentication: Authentication,
    /// Maximum lifetime of requested tokens.
    pub(crate) token_lifetime: TokenLifetime,
    /// Host and port at which clients reach this server.
    pub(crate) external_address: Option<String>,
    /// The OpenAPI documents.
    pub(crate) documents: Arc<DocumentCache>,
    /// Keeps IPAddress objects in step with Services.
    pub(crate) ip_addresses: Arc<IpAddresses>,
    /// API Priority and Fairness.
    pub(crate) flow_control: Arc<FlowControl>,
    /// The aggregation layer: APIServices of extension API servers.
    pub(crate) aggregation: Arc<Aggregation>,
    /// Certificate authority of client certificates, in PEM.
    pub(crate) client_ca: Option<Arc<str>>,
    /// The audit log, if auditing is enabled.
    pub(crate) audit: Option<Arc<AuditLog>>,
    /// Health of the control plane's components.
    pub(crate) components: Arc<Components>,
    /// The server's own metrics.
    pub(crate) metrics: Arc<Metrics>,
    /// Resource metrics, scraped from kubelets.
    pub(crate) node_metrics: Arc<NodeSampleCache>,
    /// The objects that the API server maintains for itself.
    pub(crate) system_objects: Arc<SystemObjects>,
}

impl ApiServer {
    /// Creates a server of the objects in a store, which reaches kubelets through a dialer.
    #[must_use]
    pub fn new(store: Store, dialer: Arc<dyn NodeDialer>) -> Self {
        let authorizer = Arc::new(Authorizer::new(store.clone()));
        let webhooks = Arc::new(WebhookClient::new(store.clone()));
        let kinds: Arc<KindRegistry> = Arc::default();
        let server = Self {
            authentication: Authentication::new(store.clone()),
            ip_addresses: Arc::new(IpAddresses::new(store.clone())),
            kubelets: KubeletClient { store: store.clone(), dialer },
            registry: GenericRegistry::new(store, webhooks, authorizer, Arc::clone(&kinds)),
            kinds,
            definitions: Arc::default(),
            token_lifetime: TokenLifetime::default(),
            external_address: None,
            documents: Arc::default(),
            flow_control: Arc::default(),
            aggregation: Arc::default(),
            client_ca: None,
            audit: None,
            components: Arc::default(),
            metrics: Arc::default(),
            node_metrics: Arc::default(),
            system_objects: Arc::default(),
        };
        custom_resource_definitions::load(&server.custom_resources());
        server.aggregation.load(&server.registry.store);
        server.flow_control.reload(&server.registry.store);
        server
    }

    /// Returns what the controllers of CustomResourceDefinitions need.
    pub(crate) fn custom_resources(&self) -> CustomResources {
        CustomResources {
            registry: self.registry.clone(),
            kinds: Arc::clone(&self.kinds),
            definitions: Arc::clone(&self.definitions),
        }
    }

    /// Returns what the controllers of APIServices need.
    pub(crate) fn aggregator(&self) -> Aggregator {
        Aggregator {
            aggregation: Arc::clone(&self.aggregation),
            store: self.registry.store.clone(),
            kinds: Arc::clone(&self.kinds),
            client: self.loopback(),
        }
    }

    /// Registers APIServices for the group versions that are served here, and checks the availability of all others.
    /// Never returns.
    pub async fn aggregate(self) {
        self.aggregator().run().await;
    }

    /// Returns the client of the server's own requests.
    pub(crate) fn loopback(&self) -> LoopbackClient {
        LoopbackClient::new(Arc::new(self.clone()))
    }

    /// Sets the feature gates; the default is [`FeatureGates::default`].
    #[must_use]
    pub fn with_gates(mut self, gates: FeatureGates) -> Self {
        let gates = Arc::new(gates);
        self.registry.set_gates(&gates);
        self.kinds.set_gates(&gates);
        custom_resource_definitions::load(&self.custom_resources());
        self
    }

    /// Sets the enabled admission plugins; the default is [`AdmissionPlugins::default`].
    #[must_use]
    pub fn with_admission(mut self, plugins: AdmissionPlugins) -> Self {
        self.registry.admission.plugins = Arc::new(plugins);
        self
    }

    /// Enables service account tokens: the server issues and authenticates them, and mounts them into Pods.
    #[must_use]
    pub fn with_signing_key(mut self, key: SigningKey) -> Self {
        self.registry.admission.issues_tokens = true;
        Self { authentication: self.authentication.clone().with_signing_key(key), ..self }
    }

    /// Sets the maximum lifetime of requested service account tokens.
    #[must_use]
    pub fn with_token_lifetime(self, token_lifetime: TokenLifetime) -> Self {
        Self { token_lifetime, ..self }
    }

    /// Sets the static tokens that the server authenticates.
    #[must_use]
    pub fn with_tokens(self, tokens: TokenFile) -> Self {
        Self { authentication: self.authentication.clone().with_token_file(tokens), ..self }
    }

    /// Sets the host and port at which clients reach this server.
    #[must_use]
    pub fn with_address(self, address: &str) -> Self {
        Self { external_address: Some(address.to_owned()), ..self }
    }

    /// Sets the concurrency limit: the sum of upstream's `--max-requests-inflight` and `--max-mutating-requests-inflight`.
    #[must_use]
    pub fn with_max_requests_inflight(self, total: usize) -> Self {
        let server = Self { flow_control: Arc::new(FlowControl::new(total)), ..self };
        server.flow_control.reload(&server.registry.store);
        server
    }

    /// Sets the audit log.
    #[must_use]
    pub fn with_audit(self, log: Arc<AuditLog>) -> Self {
        Self { audit: Some(log), ..self }
    }

    /// Sets the front-proxy certificate, with which this server authenticates to extension API servers, and the
    /// certificate authority of its own clients (PEM), which it publishes to them.
    #[must_use]
    pub fn with_front_proxy(self, front: FrontProxy, client_ca: &str) -> Self {
        let (aggregation, client_ca) = (Arc::new(Aggregation::new(Some(front))), Some(client_ca.into()));
        let server = Self { aggregation, client_ca, ..self };
        server.aggregation.load(&server.registry.store);
        server
    }

    /// Registers a component, such as `scheduler`; the check returns an error when it is unhealthy.
    pub fn register_component(&self, name: &str, check: impl Fn() -> Result<(), BoxError> + Send + Sync + 'static) {
        self.components.register(name, check);
    }

    /// Whether writes are refused because the store's quota is used up.
    #[must_use]
    pub fn quota_alarm(&self) -> tokio::sync::watch::Receiver<bool> {
        self.registry.store.quota_alarm()
    }

    /// Serves a subresource that is stored in its object, such as `ephemeralcontainers`.
    async fn serve_subresource(
        &self,
        subresource: &Subresource,
        resource: &RequestScope,
        call: &Call,
    ) -> HandlerResult {
        match call.method.as_str() {
            "GET" if subresource.verbs.contains(&"get") => read::get(&self.registry, resource, call).await,
            "PUT" if subresource.verbs.contains(&"update") => update::update(&self.registry, resource, call).await,
            "PATCH" if subresource.verbs.contains(&"patch") => update::patch(&self.registry, resource, call).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// Handles a resource request. A write to a CustomResourceDefinition, an APIService, the flow control configuration or
    /// a Service takes effect before the response is sent.
    pub(crate) async fn handle_resource_request(&self, resource: RequestScope, mut call: Call) -> HandlerResult {
        let kind = resource.kind.clone();
        let affects_definitions = custom_resource_definitions::requires_reconcile(&resource, &call.method);
        let is_write = !matches!(call.method, Method::GET | Method::HEAD);
        let affects_system_objects = system_objects::is_affected_by(&resource, &call.method);
        let mut result = self.dispatch(resource, &mut call).await;
        if affects_definitions {
            result = custom_resource_definitions::reconcile_after(&self.custom_resources(), result).await;
        }
        if is_write && result.is_ok() {
            self.aggregation.handle_write(&self.registry.store, kind.info().storage);
            self.on_flow_control_write(kind.info().storage);
            if affects_system_objects {
                self.reconcile_system_objects();
            }
            if ip_addresses::requires_reconcile(kind.info().storage, &call) {
                self.reconcile_addresses().await;
            }
        }
        let warnings = std::mem::take(&mut *call.warnings.lock());
        if !warnings.is_empty() {
            let response = result.unwrap_or_else(|error| response::error(&error));
            result = Ok(with_warnings(response, &warnings));
        }
        match kind.deprecation() {
            Some(warning) => {
                call.audit.annotate("k8s.io/deprecated", "true".to_owned());
                result.map(|response| with_warnings(response, &[warning.to_owned()]))
            }
            None => result,
        }
    }

    /// Handles a review. A TokenReview may use a legacy token.
    async fn handle_review(&self, resource: &RequestScope, call: &Call) -> HandlerResult {
        let result = reviews::handle_review(&self.registry, &self.authentication, resource, call).await;
        self.record_legacy_token_uses();
        result
    }

    /// Creates missing IPAddresses, and deletes those without a Service.
    pub(crate) async fn reconcile_addresses(&self) {
        ip_addresses::reconcile(&self.ip_addresses, &self.registry.store, &self.loopback()).await;
    }

    async fn dispatch(&self, resource: RequestScope, call: &mut Call) -> HandlerResult {
        let info = resource.kind.info();
        match (info.storage, resource.subresource.as_deref()) {
            ("bindings", None) if info.create_only => {
                return pod_binding::bind_any(&self.registry, &resource, call).await;
            }
            (_, None) if info.aggregation_fallback => {
                return resource_metrics::handle(&self.kubelets, &self.node_metrics, &resource, call).await;
            }
            (_, None) if info.computed => return component_statuses::answer(&self.components, &resource, call),
            (_, None) if info.create_only => return self.handle_review(&resource, call).await,
            (_, None | Some("status")) => {}
            (_, Some("scale")) if info.subresource("scale").is_some() => {
                return scale::handle(&self.registry, &resource, call).await;
            }
            ("pods", Some("binding")) if call.method == Method::POST => {
                return pod_binding::bind(&self.registry, &resource, call).await;
            }
            ("pods", Some("eviction")) if call.method == Method::POST => {
                return eviction::answer(&self.registry, &resource, call).await;
            }
            ("serviceaccounts", Some("token")) if call.method == Method::POST => {
                return token_request::create(
                    &self.registry,
                    &self.authentication,
                    &self.token_lifetime,
                    &resource,
                    call,
                )
                .await;
            }
            ("pods", Some("log")) if call.method == Method::GET => {
                return node_proxy::log(&self.kubelets, &resource, call).await;
            }
            ("pods", Some("exec" | "attach" | "portforward")) if matches!(call.method, Method::GET | Method::POST) => {
                return node_stream::open(&self.kubelets, &self.registry.admission, &resource, call).await;
            }
            (_, Some(name)) => {
                let found = info.subresource(name).ok_or_else(ApiError::no_such_path)?;
                if found.kind != info.kind {
                    return Err(ApiError::method_not_allowed());
                }
                return self.serve_subresource(found, &resource, call).await;
            }
        }
        if resource.subresource.is_some() && !info.status {
            return Err(ApiError::no_such_path());
        }
        match (call.method.as_str(), resource.name.is_some()) {
            // As upstream, `watch` is ignored when a path names an object: a single object is watched by a field selector.
            ("GET", true) => read::get(&self.registry, &resource, call).await,
            ("GET", false) if call.query.flag("watch") => watch::watch(&self.registry, &resource, call),
            ("GET", false) => read::list(&self.registry, &resource, call).await,
            ("POST", false) => create::create(&self.registry, &resource, call).await,
            ("PUT", true) => update::update(&self.registry, &resource, call).await,
            ("PATCH", true) => update::patch(&self.registry, &resource, call).await,
            // A subresource cannot be deleted: access to `status` must not allow to delete the object.
            ("DELETE", true) if resource.subresource.is_none() => {
                delete::delete_one(&self.registry, &resource, call).await
            }
            ("DELETE", false) => delete::delete_collection(&self.registry, &resource, call).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}
