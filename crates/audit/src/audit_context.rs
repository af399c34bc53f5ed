//! Audit context of a request: collects its audit event, and emits it at each stage.

use super::{
    AuditLog, Event,
    event::{ObjectRef, User},
    objects::{decode_object, status_of, strip_managed_fields},
    policy::{Level, Stage},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, Uri, header, request::Parts};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use parking_lot::Mutex;
use request::{Decision, RequestInfo, UserInfo, is_long_running};
use response::{Body, BoxError, ProxiedResponse};
use serde_json::{Value, json};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const DECISION: &str = "authorization.k8s.io/decision";
const REASON: &str = "authorization.k8s.io/reason";
/// Longer user agents are truncated.
const MAX_USER_AGENT_LENGTH: usize = 1024;

/// Address of the client, for requests from the network.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// The audit ID of a request, and its audit event if there is an audit log. Clones share the event. The response of a
/// long-running request is complete when the last clone is dropped.
#[derive(Clone)]
pub struct AuditContext {
    id: HeaderValue,
    /// `None` without an audit log.
    request: Option<Arc<AuditedRequest>>,
}

/// The shared state of a request. Dropping it emits the stage `ResponseComplete`.
struct AuditedRequest {
    log: Arc<AuditLog>,
    audit_id: String,
    state: Mutex<RequestState>,
}

#[derive(Default)]
struct RequestState {
    /// `None` before the policy is evaluated, and for requests that are not logged.
    event: Option<Event>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: bool,
    is_long_running: bool,
    complete: bool,
    /// `None` after the policy is evaluated.
    received: Option<ReceivedRequest>,
}

/// Properties of a request that are recorded before authentication.
struct ReceivedRequest {
    at: Timestamp,
    /// The unmodified URI, for the event only.
    uri: Uri,
    source_ips: Vec<String>,
    user_agent: String,
    /// Kinds of credentials in the request.
    attempted_credentials: Vec<&'static str>,
}

/// Returns the audit ID of the request header, or a new one.
fn audit_id_of(headers: &HeaderMap) -> HeaderValue {
    let from_client = headers.get(&AUDIT_ID).filter(|id| !id.is_empty() && id.to_str().is_ok()).cloned();
    from_client
        .or_else(|| uuid::Uuid::new_v4().to_string().parse().ok())
        .unwrap_or_else(|| HeaderValue::from_static("unknown"))
}

impl Default for AuditContext {
    /// Returns the context of no request.
    fn default() -> Self {
        Self { id: HeaderValue::from_static("unknown"), request: None }
    }
}

impl AuditContext {
    /// Returns the audit ID of the request.
    pub fn audit_id(&self) -> &str {
        self.id.to_str().unwrap_or_default()
    }

    /// Begins the context of a received request.
    pub fn begin(log: Option<&Arc<AuditLog>>, head: &Parts) -> Self {
        let id = audit_id_of(&head.headers);
        let Some(log) = log else { return Self { id, request: None } };
        let text = |name: &HeaderName| head.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let mut user_agent = text(&header::USER_AGENT).to_owned();
        if user_agent.len() > MAX_USER_AGENT_LENGTH {
            user_agent.truncate(MAX_USER_AGENT_LENGTH);
            user_agent.push_str("...TRUNCATED");
        }
        let received = ReceivedRequest {
            at: Timestamp::now(),
            uri: head.uri.clone(),
            source_ips: source_ips(&head.headers, head.extensions.get()),
            user_agent,
            attempted_credentials: if text(&header::AUTHORIZATION).to_lowercase().starts_with("bearer ") {
                vec!["bearer"]
            } else {
                vec![]
            },
        };
        let audit_id = String::from_utf8_lossy(id.as_bytes()).into_owned();
        let state = Mutex::new(RequestState { received: Some(received), ..RequestState::default() });
        Self { id, request: Some(Arc::new(AuditedRequest { log: Arc::clone(log), audit_id, state })) }
    }

    /// Whether there is an audit log.
    pub fn is_enabled(&self) -> bool {
        self.request.is_some()
    }

    /// Sets the header `Audit-ID` of a response or of a proxied request.
    pub fn set_audit_id_header(&self, headers: &mut HeaderMap) {
        headers.insert(AUDIT_ID, self.id.clone());
    }

