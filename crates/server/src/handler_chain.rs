//! Request handler chain: authentication, audit, impersonation, flow control, authorization, dispatch
//! (`DefaultBuildHandlerChain`).

use crate::{
    aggregation,
    api_server::ApiServer,
    documents::{discovery, openapi, openid_metadata},
    health,
    http::{
        authorization,
        clock::now,
        compress,
        content_negotiation::{self, protobuf_bodies},
        deadline, impersonation,
        listener::UnknownCertificate,
        meta_v1beta1,
        request_body::read_body,
        request_handler::RequestHandler,
        websocket,
    },
    metrics::{self, RequestMeasurement},
    objects::{
        call::Call,
        object,
        request_scope::{self, RequestScope},
    },
    proxy::reverse_proxy::Outgoing,
    registry::proxy,
    rest::large_requests,
};
use audit::AuditContext;
use auth::tokens;
use bytes::Bytes;
use errors::ApiError;
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderMap, Request, Response, header, request::Parts};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use parking_lot::Mutex;
use request::{RequestInfo, UserInfo};
use response::{Body, BoxError, HandlerResult};
use std::panic::AssertUnwindSafe;
use tokio::time::Instant;
use tracing::{Instrument, Span};
use wire::protobuf;

/// An authenticated request whose body is not read yet.
struct AuthenticatedRequest {
    head: Parts,
    body: Body,
    upgrade: Option<OnUpgrade>,
    raw_query: String,
}

