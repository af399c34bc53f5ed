//! Test API server with an in-memory store; requests are handled without sockets.

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, BodyStream, Full};
use request::UserInfo;
use response::Body;
use serde_json::{Value, json};
use server::{AdmissionPlugin, AdmissionPlugins, ApiServer, DialedStream, NodeDialer};
use std::{collections::VecDeque, io, sync::Arc, time::Duration};
use store::{MemoryEngine, Options, Store};

/// Timeout of each expected response and event.
const DEADLINE: Duration = Duration::from_secs(10);
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct NoNodeDialer;

impl NodeDialer for NoNodeDialer {
    fn dial<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn DialedStream>>> {
        async move { Err(io::Error::other(format!("no such node: {node}"))) }.boxed()
    }
}

/// A request of a test.
#[derive(Debug, Clone)]
pub(crate) struct TestRequest {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// The authenticated user; a member of `system:masters` by default.
    pub(crate) user: UserInfo,
}

impl TestRequest {
    /// Sends the request as a user without the permissions of `system:masters`.
    pub(crate) fn with_user(mut self, name: &str, groups: &[&str]) -> Self {
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

fn request(method: &'static str, path: impl Into<String>, body: &Value) -> TestRequest {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    TestRequest { method, path: path.into(), headers: Vec::new(), body, user: UserInfo::component("test") }
}

pub(crate) fn get(path: impl Into<String>) -> TestRequest {
    request("GET", path, &Value::Null)
}

pub(crate) fn post(path: impl Into<String>, body: &Value) -> TestRequest {
    request("POST", path, body)
}

pub(crate) fn put(path: impl Into<String>, body: &Value) -> TestRequest {
    request("PUT", path, body)
}

pub(crate) fn delete(path: impl Into<String>) -> TestRequest {
    request("DELETE", path, &Value::Null)
}

pub(crate) fn delete_with_options(path: impl Into<String>, options: &Value) -> TestRequest {
    request("DELETE", path, options)
}

pub(crate) fn patch(kind: &str, path: impl Into<String>, body: &Value) -> TestRequest {
    request("PATCH", path, body).header("content-type", &format!("application/{kind}+json"))
}

pub(crate) fn merge_patch(path: impl Into<String>, body: &Value) -> TestRequest {
    patch("merge-patch", path, body)
}

/// Builds a server-side apply of a manager; the path may have a query.
pub(crate) fn apply(path: impl Into<String>, manager: &str, config: &Value) -> TestRequest {
    let path = path.into();
    let separator = if path.contains('?') { '&' } else { '?' };
    request("PATCH", format!("{path}{separator}fieldManager={manager}"), config)
        .header("content-type", "application/apply-patch+yaml")
}

/// Returns the managers of an object, each as `name Operation subresource`, sorted by name. Their order in the object
/// depends on the second of each write.
pub(crate) fn managers(object: &Value) -> Vec<String> {
    let entry = |e: &Value| {
        let text = |field: &str| e[field].as_str().unwrap_or("").to_owned();
        format!("{} {} {}", text("manager"), text("operation"), text("subresource")).trim_end().to_owned()
    };
    let mut names: Vec<String> =
        object["metadata"]["managedFields"].as_array().into_iter().flatten().map(entry).collect();
    names.sort_unstable();
    names
}

/// Returns the `fieldsV1` of a manager.
pub(crate) fn owned_fields(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.filter(|e| e["manager"] == manager).map(|e| e["fieldsV1"].clone()).next_back().unwrap_or_default()
}

pub(crate) fn get_table(path: impl Into<String>) -> TestRequest {
    get(path).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
}

pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl TestResponse {
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.headers.get_all("warning").iter().map(|v| v.to_str().unwrap().to_owned()).collect()
    }
}

pub(crate) struct TestApi {
    pub(crate) server: ApiServer,
    pub(crate) engine: MemoryEngine,
}

impl TestApi {
    /// Starts a server with the system namespaces.
    pub(crate) async fn new() -> Self {
        Self::with_options(Options::default()).await
    }

    pub(crate) async fn with_options(options: Options) -> Self {
        let engine = MemoryEngine::new();
        let store = Store::open(engine.clone(), options).unwrap();
        let server = ApiServer::new(store, Arc::new(NoNodeDialer));
        server.bootstrap().await;
        Self { server, engine }
    }

