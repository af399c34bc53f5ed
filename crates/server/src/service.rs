//! The way of a request: who asks, what for, and which handler answers.

use crate::{
    AdmissionPlugin, NodeDialer, SigningKey, TokenFile, UserInfo,
    admit::Hooks,
    authz::{self, Follower},
    compress, create, deadline, definitions, delete, discovery, eviction, form, health,
    kinds::Subresource,
    node_proxy, node_stream, openapi, pods, protobuf, read,
    registry::Registry,
    reply::{self, Body, BoxError, Reply},
    request::{self, Query, Resource},
    reviews, scale,
    status::ApiError,
    tokens, update, watch,
    webhook::Webhooks,
    write::{now, with_warnings},
};
use api::feature_gates::FeatureGates;
use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use parking_lot::Mutex;
use std::{panic::AssertUnwindSafe, sync::Arc};
use store::Store;

/// Upstream's limit on a request's body.
const MAX_BODY: usize = 3 << 20;

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
    /// Tokens that let in whom a file names.
    pub(crate) tokens: Option<Arc<TokenFile>>,
    /// Host and port, as others are told.
    pub(crate) address: Option<String>,
    /// What is served beside what is built in.
    pub(crate) registry: Arc<Registry>,
    /// Held by whoever chooses the addresses of a Service.
    pub(crate) allocating: Arc<tokio::sync::Mutex<()>>,
    /// Admission that was asked for.
    pub(crate) plugins: Arc<[AdmissionPlugin]>,
    /// Held by whoever takes from a quota.
    pub(crate) counting: Arc<tokio::sync::Mutex<()>>,
    /// Calls whoever converts or admits objects outside of this process.
    pub(crate) webhooks: Arc<Webhooks>,
    /// Who is asked about writes.
    pub(crate) hooks: Arc<Hooks>,
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
    pub(crate) upgrade: Option<hyper::upgrade::OnUpgrade>,
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
        let server = Self {
            store,
            webhooks,
            hooks,
            dialer,
            gates: Arc::default(),
            follower,
            signing_key: None,
            tokens: None,
            address: None,
            registry: Arc::default(),
            allocating: Arc::default(),
            counting: Arc::default(),
            plugins: Arc::default(),
        };
        Registry::load(&server);
        server
    }

    /// The same server with these features; without, there are the defaults.
    #[must_use]
    pub fn with_gates(mut self, gates: FeatureGates) -> Self {
        self.gates = Arc::new(gates);
        self
    }

    /// The same server with admission that is off otherwise.
    #[must_use]
    pub fn with_admission(self, plugins: Vec<AdmissionPlugin>) -> Self {
        Self { plugins: plugins.into(), ..self }
    }

    /// The same server, which issues tokens for service accounts, mounts them into Pods, and knows who shows one.
    #[must_use]
    pub fn with_signing_key(self, key: SigningKey) -> Self {
        Self { signing_key: Some(Arc::new(key)), ..self }
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

    /// Answers one request. Whatever it holds, there is an answer: a bug becomes a 500.
    pub async fn handle<B>(&self, user: Option<UserInfo>, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (form, gzip) = (form::wanted(request.headers()), compress::accepts_gzip(request.headers()));
        let work = AssertUnwindSafe(self.answer(user, request)).catch_unwind();
        let response = match Box::pin(work).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => reply::error(&error),
            Err(_) => reply::error(&ApiError::internal("the request could not be handled")),
        };
        let response = form::answer(response, form).await;
        if gzip { compress::answer(response).await } else { response }
    }

    async fn answer<B>(&self, user: Option<UserInfo>, request: Request<B>) -> Reply
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut head, body) = request.into_parts();
        let upgrade = head.extensions.remove();
        let path = head.uri.path();
        let raw_query = head.uri.query().unwrap_or("").to_owned();
        if matches!(path, "/healthz" | "/livez" | "/readyz") {
            return health::answer(path, &raw_query);
        }
        if path == "/version" || path == "/version/" {
            return Ok(reply::json(200, &discovery::version()));
        }
        let user = user.or_else(|| tokens::bearer(self, &head.headers, now()));
        let user = user.ok_or_else(|| ApiError::new(401, "Unauthorized", "Unauthorized"))?.authenticated();
        let user = authz::impersonate(self, user, &mut head.headers).await?;
        let text =
            |name: header::HeaderName| head.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("").to_owned();
        let accept = text(header::ACCEPT);
        let served = self.registry.served();
        authz::check(self, &user, &head.method, path, &raw_query).await?;
        if health::is_check(path) {
            return health::answer(path, &raw_query);
        }
        if let Some(answer) = discovery::answer(&served, path, &accept, &head.headers) {
            return Ok(answer);
        }
        if let Some(answer) = tokens::discovery(self, &head.method, path) {
            return answer;
        }
        if let Some(answer) = openapi::answer(&self.registry, path, &raw_query, &head.headers).await {
            return Ok(answer);
        }
        let resource = request::resource(&served, path)?;
        let content_type = text(header::CONTENT_TYPE);
        let mut content_type = content_type.split(';').next().unwrap_or("").trim().to_owned();
        let query = Query::parse(&raw_query);
        let limit = deadline::of(&resource, &query)?;
        deadline::within(limit, async move {
            let mut body = read_body(body).await?;
            if content_type == protobuf::MEDIA_TYPE {
                body = protobuf::body(&body, &resource)?;
                "application/json".clone_into(&mut content_type);
            }
            let call = Call {
                user,
                method: head.method,
                query,
                raw_query,
                accept,
                content_type,
                body,
                headers: head.headers,
                upgrade,
                told: Mutex::default(),
            };
            Box::pin(self.carried_out(resource, call)).await
        })
        .await
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
    async fn carried_out(&self, resource: Resource, mut call: Call) -> Reply {
        let kind = resource.kind.clone();
        let concerns = definitions::concern(&resource, &call.method);
        let mut answer = self.dispatch(resource, &mut call).await;
        if concerns {
            answer = definitions::settled(self, answer).await;
        }
        let told = std::mem::take(&mut *call.told.lock());
        if !told.is_empty() {
            let response = answer.unwrap_or_else(|error| reply::error(&error));
            answer = Ok(with_warnings(response, &told));
        }
        match kind.deprecation() {
            Some(warning) => answer.map(|response| with_warnings(response, &[warning.to_owned()])),
            None => answer,
        }
    }

    async fn dispatch(&self, resource: Resource, call: &mut Call) -> Reply {
        let info = resource.kind.info();
        match (info.plural, resource.subresource.as_deref()) {
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
            ("nodes", Some("proxy")) if call.method == Method::GET => {
                return node_proxy::node(self, &resource, call).await;
            }
            (_, Some(name)) => {
                let found = info.subresource(name).filter(|s| s.kind == info.kind);
                return self.part(found.ok_or_else(ApiError::no_such_path)?, &resource, call).await;
            }
        }
        if resource.subresource.is_some() && !info.status {
            return Err(ApiError::no_such_path());
        }
        match (call.method.as_str(), resource.name.is_some()) {
            ("GET", true) if !call.query.flag("watch") => read::get(self, &resource, call).await,
            ("GET", _) if call.query.flag("watch") => watch::watch(self, &resource, call),
            ("GET", false) => read::list(self, &resource, call).await,
            ("POST", false) if resource.kind.is_terminating() => Err(ApiError::not_supported("create", info)),
            ("POST", false) => create::create(self, &resource, call).await,
            ("PUT", true) => update::update(self, &resource, call).await,
            ("PATCH", true) => update::patch(self, &resource, call).await,
            ("DELETE", true) => delete::one(self, &resource, call).await,
            ("DELETE", false) => delete::collection(self, &resource, call).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}

async fn read_body<B>(body: B) -> Result<Bytes, ApiError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(all) => Ok(all.to_bytes()),
        Err(e) if e.is::<http_body_util::LengthLimitError>() => {
            Err(ApiError::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {MAX_BODY}")))
        }
        Err(e) => Err(ApiError::bad_request(format!("the body could not be read: {e}"))),
    }
}
