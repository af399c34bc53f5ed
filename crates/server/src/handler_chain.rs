//! The way of a request: who asks, whether it is their turn, whether they may, and who answers.

use crate::{
    UserInfo, aggregation,
    audit::Trail,
    authorization::{self, Attributes},
    compress, content_negotiation, deadline, discovery, health, large_requests,
    listener::UnknownCertificate,
    meta_v1beta1,
    metrics::{self, Measured},
    object, openapi, protobuf, proxy,
    request::{self, Query, Resource},
    response::{self, Body, BoxError, Reply},
    reverse_proxy::Outgoing,
    service::{ApiServer, Call},
    status::ApiError,
    tokens, websocket,
    write::now,
};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, header, request::Parts};
use http_body_util::{BodyExt, Limited};
use hyper::upgrade::OnUpgrade;
use parking_lot::Mutex;
use std::panic::AssertUnwindSafe;
use tokio::time::Instant;

/// Upstream's limit on a request's body.
const MAX_BODY: usize = 3 << 20;

/// A request whose user is known.
struct Asked {
    head: Parts,
    body: Body,
    upgrade: Option<OnUpgrade>,
    raw_query: String,
}

/// The version, and whether all is well: what everybody is told, named or not.
fn shown_to_all(server: &ApiServer, method: &http::Method, path: &str, raw_query: &str) -> Reply {
    if !path.starts_with("/version") {
        return health::answer(server, path, raw_query);
    }
    match *method {
        http::Method::GET | http::Method::HEAD => Ok(discovery::version()),
        _ => Err(ApiError::method_not_allowed()),
    }
}

