//! A server on a store in memory, asked without sockets.

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, BodyStream, Full};
use serde_json::{Value, json};
use server::{AdmissionPlugin, AdmissionPlugins, ApiServer, Body, DialedStream, NodeDialer, UserInfo};
use std::{collections::VecDeque, io, sync::Arc, time::Duration};
use store::{MemoryEngine, Options, Store};

/// How long a test waits for what must come.
const DEADLINE: Duration = Duration::from_secs(10);
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct NoNodes;

impl NodeDialer for NoNodes {
    fn dial<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn DialedStream>>> {
        async move { Err(io::Error::other(format!("no such node: {node}"))) }.boxed()
    }
}

/// A request as a test writes it.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// Who asks.
    pub(crate) user: UserInfo,
}

impl Ask {
    /// Asked by somebody who may do what is bound to them.
    pub(crate) fn by(mut self, name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|g| (*g).to_owned()).collect();
        self.user = UserInfo { name: name.to_owned(), groups, ..UserInfo::default() };
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn text(mut self, content_type: &str, body: &str) -> Self {
        body.as_bytes().clone_into(&mut self.body);
        self.header("content-type", content_type)
    }
}

fn ask(method: &'static str, path: impl Into<String>, body: &Value) -> Ask {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    Ask { method, path: path.into(), headers: Vec::new(), body, user: UserInfo::component("test") }
}

pub(crate) fn get(path: impl Into<String>) -> Ask {
    ask("GET", path, &Value::Null)
}

pub(crate) fn post(path: impl Into<String>, body: &Value) -> Ask {
    ask("POST", path, body)
}

pub(crate) fn put(path: impl Into<String>, body: &Value) -> Ask {
    ask("PUT", path, body)
}

pub(crate) fn delete(path: impl Into<String>) -> Ask {
    ask("DELETE", path, &Value::Null)
}

pub(crate) fn delete_with(path: impl Into<String>, options: &Value) -> Ask {
    ask("DELETE", path, options)
}

pub(crate) fn patch(kind: &str, path: impl Into<String>, body: &Value) -> Ask {
    ask("PATCH", path, body).header("content-type", &format!("application/{kind}+json"))
}

pub(crate) fn merge(path: impl Into<String>, body: &Value) -> Ask {
    patch("merge-patch", path, body)
}

/// An apply by this manager; the path may have a query of its own.
pub(crate) fn apply(path: impl Into<String>, manager: &str, config: &Value) -> Ask {
    let path = path.into();
    let and = if path.contains('?') { '&' } else { '?' };
    ask("PATCH", format!("{path}{and}fieldManager={manager}"), config)
        .header("content-type", "application/apply-patch+yaml")
}

/// The managers of an object by name, each as `name Operation` with the subresource behind it. (Their order in the object
/// depends on the second in which each came.)
pub(crate) fn managers(object: &Value) -> Vec<String> {
    let entry = |e: &Value| {
        let text = |field: &str| e[field].as_str().unwrap_or("").to_owned();
        format!("{} {} {}", text("manager"), text("operation"), text("subresource")).trim_end().to_owned()
    };
    let mut all: Vec<String> =
        object["metadata"]["managedFields"].as_array().into_iter().flatten().map(entry).collect();
    all.sort_unstable();
    all
}

/// What a manager owns.
pub(crate) fn fields_of(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.filter(|e| e["manager"] == manager).map(|e| e["fieldsV1"].clone()).next_back().unwrap_or_default()
}

pub(crate) fn table(path: impl Into<String>) -> Ask {
    get(path).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.headers.get_all("warning").iter().map(|v| v.to_str().unwrap().to_owned()).collect()
    }
}

pub(crate) struct Api {
    pub(crate) server: ApiServer,
    pub(crate) engine: MemoryEngine,
}