/// Serves `/version` and the health endpoints, which need no authentication.
fn serve_public_path(server: &ApiServer, method: &http::Method, path: &str, raw_query: &str) -> HandlerResult {
    if !path.starts_with("/version") {
        return health::respond(server, path, raw_query);
    }
    match *method {
        http::Method::GET | http::Method::HEAD => Ok(discovery::version_response()),
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Returns the span of a request: all log lines of the request have its fields.
fn request_span(head: &Parts, audit: &AuditContext) -> Span {
    // Of the highest level, because a level filter that drops it would drop the fields of the lines in it.
    tracing::error_span!(
        "request",
        audit_id = audit.audit_id(),
        method = head.method.as_str(),
        path = head.uri.path(),
        user = tracing::field::Empty,
    )
}

impl RequestHandler for ApiServer {
    fn handle_request(&self, user: Option<UserInfo>, request: Request<Body>) -> BoxFuture<'_, Response<Body>> {
        self.handle_boxed(user, request).boxed()
    }
}

impl ApiServer {
    /// Handles one request. A panic becomes a 500.
    pub fn handle<B>(&self, user: Option<UserInfo>, request: Request<B>) -> BoxFuture<'_, Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        // One body type, so that the rest of the chain is compiled once.
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        self.handle_boxed(user, request).boxed()
    }

    async fn handle_boxed(&self, user: Option<UserInfo>, request: Request<Body>) -> Response<Body> {
        let (media_type, gzip) =
            (content_negotiation::negotiate(request.headers()), compress::accepts_gzip(request.headers()));
        let is_older = meta_v1beta1::is_older(request.headers());
        let (mut head, body) = request.into_parts();
        websocket::move_token(&mut head.headers);
        let socket = websocket::WebSocketUpgrade::of(&head);
        let audit = AuditContext::begin(self.audit.as_ref(), &head);
        let (is_pretty, is_head) = (content_negotiation::is_pretty(&head), head.method == http::Method::HEAD);
        let span = request_span(&head, &audit);
        let handled = AssertUnwindSafe(self.authenticate_and_handle(user, head, body, &audit)).catch_unwind();
        let response = match Box::pin(handled.instrument(span)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => response::error(&error),
            Err(panic) => {
                let message = panic.downcast_ref::<&str>().copied().map(str::to_owned);
                let message = message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                audit.log_panic(&message).await;
                response::error(&ApiError::internal("failed to handle the request"))
            }
        };
        let response = audit.log_response(response).await;
        let response = if is_older { meta_v1beta1::answer(response).await } else { response };
        let response = match socket {
            Some(socket) => socket.upgrade_response(response),
            None => response,
        };
        let response = content_negotiation::encode_response(response, media_type).await;
        let response = if is_pretty { content_negotiation::indent_response(response).await } else { response };
        let response = if gzip { compress::compress_response(response) } else { response };
        if is_head { response::without_body(response) } else { response }
    }

    /// Authenticates a request (`WithAuthentication`), begins its audit event (`WithAudit`), impersonates
    /// (`WithImpersonation`), and waits for a seat of its priority level (`WithPriorityAndFairness`).
    async fn authenticate_and_handle(
        &self,
        user: Option<UserInfo>,
        mut head: Parts,
        body: Body,
        audit: &AuditContext,
    ) -> HandlerResult {
        let upgrade = head.extensions.remove();
        // The listener has determined it, but not for requests of the same process.
        let info = head.extensions.remove().unwrap_or_else(|| RequestInfo::new(&head.method, &head.uri));
        head.uri.clone_from(&info.uri);
        let path = head.uri.path();
        let raw_query = head.uri.query().unwrap_or("").to_owned();
        head.extensions.insert(deadline::RequestTimeout::of(&info)?);
        let is_public_path = matches!(path, "/healthz" | "/livez" | "/readyz" | "/version" | "/version/");
        let user = match user {
            // Public paths skip authentication, unless the request is audited or has a token.
            None if is_public_path && !audit.is_enabled() && tokens::bearer_token(&head.headers).is_none() => None,
            user => user.or_else(|| self.authenticate_by_token(&head.headers)),
        };
        // Invalid credentials must not fall back to anonymous.
        let has_invalid_credentials = user.is_none()
            && (head.extensions.get::<UnknownCertificate>().is_some() || tokens::bearer_token(&head.headers).is_some());
        let is_public = is_public_path && !has_invalid_credentials;
        let user = user.or_else(|| is_public.then(UserInfo::anonymous));
        let Some(user) = user.map(UserInfo::authenticated) else {
            audit.log_failed_authentication(&info).await;
            return Err(ApiError::new(401, "Unauthorized", "Unauthorized"));
        };
        audit.process_request_received(&user, &info).await;
        let user = impersonation::impersonate(&self.registry.authorizer, user, &mut head.headers, audit).await?;
        Span::current().record("user", user.name.as_str());
        let (classified, admission) = self.flow_control.admit(&user, &info.attributes).await;
        let reply = match admission {
            Ok(()) if is_public => serve_public_path(self, &head.method, head.uri.path(), &raw_query),
            Ok(()) => {
                self.authorize_and_dispatch(user, info, AuthenticatedRequest { head, body, upgrade, raw_query }, audit)
                    .await
            }
            Err(error) => Err(error),
        };
        let mut response = reply.unwrap_or_else(|error| response::error(&error));
        classified.set_response_headers(&mut response);
        Ok(response)
    }

    /// Serves the metadata of the issuer of service account tokens. Returns `None` for other paths.
    fn serve_openid_metadata(&self, method: &http::Method, path: &str) -> Option<HandlerResult> {
        if !openid_metadata::has_document(path) {
            return None;
        }
        // The endpoint of the Service `kubernetes` is reachable from Pods and from outside.
        let endpoint = self.system_objects.endpoint().map(|endpoint| endpoint.to_string());
        let address = endpoint.as_deref().or(self.external_address.as_deref());
        Some(openid_metadata::serve_document(self.authentication.signing_key.as_deref(), address, method, path))
    }

    /// Returns the user of a request with a valid bearer token, and records the use of a legacy token.
    fn authenticate_by_token(&self, headers: &HeaderMap) -> Option<UserInfo> {
        let user = self.authentication.authenticate_request(headers, now());
        self.record_legacy_token_uses();
        user
    }

    /// Authorizes a request that flow control has admitted (`WithAuthorization`), and dispatches it by its path.
    async fn authorize_and_dispatch(
        &self,
        user: UserInfo,
        mut info: RequestInfo,
        request: AuthenticatedRequest,
        audit: &AuditContext,
    ) -> HandlerResult {
        let AuthenticatedRequest { head, body, upgrade, raw_query } = request;
        let path = head.uri.path();
        let text =
            |name: header::HeaderName| head.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("").to_owned();
        let accept = text(header::ACCEPT);
        let served = self.kinds.served();
        authorization::authorize_request(&self.registry.authorizer, &user, &info.attributes, &head.headers, audit)
            .await?;
        if path == "/metrics" && matches!(head.method, http::Method::GET | http::Method::HEAD) {
            return Ok(metrics::serve_metrics(self));
        }
        if health::is_check(path) {
            return health::respond(self, path, &raw_query);
        }
        if let Some(route) = self.aggregation.aggregated_route(&info) {
            let outgoing = Self::outgoing(&head, body, upgrade, audit);
            return aggregation::proxy_request(&self.registry.store, route, &user, outgoing, &head).await;
        }
        let address = self.external_address.as_deref();
        if let Some(response) = discovery::respond(&served, &self.aggregation, path, address, &accept, &head.headers) {
            return Ok(response);
        }
        if let Some(response) = self.serve_openid_metadata(&head.method, path) {
            return response;
        }
        if let Some(response) =
            openapi::handle(&self.documents, &served, &self.aggregation, path, &raw_query, &head.headers).await
        {
            return Ok(response);
        }
        let resource = request_scope::resolve(&served, &info)?;
        if resource.kind.is_custom() {
            object::require_text_media_type(&accept)?;
        }
        let accept = if resource.kind.info().create_only { object::exclude_tables(&accept)? } else { accept };
        let content_type = text(header::CONTENT_TYPE);
        let content_type = content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        let Parts { method, uri, headers, extensions, .. } = head;
        let (query, audit) = (std::mem::take(&mut info.query), audit.clone());
        let call = Call {
            user,
            method,
            query,
            raw_query,
            accept,
            content_type,
            body: Bytes::new(),
            headers,
            upgrade,
            deadline: None,
            audit,
            warnings: Mutex::default(),
        };
        let measurement = RequestMeasurement::begin(&self.metrics, &resource, &call);
        if proxy::is_proxy_request(&resource) {
            return measurement.record_response(
                proxy::proxy_request(
                    &self.kubelets,
                    &self.registry.admission,
                    &resource,
                    call,
                    body,
                    (&uri, info.backend_path_start()),
                    extensions.get(),
                )
                .await,
            );
        }
        let deadline::RequestTimeout(timeout) = extensions.get().copied().unwrap_or_default();
        let call = Call { deadline: timeout.map(|timeout| Instant::now() + timeout), ..call };
        // Boxed: the future is large and is moved several times.
        let handled = Box::pin(self.read_and_handle(resource, call, body));
        measurement.record_response(deadline::with_timeout(timeout, handled).await)
    }

    /// Reads the body of a resource request, and handles the request.
    async fn read_and_handle(&self, resource: RequestScope, mut call: Call, body: Body) -> HandlerResult {
        call.body = read_body(body).await?;
        if !large_requests::is_large(&self.registry, &resource, &call) {
            return self.handle_with_body(resource, call).await;
        }
        let server = self.clone();
        self.registry
            .large_requests
            .run(async move { server.handle_with_body(resource, call).await }.in_current_span())
            .await
    }

    /// Handles a resource request whose body is read; a protobuf body is converted to JSON first.
    async fn handle_with_body(&self, resource: RequestScope, mut call: Call) -> HandlerResult {
        if call.content_type == protobuf::MEDIA_TYPE {
            call.body = protobuf_bodies::decode_body(&call.body, resource.kind.info().kind)?;
            "application/json".clone_into(&mut call.content_type);
        }
        call.audit.log_request_object(&call.body, &call.content_type);
        self.handle_resource_request(resource, call).await
    }

    /// Builds the request that is proxied to another server; its body is streamed.
    fn outgoing(head: &Parts, body: Body, upgrade: Option<OnUpgrade>, audit: &AuditContext) -> Outgoing {
        let (method, headers) = (head.method.clone(), head.headers.clone());
        Outgoing { method, to: String::new(), headers, body, upgrade, audit: audit.clone() }
    }
}