    /// Starts another server on a stored state.
    pub(crate) async fn reopen(engine: MemoryEngine) -> Self {
        let store = Store::open(engine.clone(), Options::default()).unwrap();
        Self::with_store(engine, store).await
    }

    /// Starts a server with the given store.
    pub(crate) async fn with_store(engine: MemoryEngine, store: Store) -> Self {
        let server = ApiServer::new(store, Arc::new(NoNodeDialer));
        server.bootstrap().await;
        Self { server, engine }
    }

    /// Enables an admission plugin.
    pub(crate) fn with_plugin(self, name: &str) -> Self {
        let plugin = AdmissionPlugin::parse_enabled(name).unwrap();
        let plugins = AdmissionPlugins::new(&[plugin], &[]).unwrap();
        Self { server: self.server.with_admission(plugins), ..self }
    }

    /// Disables an admission plugin.
    pub(crate) fn without_plugin(self, name: &str) -> Self {
        let plugin = AdmissionPlugin::parse_disabled(name).unwrap();
        let plugins = AdmissionPlugins::new(&[], &[plugin]).unwrap();
        Self { server: self.server.with_admission(plugins), ..self }
    }

    async fn handle(&self, request: &TestRequest) -> http::Response<Body> {
        let mut builder = Request::builder().method(request.method).uri(&request.path);
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        let http_request = builder.body(Full::new(Bytes::from(request.body.clone()))).unwrap();
        self.server.handle(Some(request.user.clone()), http_request).await
    }

    pub(crate) async fn send(&self, request: &TestRequest) -> TestResponse {
        let (head, body) = self.handle(request).await.into_parts();
        let bytes = tokio::time::timeout(DEADLINE, body.collect()).await.unwrap().unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        TestResponse { status: head.status.as_u16(), headers: head.headers, body }
    }

    /// Returns the content type and the text of a response.
    pub(crate) async fn text(&self, request: &TestRequest) -> (String, String) {
        let (head, body) = self.handle(request).await.into_parts();
        let bytes = tokio::time::timeout(DEADLINE, body.collect()).await.unwrap().unwrap().to_bytes();
        let content_type = head.headers["content-type"].to_str().unwrap().to_owned();
        (content_type, String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Asserts the status code and that the body contains this JSON; `null` means that a field is absent.
    #[track_caller]
    pub(crate) fn check<'a>(
        &'a self,
        request: TestRequest,
        status: u16,
        expected: Value,
    ) -> BoxFuture<'a, TestResponse> {
        let location = std::panic::Location::caller();
        async move {
            let response = self.send(&request).await;
            let mut mismatches = Vec::new();
            if response.status != status {
                mismatches.push(format!("status {}, expected {status}", response.status));
            }
            compare(&expected, &response.body, "", &mut mismatches);
            let body = &response.body;
            assert!(
                mismatches.is_empty(),
                "{location}: {} {}:\n{}\nresponse: {body:#}",
                request.method,
                request.path,
                mismatches.join("\n")
            );
            response
        }
        .boxed()
    }

    /// Starts a watch and asserts that it is accepted.
    pub(crate) async fn watch(&self, path: &str) -> WatchEvents {
        self.watch_with(&get(path)).await
    }

    pub(crate) async fn watch_with(&self, request: &TestRequest) -> WatchEvents {
        let response = self.handle(request).await;
        assert_eq!(response.status(), 200);
        WatchEvents { body: BodyStream::new(response.into_body()), events: VecDeque::new(), buffer: Vec::new() }
    }

    pub(crate) async fn create_pod(&self, name: &str) -> Value {
        self.check(post(PODS, &pod(name)), 201, json!({})).await.body
    }

    pub(crate) async fn create_config_map(&self, name: &str, labels: Value) -> Value {
        let object = json!({"metadata": {"name": name, "labels": labels}});
        self.check(post(CONFIG_MAPS, &object), 201, json!({})).await.body
    }

    /// Creates a ClusterRole with these rules, and a ClusterRoleBinding to these subjects.
    pub(crate) async fn grant_cluster_role(&self, name: &str, subjects: Value, rules: Value) {
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let role = json!({"metadata": {"name": name}, "rules": rules});
        self.check(post(format!("{rbac}/clusterroles"), &role), 201, json!({})).await;
        let role = json!({"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"});
        let binding = json!({"metadata": {"name": name}, "subjects": subjects, "roleRef": role});
        self.check(post(format!("{rbac}/clusterrolebindings"), &binding), 201, json!({})).await;
    }

