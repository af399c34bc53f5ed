//! What is noted of one request, from its first header to the last byte of its answer.

use super::{
    AuditLog, Event,
    event::{ObjectRef, User},
    policy::{Level, Stage},
};
use crate::{
    UserInfo,
    authorization::{About, Attributes, Decision},
    deadline, request,
    response::{Body, BoxError, ProxiedResponse},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, Uri, header, request::Parts};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use parking_lot::Mutex;
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
/// Longer names of programs are cut off.
const LONGEST_AGENT: usize = 1024;

/// Where a request came from, for those that came over a network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// By what a request is known, and what is noted of it: nothing, where there is no audit log. All clones are of the same
/// request, whose answer is complete when the last one goes, if it is one that lasts.
#[derive(Clone)]
pub(crate) struct Trail {
    id: HeaderValue,
    noted: Option<Arc<Noted>>,
}

struct Noted {
    log: Arc<AuditLog>,
    audit_id: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` until it is known who asks, and for requests that are not noted.
    event: Option<Event>,
    omit: Vec<Stage>,
    omit_managed_fields: bool,
    lasts: bool,
    complete: bool,
    /// What is needed until it is known who asks.
    received: Option<Received>,
}

struct Received {
    at: Timestamp,
    /// As it was sent: for the event only, never to decide anything.
    uri: Uri,
    source_ips: Vec<String>,
    agent: String,
    /// What was shown to say who asks.
    shown: Vec<&'static str>,
}

/// By what a request is known: as whoever sent it says, or as it is called now.
fn known_by(headers: &HeaderMap) -> HeaderValue {
    let said = headers.get(&AUDIT_ID).filter(|id| !id.is_empty() && id.to_str().is_ok()).cloned();
    said.or_else(|| uuid::Uuid::new_v4().to_string().parse().ok())
        .unwrap_or_else(|| HeaderValue::from_static("unknown"))
}

impl Default for Trail {
    /// That of no request.
    fn default() -> Self {
        Self { id: HeaderValue::from_static("unknown"), noted: None }
    }
}

impl Trail {
    /// Returns the audit ID of the request.
    pub(crate) fn audit_id(&self) -> &str {
        self.id.to_str().unwrap_or_default()
    }

    /// A request has come.
    pub(crate) fn begin(log: Option<&Arc<AuditLog>>, head: &Parts) -> Self {
        let id = known_by(&head.headers);
        let Some(log) = log else { return Self { id, noted: None } };
        let text = |name: &HeaderName| head.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let mut agent = text(&header::USER_AGENT).to_owned();
        if agent.len() > LONGEST_AGENT {
            agent.truncate(LONGEST_AGENT);
            agent.push_str("...TRUNCATED");
        }
        let received = Received {
            at: Timestamp::now(),
            uri: head.uri.clone(),
            source_ips: source_ips(&head.headers, head.extensions.get()),
            agent,
            shown: if text(&header::AUTHORIZATION).to_lowercase().starts_with("bearer ") {
                vec!["bearer"]
            } else {
                vec![]
            },
        };
        let audit_id = String::from_utf8_lossy(id.as_bytes()).into_owned();
        let state = Mutex::new(State { received: Some(received), ..State::default() });
        Self { id, noted: Some(Arc::new(Noted { log: Arc::clone(log), audit_id, state })) }
    }

    /// Whether anything may be noted.
    pub(crate) fn is_on(&self) -> bool {
        self.noted.is_some()
    }

    /// Says in headers, of an answer or of a request that goes on, by what the request is known.
    pub(crate) fn name(&self, headers: &mut HeaderMap) {
        headers.insert(AUDIT_ID, self.id.clone());
    }

    /// It is known who asks: the policy decides now.
    pub(crate) async fn user(&self, user: &UserInfo, wanted: &Attributes) {
        let Some(noted) = &self.noted else { return };
        if noted.decide(user, wanted) {
            noted.emit(Stage::RequestReceived).await;
        }
    }

    /// Nobody knows who asks, which is all that there is to note.
    pub(crate) async fn nobody(&self, wanted: &Attributes) {
        let Some(noted) = &self.noted else { return };
        let shown = noted.state.lock().received.as_ref().map(|r| r.shown.join(", ")).unwrap_or_default();
        if !noted.decide(&UserInfo::default(), wanted) {
            return;
        }
        let message = match shown.as_str() {
            "" => "Authentication failed, no credentials provided".to_owned(),
            shown => format!("Authentication failed, attempted: {shown}"),
        };
        noted.change(|event| event.response_status = Some(json!({"metadata": {}, "message": message, "code": 401})));
        noted.emit(Stage::ResponseStarted).await;
        noted.state.lock().complete = true;
    }

    /// Somebody acts as somebody else.
    pub(crate) fn impersonated(&self, user: &UserInfo) {
        self.change(|event| event.impersonated_user = Some(User::from(user)));
    }

    /// It was decided whether they may.
    pub(crate) fn decided(&self, decision: &Decision) {
        self.change(|event| {
            let (word, why) = match decision {
                Decision::Allowed(why) => ("allow", why),
                Decision::NoOpinion(why) => ("forbid", why),
            };
            event.annotations.extend([(DECISION.into(), word.to_owned()), (REASON.into(), why.clone())]);
        });
    }

    /// Something else is said of it. What was said first stays.
    pub(crate) fn annotate(&self, key: impl Into<Cow<'static, str>>, value: String) {
        self.annotate_from(Level::Metadata, key, value);
    }

    /// The same, where so much is noted.
    pub(crate) fn annotate_from(&self, least: Level, key: impl Into<Cow<'static, str>>, value: String) {
        self.change(|event| {
            if event.level >= least {
                event.annotations.entry(key.into()).or_insert(value);
            }
        });
    }

    /// The body has come.
    pub(crate) fn sent(&self, body: &Bytes, content_type: &str) {
        let Some(noted) = self.noted.as_ref().filter(|_| !body.is_empty()) else { return };
        let Some(mut object) = read(body, content_type) else { return };
        let mut state = noted.state.lock();
        let omit = state.omit_managed_fields;
        let Some(event) = &mut state.event else { return };
        // A patch is no object, and options have no name.
        if event.verb != "patch"
            && let Some(about) = &mut event.object_ref
        {
            about.complete(&object["metadata"]);
        }
        if event.level >= Level::Request {
            if omit {
                without_managed_fields(&mut object);
            }
            event.request_object = Some(object);
        }
    }

    /// There is an answer. What lasts is complete when its body, and whoever has a clone of this, is gone.
    pub(crate) async fn answered(self, mut response: Response<Body>) -> Response<Body> {
        self.name(response.headers_mut());
        let Some(noted) = self.noted else { return response };
        let response = noted.answered(response).await;
        let lasts = noted.state.lock().lasts;
        if lasts { response.map(|body| Followed { body, _noted: noted }.boxed_unsync()) } else { response }
    }

    /// A bug was met.
    pub(crate) async fn panicked(&self, why: &str) {
        let Some(noted) = &self.noted else { return };
        let message = format!("APIServer panic'd: {why}");
        let status =
            json!({"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500});
        noted.change(|event| event.response_status = Some(status));
        noted.emit(Stage::Panic).await;
        noted.state.lock().complete = true;
    }

    fn change(&self, change: impl FnOnce(&mut Event)) {
        if let Some(noted) = &self.noted {
            noted.change(change);
        }
    }
}

impl Noted {
    /// Asks the policy; gives whether the request is noted.
    fn decide(&self, user: &UserInfo, wanted: &Attributes) -> bool {
        let mut state = self.state.lock();
        let Some(received) = state.received.take() else { return false };
        let Received { at, uri, source_ips, agent, .. } = received;
        let verdict = self.log.policy.decide(user, wanted);
        if verdict.level == Level::None {
            return false;
        }
        state.lasts = deadline::is_long_running(wanted);
        (state.omit, state.omit_managed_fields) = (verdict.omit, verdict.omit_managed_fields);
        state.event = Some(Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: verdict.level,
            audit_id: self.audit_id.clone(),
            stage: Stage::RequestReceived,
            request_uri: uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            user: User::from(user),
            impersonated_user: None,
            source_ips,
            user_agent: agent,
            object_ref: object_ref(wanted, uri.path()),
            verb: wanted.verb.clone(),
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: at,
            stage_timestamp: at,
            annotations: BTreeMap::new(),
        });
        true
    }

    fn change(&self, change: impl FnOnce(&mut Event)) {
        if let Some(event) = &mut self.state.lock().event {
            change(event);
        }
    }

    /// The event of a stage, if it is one that is noted.
    fn at(&self, stage: Stage) -> Option<Event> {
        let state = self.state.lock();
        let mut event = state.event.clone().filter(|_| !state.omit.contains(&stage) && !state.complete)?;
        event.stage = stage;
        if stage != Stage::RequestReceived {
            event.stage_timestamp = Timestamp::now();
        }
        Some(event)
    }

    async fn emit(&self, stage: Stage) {
        if let Some(event) = self.at(stage) {
            self.log.sink.send(event).await;
        }
    }

    async fn answered(&self, response: Response<Body>) -> Response<Body> {
        let (level, lasts) = {
            let state = self.state.lock();
            let Some(event) = state.event.as_ref().filter(|_| !state.complete) else { return response };
            (event.level, state.lasts)
        };
        let code = response.status().as_u16();
        self.change(|event| event.response_status = Some(json!({"metadata": {}, "code": code})));
        let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|t| t == "application/json");
        let streams =
            response.body().size_hint().exact().is_none() || response.extensions().get::<ProxiedResponse>().is_some();
        let is_short = level == Level::RequestResponse || !matches!(code, 200) || self.may_be_status();
        let response = if is_json && !streams && is_short { self.read_answer(response, level).await } else { response };
        self.emit(if lasts { Stage::ResponseStarted } else { Stage::ResponseComplete }).await;
        self.state.lock().complete |= !lasts;
        response
    }

    /// Whether what succeeds may be answered with a Status.
    fn may_be_status(&self) -> bool {
        let state = self.state.lock();
        state.event.as_ref().is_some_and(|e| !matches!(e.verb.as_str(), "get" | "list" | "watch"))
    }

    async fn read_answer(&self, response: Response<Body>, level: Level) -> Response<Body> {
        let (head, body) = response.into_parts();
        // What is at hand as a whole has no errors.
        let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        if let Ok(mut object) = serde_json::from_slice::<Value>(&bytes) {
            let mut state = self.state.lock();
            if state.omit_managed_fields {
                without_managed_fields(&mut object);
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

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(event) = self.at(Stage::ResponseComplete) {
            self.log.sink.send_soon(event);
        }
    }
}

/// Those fields of a Status that are bounded.
fn status_of(object: &Value, code: u16) -> Value {
    let mut status = json!({"metadata": {}, "code": code});
    for field in ["status", "message", "reason", "details"] {
        if !object[field].is_null() {
            status[field] = object[field].clone();
        }
    }
    status
}

fn object_ref(wanted: &Attributes, path: &str) -> Option<ObjectRef> {
    let About::Resource(about) = &wanted.about else { return None };
    let parts = request::segments(path);
    let version = parts.get(if parts.first().is_some_and(|p| p == "api") { 1 } else { 2 });
    let about = about.clone();
    Some(ObjectRef {
        resource: about.resource,
        namespace: about.namespace,
        name: about.name,
        api_group: about.group,
        api_version: version.map(ToString::to_string).unwrap_or_default(),
        subresource: about.subresource,
        ..ObjectRef::default()
    })
}

/// Where a request came from, as proxies say and as its connection does. Components of this process are on this machine.
fn source_ips(headers: &HeaderMap, peer: Option<&Peer>) -> Vec<String> {
    let told = ["x-forwarded-for", "x-real-ip"].into_iter().filter_map(|name| headers.get(name)?.to_str().ok());
    let told = told.flat_map(|list| list.split(',')).filter_map(|ip| ip.trim().parse().ok());
    let own = peer.map_or(std::net::Ipv4Addr::LOCALHOST.into(), |peer| peer.0.ip());
    let mut all: Vec<String> = Vec::new();
    for ip in told.chain([own]).map(|ip: std::net::IpAddr| ip.to_string()) {
        if !all.contains(&ip) {
            all.push(ip);
        }
    }
    all
}

fn read(body: &Bytes, content_type: &str) -> Option<Value> {
    if content_type.ends_with("yaml") {
        serde_saphyr::from_str(std::str::from_utf8(body).ok()?).ok()
    } else {
        serde_json::from_slice(body).ok()
    }
}

/// Leaves out who owns what, of an object, of those in a list, and of those behind a table's rows.
fn without_managed_fields(object: &mut Value) {
    let strip = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    strip(object);
    for list in ["items", "rows"] {
        for item in object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            strip(item);
            item.get_mut("object").into_iter().for_each(strip);
        }
    }
}

/// The body of an answer that lasts: while it is there, the answer is not complete.
struct Followed {
    body: Body,
    _noted: Arc<Noted>,
}

impl http_body::Body for Followed {
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