impl Api {
    /// A server with the namespaces of the system.
    pub(crate) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let engine = MemoryEngine::new();
        let store = Store::open(engine.clone(), options).unwrap();
        let server = ApiServer::new(store, Arc::new(NoNodes));
        server.bootstrap().await;
        Self { server, engine }
    }

    /// Another server over what one has stored.
    pub(crate) async fn over(engine: MemoryEngine) -> Self {
        let store = Store::open(engine.clone(), Options::default()).unwrap();
        Self::of(engine, store).await
    }

    /// A server of a store that keeps its objects in an engine.
    pub(crate) async fn of(engine: MemoryEngine, store: Store) -> Self {
        let server = ApiServer::new(store, Arc::new(NoNodes));
        server.bootstrap().await;
        Self { server, engine }
    }

    /// The same server with an admission plugin turned off.
    pub(crate) fn without_plugin(self, name: &str) -> Self {
        let plugin = AdmissionPlugin::parse_disabled(name).unwrap();
        let plugins = AdmissionPlugins::new(&[], &[plugin]).unwrap();
        Self { server: self.server.with_admission(plugins), ..self }
    }

    async fn raw(&self, ask: &Ask) -> http::Response<Body> {
        let mut request = Request::builder().method(ask.method).uri(&ask.path);
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(ask.body.clone()))).unwrap();
        self.server.handle(Some(ask.user.clone()), request).await
    }

    pub(crate) async fn ask(&self, ask: &Ask) -> Answer {
        let (head, body) = self.raw(ask).await.into_parts();
        let bytes = tokio::time::timeout(DEADLINE, body.collect()).await.unwrap().unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer { status: head.status.as_u16(), headers: head.headers, body }
    }

    /// The content type and the text of an answer.
    pub(crate) async fn text(&self, ask: &Ask) -> (String, String) {
        let (head, body) = self.raw(ask).await.into_parts();
        let bytes = tokio::time::timeout(DEADLINE, body.collect()).await.unwrap().unwrap().to_bytes();
        let content_type = head.headers["content-type"].to_str().unwrap().to_owned();
        (content_type, String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The answer has this status, and at least this JSON in it; `null` stands for what must not be there.
    #[track_caller]
    pub(crate) fn check<'a>(&'a self, ask: Ask, status: u16, expected: Value) -> BoxFuture<'a, Answer> {
        let place = std::panic::Location::caller();
        async move {
            let answer = self.ask(&ask).await;
            let mut wrong = Vec::new();
            if answer.status != status {
                wrong.push(format!("status {}, expected {status}", answer.status));
            }
            compare(&expected, &answer.body, "", &mut wrong);
            let body = &answer.body;
            assert!(wrong.is_empty(), "{place}: {} {}:\n{}\nanswer: {body:#}", ask.method, ask.path, wrong.join("\n"));
            answer
        }
        .boxed()
    }

    /// Begins a watch, which must be taken.
    pub(crate) async fn watch(&self, path: &str) -> Events {
        self.watch_as(&get(path)).await
    }

    pub(crate) async fn watch_as(&self, ask: &Ask) -> Events {
        let response = self.raw(ask).await;
        assert_eq!(response.status(), 200);
        Events { body: BodyStream::new(response.into_body()), lines: VecDeque::new(), rest: Vec::new() }
    }

    pub(crate) async fn create_pod(&self, name: &str) -> Value {
        self.check(post(PODS, &pod(name)), 201, json!({})).await.body
    }

    pub(crate) async fn create_config_map(&self, name: &str, labels: Value) -> Value {
        let object = json!({"metadata": {"name": name, "labels": labels}});
        self.check(post(CONFIG_MAPS, &object), 201, json!({})).await.body
    }

    /// Lets these do that in the whole cluster.
    pub(crate) async fn bind(&self, name: &str, subjects: Value, rules: Value) {
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let role = json!({"metadata": {"name": name}, "rules": rules});
        self.check(post(format!("{rbac}/clusterroles"), &role), 201, json!({})).await;
        let role = json!({"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"});
        let binding = json!({"metadata": {"name": name}, "subjects": subjects, "roleRef": role});
        self.check(post(format!("{rbac}/clusterrolebindings"), &binding), 201, json!({})).await;
    }

    /// A Pod that a node has.
    pub(crate) async fn bound_pod(&self, name: &str) -> Value {
        self.create_pod(name).await;
        let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
        self.check(post(format!("{PODS}/{name}/binding"), &binding), 201, json!({"status": "Success"})).await;
        self.ask(&get(format!("{PODS}/{name}"))).await.body
    }
}