impl ApiServer {
    /// Answers one request. Whatever it holds, there is an answer: a bug becomes a 500.
    pub fn handle<B>(&self, user: Option<UserInfo>, request: Request<B>) -> BoxFuture<'_, Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        // Of one type from here on, so that all that follows is compiled once.
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        self.handle_any(user, request).boxed()
    }

    async fn handle_any(&self, user: Option<UserInfo>, request: Request<Body>) -> Response<Body> {
        let (form, gzip) = (content_negotiation::wanted(request.headers()), compress::accepts_gzip(request.headers()));
        let is_older = meta_v1beta1::is_older(request.headers());
        let (mut head, body) = request.into_parts();
        websocket::move_token(&mut head.headers);
        let socket = websocket::Wanted::of(&head);
        let trail = Trail::begin(self.audit.as_ref(), &head);
        let (is_pretty, is_head) = (content_negotiation::is_pretty(&head), head.method == http::Method::HEAD);
        let work = AssertUnwindSafe(self.answer(user, head, body, &trail)).catch_unwind();
        let response = match Box::pin(work).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => response::error(&error),
            Err(panic) => {
                let why = panic.downcast_ref::<&str>().copied().map(str::to_owned);
                let why = why.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                trail.panicked(&why).await;
                response::error(&ApiError::internal("the request could not be handled"))
            }
        };
        let response = trail.answered(response).await;
        let response = if is_older { meta_v1beta1::answer(response).await } else { response };
        let response = match socket {
            Some(socket) => socket.answer(response),
            None => response,
        };
        let response = content_negotiation::answer(response, form).await;
        let response = if is_pretty { content_negotiation::pretty(response).await } else { response };
        let response = if gzip { compress::answer(response) } else { response };
        if is_head { response::without_body(response) } else { response }
    }

    async fn answer(&self, user: Option<UserInfo>, mut head: Parts, body: Body, trail: &Trail) -> Reply {
        let upgrade = head.extensions.remove();
        // Audit, flow control, authorization and deadline use this value, and routing the path that it was made from.
        let wanted = Attributes::of_request(&head.method, &mut head.uri);
        let path = head.uri.path();
        let raw_query = head.uri.query().unwrap_or("").to_owned();
        head.extensions.insert(deadline::Limit::of(&wanted, &Query::parse(&raw_query))?);
        let is_open = matches!(path, "/healthz" | "/livez" | "/readyz" | "/version" | "/version/");
        let user = match user {
            // What everybody is told needs nobody's name, unless it is noted.
            None if is_open && !trail.is_on() && tokens::shown(&head.headers).is_none() => None,
            user => user.or_else(|| tokens::bearer(self, &head.headers, now())),
        };
        // A name that does not hold is nobody's, not everybody's.
        let has_failed = user.is_none()
            && (head.extensions.get::<UnknownCertificate>().is_some() || tokens::shown(&head.headers).is_some());
        let is_open = is_open && !has_failed;
        let user = user.or_else(|| is_open.then(UserInfo::anonymous));
        let Some(user) = user.map(UserInfo::authenticated) else {
            trail.nobody(&wanted).await;
            return Err(ApiError::new(401, "Unauthorized", "Unauthorized"));
        };
        trail.user(&user, &wanted).await;
        let user = authorization::impersonate(self, user, &mut head.headers, trail).await?;
        let wanted = (!user.is_master()).then_some(wanted);
        let (ticket, admitted) = self.flows.enter(&user, wanted.as_ref()).await;
        let reply = match admitted {
            Ok(()) if is_open => shown_to_all(self, &head.method, head.uri.path(), &raw_query),
            Ok(()) => self.admitted(user, wanted, Asked { head, body, upgrade, raw_query }, trail).await,
            Err(error) => Err(error),
        };
        let mut response = reply.unwrap_or_else(|error| response::error(&error));
        ticket.tell(&mut response);
        Ok(response)
    }

    /// A request whose turn it is, unless its user may not make it.
    async fn admitted(&self, user: UserInfo, wanted: Option<Attributes>, asked: Asked, trail: &Trail) -> Reply {
        let Asked { head, body, upgrade, raw_query } = asked;
        let path = head.uri.path();
        let text =
            |name: header::HeaderName| head.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("").to_owned();
        let accept = text(header::ACCEPT);
        let served = self.registry.served();
        authorization::check(self, &user, wanted.as_ref(), &head.headers, trail).await?;
        if path == "/metrics" && matches!(head.method, http::Method::GET | http::Method::HEAD) {
            return Ok(metrics::answer(self));
        }
        if health::is_check(path) {
            return health::answer(self, path, &raw_query);
        }
        if let Some(route) = self.elsewhere(path) {
            let outgoing = Self::outgoing(&head, body, upgrade, trail);
            return aggregation::answer(self, route, &user, outgoing, &head).await;
        }
        let address = self.address.as_deref();
        if let Some(answer) = discovery::answer(&served, &self.aggregation, path, address, &accept, &head.headers) {
            return Ok(answer);
        }
        if let Some(answer) = tokens::discovery(self, &head.method, path) {
            return answer;
        }
        if let Some(answer) = openapi::answer(&self.registry, &self.aggregation, path, &raw_query, &head.headers).await
        {
            return Ok(answer);
        }
        let resource = request::resource(&served, path)?;
        if resource.kind.is_custom() {
            object::require_text(&accept)?;
        }
        let accept = if resource.kind.info().question { object::without_tables(&accept)? } else { accept };
        let content_type = text(header::CONTENT_TYPE);
        let content_type = content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        let Parts { method, uri, headers, extensions, .. } = head;
        let (query, trail) = (Query::parse(&raw_query), trail.clone());
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
            ends: None,
            trail,
            told: Mutex::default(),
        };
        let measured = Measured::begin(&self.metrics, &resource, &call);
        if proxy::concerns(&resource) {
            return measured.answered(proxy::answer(self, &resource, call, body, &uri, extensions.get()).await);
        }
        let deadline::Limit(limit) = extensions.get().copied().unwrap_or_default();
        let call = Call { ends: limit.map(|limit| Instant::now() + limit), ..call };
        // Moved more than once until it is carried out: it is large.
        let read = Box::pin(self.read(resource, call, body));
        measured.answered(deadline::within(limit, read).await)
    }

    /// A request for a resource of ours, whose body is read first.
    async fn read(&self, resource: Resource, mut call: Call, body: Body) -> Reply {
        call.body = read_body(body).await?;
        if !large_requests::is_large(self, &resource, &call) {
            return self.with_body(resource, call).await;
        }
        let server = self.clone();
        self.large.run(async move { server.with_body(resource, call).await }).await
    }

    /// A request whose body was read.
    async fn with_body(&self, resource: Resource, mut call: Call) -> Reply {
        if call.content_type == protobuf::MEDIA_TYPE {
            call.body = protobuf::body(&call.body, &resource)?;
            "application/json".clone_into(&mut call.content_type);
        }
        call.trail.sent(&call.body, &call.content_type);
        self.carried_out(resource, call).await
    }

    /// A request that goes on to another server, with its body as it comes.
    fn outgoing(head: &Parts, body: Body, upgrade: Option<OnUpgrade>, trail: &Trail) -> Outgoing {
        let (method, headers) = (head.method.clone(), head.headers.clone());
        Outgoing { method, to: String::new(), headers, body, upgrade, trail: trail.clone() }
    }
}

/// A whole body, if it is none too large.
pub(crate) fn read_body<B>(body: B) -> BoxFuture<'static, Result<Bytes, ApiError>>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let read = async move {
        match Limited::new(body, MAX_BODY).collect().await {
            Ok(all) => Ok(all.to_bytes()),
            Err(e) if e.is::<http_body_util::LengthLimitError>() => {
                let message = format!("Request entity too large: limit is {MAX_BODY}");
                Err(ApiError::new(413, "RequestEntityTooLarge", message))
            }
            Err(e) => Err(ApiError::bad_request(format!("the body could not be read: {e}"))),
        }
    };
    read.boxed()
}