    /// Evaluates the policy for the authenticated user, and emits the stage `RequestReceived`.
    pub async fn process_request_received(&self, user: &UserInfo, info: &RequestInfo) {
        let Some(request) = &self.request else { return };
        if request.evaluate_policy(user, info) {
            request.emit(Stage::RequestReceived).await;
        }
    }

    /// Emits the only event of a request whose authentication failed.
    pub async fn log_failed_authentication(&self, info: &RequestInfo) {
        let Some(request) = &self.request else { return };
        let attempted = request.state.lock().received.as_ref().map(|r| r.attempted_credentials.join(", "));
        if !request.evaluate_policy(&UserInfo::default(), info) {
            return;
        }
        let message = match attempted.unwrap_or_default().as_str() {
            "" => "Authentication failed, no credentials provided".to_owned(),
            attempted => format!("Authentication failed, attempted: {attempted}"),
        };
        request.update_event(|event| {
            event.response_status = Some(json!({"metadata": {}, "message": message, "code": 401}));
        });
        request.emit(Stage::ResponseStarted).await;
        request.state.lock().complete = true;
    }

    /// Records the impersonated user.
    pub fn log_impersonated_user(&self, user: &UserInfo) {
        self.update_event(|event| event.impersonated_user = Some(User::from(user)));
    }

    /// Records the decision of authorization.
    pub fn log_authorization_decision(&self, decision: &Decision) {
        self.update_event(|event| {
            let (decision, message) = match decision {
                Decision::Allowed(message) => ("allow", message),
                Decision::NoOpinion(message) => ("forbid", message),
            };
            event.annotations.extend([(DECISION.into(), decision.to_owned()), (REASON.into(), message.clone())]);
        });
    }

    /// Adds an annotation. The first value of a key is kept.
    pub fn annotate(&self, key: impl Into<Cow<'static, str>>, value: String) {
        self.annotate_at_level(Level::Metadata, key, value);
    }

    /// Adds an annotation at this audit level or above.
    pub fn annotate_at_level(&self, level: Level, key: impl Into<Cow<'static, str>>, value: String) {
        self.update_event(|event| {
            if event.level >= level {
                event.annotations.entry(key.into()).or_insert(value);
            }
        });
    }

    /// Records the object in the request body.
    pub fn log_request_object(&self, body: &Bytes, content_type: &str) {
        let Some(request) = self.request.as_ref().filter(|_| !body.is_empty()) else { return };
        let Some(mut object) = decode_object(body, content_type) else { return };
        let mut state = request.state.lock();
        let omit_managed_fields = state.omit_managed_fields;
        let Some(event) = &mut state.event else { return };
        // A patch is not an object.
        if event.verb != "patch"
            && let Some(resource) = &mut event.object_ref
        {
            resource.complete(&object["metadata"]);
        }
        if event.level >= Level::Request {
            if omit_managed_fields {
                strip_managed_fields(&mut object);
            }
            event.request_object = Some(object);
        }
    }

    /// Records the response. A long-running one is complete when its body and all clones of this context are dropped.
    pub async fn log_response(self, mut response: Response<Body>) -> Response<Body> {
        self.set_audit_id_header(response.headers_mut());
        let Some(request) = self.request else { return response };
        let response = request.log_response(response).await;
        let is_long_running = request.state.lock().is_long_running;
        if is_long_running {
            response.map(|body| LongRunningBody { body, _request: request }.boxed_unsync())
        } else {
            response
        }
    }