/// The events of a watch.
pub(crate) struct Events {
    body: BodyStream<Body>,
    lines: VecDeque<Value>,
    rest: Vec<u8>,
}

impl Events {
    /// The next event; `None` when the watch is over.
    pub(crate) async fn try_next(&mut self) -> Option<Value> {
        loop {
            if let Some(event) = self.lines.pop_front() {
                return Some(event);
            }
            let frame = self.body.next().await?.unwrap();
            self.rest.extend(frame.into_data().unwrap());
            while let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                self.lines.push_back(serde_json::from_slice(&line).unwrap());
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Value {
        tokio::time::timeout(DEADLINE, self.try_next()).await.expect("an event").expect("the watch goes on")
    }

    /// The next event is of this kind and has at least this object.
    #[track_caller]
    pub(crate) fn check<'a>(&'a mut self, kind: &'a str, expected: Value) -> BoxFuture<'a, Value> {
        let place = std::panic::Location::caller();
        async move {
            let event = self.next().await;
            let mut wrong = Vec::new();
            compare(&json!({"type": kind, "object": expected}), &event, "", &mut wrong);
            assert!(wrong.is_empty(), "{place}:\n{}\nevent: {event:#}", wrong.join("\n"));
            event["object"].clone()
        }
        .boxed()
    }
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}})
}

/// The resource version of an object or a list.
pub(crate) fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

/// What the expectation names must be there: fields of objects, all elements of lists.
pub(crate) fn compare(expected: &Value, got: &Value, path: &str, wrong: &mut Vec<String>) {
    match (expected, got) {
        (Value::Object(expected), Value::Object(_)) => {
            for (key, value) in expected {
                compare(value, &got[key], &format!("{path}.{key}"), wrong);
            }
        }
        (Value::Array(expected), Value::Array(got)) if expected.len() == got.len() => {
            for (i, (value, got)) in expected.iter().zip(got).enumerate() {
                compare(value, got, &format!("{path}[{i}]"), wrong);
            }
        }
        _ if expected == got => {}
        _ if expected == &json!({}) && path.is_empty() => {}
        _ => wrong.push(format!("{path} is\n  {got}, expected\n  {expected}")),
    }
}

/// A request for a certificate of the name `conformance`, as objects have it.
pub(crate) const CERTIFICATE_REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIUU1IZ0NBUUF3RmpFVU1CSUdBMVVFQXd3TFkyOXVabTl5YldGdVkyVXdXVEFUQmdjcWhrak9QUUlCQmdncQpoa2pPUFFNQkJ3TkNBQVNhVVhzV2xSV2RGcUMrdjBoWk1TSlR5ZDV4NTV1dXdwYTZLaDE5UGR2MkJGejgxTkVuClRTVytPUk10U3pWcnFiQ2dNdlgvbmJHY3J0U3dRK2UvNkI0K29BQXdDZ1lJS29aSXpqMEVBd0lEU0FBd1JRSWcKS0lxOW9KQkZZRzZRR001Y1NrU0VIdVRnZ1FGSk5wa3hZSS84cmhqeS9QZ0NJUURENE83Vy9SQnY4SHF0bHhlZAp3L1VPUUl3RXZHWFFKUS8raGFVdUhsYUR2Zz09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

/// A subject with these common names.
pub(crate) fn named(common_names: &[&str]) -> rcgen::DistinguishedName {
    let mut subject = rcgen::DistinguishedName::new();
    for (i, name) in common_names.iter().enumerate() {
        // A known type is kept once, so the second one is written by its identifier.
        let kind = if i == 0 { rcgen::DnType::CommonName } else { rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]) };
        subject.push(kind, *name);
    }
    subject
}

/// A request for a certificate with these common names, as a CertificateSigningRequest holds it.
pub(crate) fn certificate_request(common_names: &[&str]) -> String {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = named(common_names);
    let request = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap();
    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, request.pem().unwrap())
}