    /// Creates a Pod that is bound to the node `n`.
    pub(crate) async fn bound_pod(&self, name: &str) -> Value {
        self.create_pod(name).await;
        let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
        self.check(post(format!("{PODS}/{name}/binding"), &binding), 201, json!({"status": "Success"})).await;
        self.send(&get(format!("{PODS}/{name}"))).await.body
    }
}

/// The events of a watch response.
pub(crate) struct WatchEvents {
    body: BodyStream<Body>,
    events: VecDeque<Value>,
    buffer: Vec<u8>,
}

impl WatchEvents {
    /// Returns the next event, or `None` at the end of the watch.
    pub(crate) async fn try_next(&mut self) -> Option<Value> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let frame = self.body.next().await?.unwrap();
            self.buffer.extend(frame.into_data().unwrap());
            while let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                self.events.push_back(serde_json::from_slice(&line).unwrap());
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Value {
        tokio::time::timeout(DEADLINE, self.try_next())
            .await
            .expect("the watch sent no event before the deadline")
            .expect("the watch ended early")
    }

    /// Asserts the type of the next event, and that its object contains this JSON.
    #[track_caller]
    pub(crate) fn check<'a>(&'a mut self, kind: &'a str, expected: Value) -> BoxFuture<'a, Value> {
        let location = std::panic::Location::caller();
        async move {
            let event = self.next().await;
            let mut mismatches = Vec::new();
            compare(&json!({"type": kind, "object": expected}), &event, "", &mut mismatches);
            assert!(mismatches.is_empty(), "{location}:\n{}\nevent: {event:#}", mismatches.join("\n"));
            event["object"].clone()
        }
        .boxed()
    }
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}})
}

/// Returns the resource version of an object or a list.
pub(crate) fn resource_version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

/// Collects the differences: fields of expected objects must be there, and lists must have the same length.
pub(crate) fn compare(expected: &Value, got: &Value, path: &str, mismatches: &mut Vec<String>) {
    match (expected, got) {
        (Value::Object(expected), Value::Object(_)) => {
            for (key, value) in expected {
                compare(value, &got[key], &format!("{path}.{key}"), mismatches);
            }
        }
        (Value::Array(expected), Value::Array(got)) if expected.len() == got.len() => {
            for (i, (value, got)) in expected.iter().zip(got).enumerate() {
                compare(value, got, &format!("{path}[{i}]"), mismatches);
            }
        }
        _ if expected == got => {}
        _ if expected == &json!({}) && path.is_empty() => {}
        _ => mismatches.push(format!("{path} is\n  {got}, expected\n  {expected}")),
    }
}

/// The CSR of the common name `conformance`, in PEM and base64, as in `spec.request`.
pub(crate) const CERTIFICATE_REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIUU1IZ0NBUUF3RmpFVU1CSUdBMVVFQXd3TFkyOXVabTl5YldGdVkyVXdXVEFUQmdjcWhrak9QUUlCQmdncQpoa2pPUFFNQkJ3TkNBQVNhVVhzV2xSV2RGcUMrdjBoWk1TSlR5ZDV4NTV1dXdwYTZLaDE5UGR2MkJGejgxTkVuClRTVytPUk10U3pWcnFiQ2dNdlgvbmJHY3J0U3dRK2UvNkI0K29BQXdDZ1lJS29aSXpqMEVBd0lEU0FBd1JRSWcKS0lxOW9KQkZZRzZRR001Y1NrU0VIdVRnZ1FGSk5wa3hZSS84cmhqeS9QZ0NJUURENE83Vy9SQnY4SHF0bHhlZAp3L1VPUUl3RXZHWFFKUS8raGFVdUhsYUR2Zz09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

/// Returns a subject with these common names.
pub(crate) fn distinguished_name(common_names: &[&str]) -> rcgen::DistinguishedName {
    let mut subject = rcgen::DistinguishedName::new();
    for (i, name) in common_names.iter().enumerate() {
        // `DistinguishedName` keeps one value per type, so further names use the OID of the common name.
        let kind = if i == 0 { rcgen::DnType::CommonName } else { rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]) };
        subject.push(kind, *name);
    }
    subject
}

/// Returns a new CSR with these common names, in PEM and base64, as in `spec.request`.
pub(crate) fn certificate_request(common_names: &[&str]) -> String {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = distinguished_name(common_names);
    let request = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap();
    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, request.pem().unwrap())
}