    /// Emits the stage `Panic`.
    pub async fn log_panic(&self, text: &str) {
        let Some(request) = &self.request else { return };
        let message = format!("APIServer panic'd: {text}");
        let status =
            json!({"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500});
        request.update_event(|event| event.response_status = Some(status));
        request.emit(Stage::Panic).await;
        request.state.lock().complete = true;
    }

    fn update_event(&self, update: impl FnOnce(&mut Event)) {
        if let Some(request) = &self.request {
            request.update_event(update);
        }
    }
}

impl AuditedRequest {
    /// Evaluates the policy. Returns whether the request is logged.
    fn evaluate_policy(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        let mut state = self.state.lock();
        let Some(received) = state.received.take() else { return false };
        let ReceivedRequest { at, uri, source_ips, user_agent, .. } = received;
        let config = self.log.policy.evaluate(user, &info.attributes);
        if config.level == Level::None {
            return false;
        }
        state.is_long_running = is_long_running(&info.attributes);
        (state.omit_stages, state.omit_managed_fields) = (config.omit_stages, config.omit_managed_fields);
        state.event = Some(Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: config.level,
            audit_id: self.audit_id.clone(),
            stage: Stage::RequestReceived,
            request_uri: uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            user: User::from(user),
            impersonated_user: None,
            source_ips,
            user_agent,
            object_ref: ObjectRef::of_request(info),
            verb: info.attributes.verb.clone(),
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: at,
            stage_timestamp: at,
            annotations: BTreeMap::new(),
        });
        true
    }

    fn update_event(&self, update: impl FnOnce(&mut Event)) {
        if let Some(event) = &mut self.state.lock().event {
            update(event);
        }
    }

    /// Returns the event of a stage, unless the stage is omitted.
    fn event_at(&self, stage: Stage) -> Option<Event> {
        let state = self.state.lock();
        let mut event = state.event.clone().filter(|_| !state.omit_stages.contains(&stage) && !state.complete)?;
        event.stage = stage;
        if stage != Stage::RequestReceived {
            event.stage_timestamp = Timestamp::now();
        }
        Some(event)
    }

    async fn emit(&self, stage: Stage) {
        if let Some(event) = self.event_at(stage) {
            self.log.backend.send(event).await;
        }
    }

    async fn log_response(&self, response: Response<Body>) -> Response<Body> {
        let (level, is_long_running) = {
            let state = self.state.lock();
            let Some(event) = state.event.as_ref().filter(|_| !state.complete) else { return response };
            (event.level, state.is_long_running)
        };
        let code = response.status().as_u16();
        self.update_event(|event| event.response_status = Some(json!({"metadata": {}, "code": code})));
        let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|t| t == "application/json");
        let is_streamed =
            response.body().size_hint().exact().is_none() || response.extensions().get::<ProxiedResponse>().is_some();
        let logs_object = level == Level::RequestResponse || !matches!(code, 200) || self.may_respond_with_status();
        let response = if is_json && !is_streamed && logs_object {
            self.log_response_object(response, level).await
        } else {
            response
        };
        self.emit(if is_long_running { Stage::ResponseStarted } else { Stage::ResponseComplete }).await;
        self.state.lock().complete |= !is_long_running;
        response
    }

    /// Whether the response to a successful request may be a `Status`.
    fn may_respond_with_status(&self) -> bool {
        let state = self.state.lock();
        state.event.as_ref().is_some_and(|e| !matches!(e.verb.as_str(), "get" | "list" | "watch"))
    }

    async fn log_response_object(&self, response: Response<Body>, level: Level) -> Response<Body> {
        let (head, body) = response.into_parts();
        // A complete body has no errors.
        let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        if let Ok(mut object) = serde_json::from_slice::<Value>(&bytes) {
            let mut state = self.state.lock();
            if state.omit_managed_fields {
                strip_managed_fields(&mut object);
            }
            if let Some(event) = &mut state.event {
                if object["kind"] == "Status" && object["apiVersion"] == "v1" {
                    event.response_status = Some(status_of(&object, head.status.as_u16()));
                }
                event.response_object = (level == Level::RequestResponse).then_some(object);
            }
        }
        Response::from_parts(head, Full::new(bytes).map_err(|never| match never {}).boxed_unsync())
    }
}

impl Drop for AuditedRequest {
    fn drop(&mut self) {
        if let Some(event) = self.event_at(Stage::ResponseComplete) {
            self.log.backend.send_in_background(event);
        }
    }
}

/// Returns the client addresses of the forwarding headers and of the connection. In-process clients have the loopback
/// address.
fn source_ips(headers: &HeaderMap, peer: Option<&Peer>) -> Vec<String> {
    let forwarded = ["x-forwarded-for", "x-real-ip"].into_iter().filter_map(|name| headers.get(name)?.to_str().ok());
    let forwarded = forwarded.flat_map(|list| list.split(',')).filter_map(|ip| ip.trim().parse().ok());
    let connection = peer.map_or(std::net::Ipv4Addr::LOCALHOST.into(), |peer| peer.0.ip());
    let mut all: Vec<String> = Vec::new();
    for ip in forwarded.chain([connection]).map(|ip: std::net::IpAddr| ip.to_string()) {
        if !all.contains(&ip) {
            all.push(ip);
        }
    }
    all
}

/// Body of a long-running response. The response is complete when it is dropped.
struct LongRunningBody {
    body: Body,
    _request: Arc<AuditedRequest>,
}

impl http_body::Body for LongRunningBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
