//! A fake API server in memory, for tests of components that use a `kube::Client`: objects in a map, lists, watches, merge
//! patches, graceful deletion with finalizers. It does not validate objects.
#![forbid(unsafe_code)]
#![expect(clippy::expect_used, reason = "a test may panic")]

mod discovery;
mod hanging;
mod merge_patch;
mod target;

use bytes::Bytes;
use hanging::Hanging;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use merge_patch::merge;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{collections::BTreeMap, convert::Infallible, sync::Arc};
use target::Target;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;

/// A fake API server. Clones share the state.
#[derive(Clone, Default)]
pub struct FakeApi {
    state: Arc<Mutex<State>>,
    /// Incremented after every request.
    ticks: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct State {
    revision: u64,
    /// Objects by resource (`api/v1/pods`), namespace (empty for none) and name.
    objects: BTreeMap<Key, Value>,
    watchers: Vec<Watcher>,
    /// Last state of removed objects.
    removed: BTreeMap<Key, Value>,
    /// Every write in order: `POST api/v1/namespaces/x/pods`.
    writes: Vec<String>,
    /// Request prefixes to refuse once each, with the status code.
    refusals: Vec<(String, u16)>,
    /// Request prefixes without a response, once each.
    hangs: Vec<String>,
    /// Prefixes of the requests that are hanging.
    hanging: Vec<String>,
}

type Reply = UnsyncBoxBody<Bytes, Infallible>;
type Key = (String, String, String);
type Events = mpsc::UnboundedSender<Result<http_body::Frame<Bytes>, Infallible>>;

struct Watcher {
    resource: String,
    namespace: String,
    events: Events,
}

impl FakeApi {
    /// Creates an empty server.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a client of this server.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.serve(request).await) }
        });
        kube::Client::new(service, "default")
    }

    /// Creates or replaces the object at `path` like another client.
    pub fn put(&self, path: &str, object: Value) {
        let target = Target::of(path);
        self.state.lock().store(&target.key(), object);
        self.tick();
    }

    /// Replaces the object at `path` like another client. No watch shows the change, as if all were behind.
    pub fn put_unobserved(&self, path: &str, object: Value) {
        let watchers = std::mem::take(&mut self.state.lock().watchers);
        self.put(path, object);
        self.state.lock().watchers.extend(watchers);
    }

    /// Removes an object despite its finalizers.
    pub fn remove(&self, path: &str) {
        self.state.lock().drop_object(&Target::of(path).key());
        self.tick();
    }

    /// Deletes an object like another client.
    pub fn delete(&self, path: &str) {
        let _ = self.state.lock().delete(&Target::of(path).key(), &Value::Null);
        self.tick();
    }

    /// Returns the last state of a removed object.
    #[must_use]
    pub fn removed(&self, path: &str) -> Option<Value> {
        self.state.lock().removed.get(&Target::of(path).key()).cloned()
    }

    /// Returns the current state of an object.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Value> {
        self.state.lock().objects.get(&Target::of(path).key()).cloned()
    }

    /// Lists the objects of a collection.
    #[must_use]
    pub fn list(&self, path: &str) -> Vec<Value> {
        let target = Target::of(path);
        self.state.lock().matching(&target.resource, &target.namespace)
    }

    /// Returns method and path of every write so far.
    #[must_use]
    pub fn writes(&self) -> Vec<String> {
        self.state.lock().writes.clone()
    }

    /// Refuses the next request with this prefix with a status code.
    pub fn refuse_next(&self, request: &str, code: u16) {
        self.state.lock().refusals.push((request.to_owned(), code));
    }

    /// Returns the number of remaining refusals for a request prefix.
    #[must_use]
    pub fn refusals(&self, request: &str) -> usize {
        self.state.lock().refusals.iter().filter(|(start, _)| start == request).count()
    }

    /// Waits until the server's state meets a condition. The clock may be paused.
    ///
    /// # Panics
    /// When the condition is not met within an hour.
    pub async fn wait_until(&self, description: &str, mut condition: impl FnMut(&Self) -> bool) {
        let mut ticks = self.ticks.subscribe();
        let wait = async {
            while !condition(self) {
                ticks.changed().await.expect("the server lives");
            }
        };
        let waited = tokio::time::timeout(std::time::Duration::from_secs(3600), wait).await;
        assert!(waited.is_ok(), "timed out: {description}; writes: {:#?}", self.writes());
    }

    /// Receives the next request with this prefix (`GET api/v1/nodes/n`) without ever responding.
    pub fn hang_next(&self, request: &str) {
        self.state.lock().hangs.push(request.to_owned());
    }

    /// Returns whether a request of [`Self::hang_next`] was received, and the client still waits for the response.
    #[must_use]
    pub fn is_hanging(&self, request: &str) -> bool {
        self.state.lock().hanging.iter().any(|hanging| hanging == request)
    }

    fn tick(&self) {
        self.ticks.send_modify(|n| *n += 1);
    }

    async fn serve(&self, request: Request<Body>) -> Response<Reply> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let path = parts.uri.path().trim_matches('/').to_owned();
        let line = format!("{} {path}", parts.method);
        let hangs = {
            let mut state = self.state.lock();
            let found = state.hangs.iter().position(|start| line.starts_with(start));
            found.map(|at| state.hangs.remove(at))
        };
        if let Some(request) = hangs {
            let _hanging = Hanging::new(self, request);
            std::future::pending::<()>().await;
        }
        let answer = self.state.lock().answer(&parts.method, &path, &query, body);
        self.tick();
        answer
    }
}

fn reply(code: u16, body: &Value) -> Response<Reply> {
    let code = StatusCode::from_u16(code).expect("a code");
    Response::builder().status(code).body(Full::new(Bytes::from(body.to_string())).boxed_unsync()).expect("a response")
}

fn status(code: u16, reason: &str) -> Response<Reply> {
    let body = json!({ "kind": "Status", "apiVersion": "v1", "status": if code < 400 { "Success" } else { "Failure" },
        "code": code, "reason": reason, "message": reason });
    reply(code, &body)
}

impl State {
    fn answer(&mut self, method: &Method, path: &str, query: &str, body: Value) -> Response<Reply> {
        if let Some(document) = discovery::document(path) {
            return reply(200, &document);
        }
        let target = Target::of(path);
        let line = format!("{method} {path}");
        if let Some(at) = self.refusals.iter().position(|(start, _)| line.starts_with(start)) {
            let (_, code) = self.refusals.remove(at);
            let reason = match code {
                404 => "NotFound",
                409 => "Conflict",
                _ => "Refused",
            };
            return status(code, reason);
        }
        if *method == Method::GET {
            return self.read(&target, query);
        }
        self.writes.push(line);
        if self.is_stale(&target, &body) {
            return status(409, "Conflict");
        }
        match method.as_str() {
            "POST" if target.subresource == "binding" => self.bind(&target, &body),
            "POST" if target.subresource == "token" => self.token(body),
            "POST" => self.create(target, body),
            "DELETE" if target.name.is_empty() => {
                for object in self.matching(&target.resource, &target.namespace) {
                    self.delete(&key_of(&target.resource, &object), &body);
                }
                status(200, "")
            }
            "DELETE" => self.delete(&target.key(), &body),
            "PATCH" => {
                let answer = self.change(&target, |object| merge(object, body));
                self.collect(&target.key());
                answer
            }
            "PUT" if target.subresource == "finalize" => {
                let finalizers = body["spec"]["finalizers"].clone();
                let answer = self.change(&target, |object| object["spec"]["finalizers"] = finalizers);
                self.collect(&target.key());
                answer
            }
            "PUT" => {
                let answer = self.change(&target, |object| *object = body);
                self.collect(&target.key());
                answer
            }
            _ => status(405, "MethodNotAllowed"),
        }
    }

    /// Returns whether a written object has another resourceVersion than the stored one.
    fn is_stale(&self, target: &Target, body: &Value) -> bool {
        let (written, stored) = (revision_of(body), self.objects.get(&target.key()).map(revision_of));
        !target.name.is_empty() && written > 0 && stored.is_some_and(|stored| stored != written)
    }

    fn read(&mut self, target: &Target, query: &str) -> Response<Reply> {
        if !target.name.is_empty() {
            return match self.objects.get(&target.key()) {
                Some(object) => reply(200, object),
                None => status(404, "NotFound"),
            };
        }
        if target.resource.ends_with('/') {
            // An API group or version that is not served.
            return status(404, "NotFound");
        }
        if query.contains("watch=") {
            return self.watch(target, query);
        }
        let items = self.matching(&target.resource, &target.namespace);
        let metadata = json!({ "resourceVersion": self.revision.to_string() });
        reply(200, &json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items }))
    }

    /// Sends changes after the given revision. There is no history, so newer objects are `ADDED`.
    fn watch(&mut self, target: &Target, query: &str) -> Response<Reply> {
        let (events, receiver) = mpsc::unbounded_channel();
        let since = query.split('&').find_map(|p| p.strip_prefix("resourceVersion="));
        let since: u64 = since.and_then(|s| s.parse().ok()).unwrap_or(0);
        for object in self.matching(&target.resource, &target.namespace) {
            if revision_of(&object) > since {
                send(&events, "ADDED", &object);
            }
        }
        let (resource, namespace) = (target.resource.clone(), target.namespace.clone());
        self.watchers.push(Watcher { resource, namespace, events });
        let frames = UnboundedReceiverStream::new(receiver);
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    fn create(&mut self, target: Target, mut object: Value) -> Response<Reply> {
        if let Some(start) = object["metadata"]["generateName"].as_str() {
            object["metadata"]["name"] = format!("{start}{}", self.revision).into();
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = (target.resource, target.namespace.clone(), name);
        if self.objects.contains_key(&key) {
            return status(409, "AlreadyExists");
        }
        if !target.namespace.is_empty() {
            object["metadata"]["namespace"] = target.namespace.into();
        }
        reply(201, &self.store(&key, object))
    }

    /// Issues the tokens `token-1`, `token-2` and so on.
    fn token(&mut self, mut request: Value) -> Response<Reply> {
        let issued = self.writes.iter().filter(|line| line.ends_with("/token")).count();
        let end = "2026-01-01T00:00:00Z";
        request["status"] = json!({"token": format!("token-{issued}"), "expirationTimestamp": end});
        reply(201, &request)
    }

    fn bind(&mut self, target: &Target, binding: &Value) -> Response<Reply> {
        let node = binding["target"]["name"].clone();
        let answer = self.change(target, |pod| pod["spec"]["nodeName"] = node);
        if answer.status().is_success() { status(201, "") } else { answer }
    }

    fn change(&mut self, target: &Target, change: impl FnOnce(&mut Value)) -> Response<Reply> {
        let Some(mut object) = self.objects.get(&target.key()).cloned() else {
            return status(404, "NotFound");
        };
        change(&mut object);
        reply(200, &self.store(&target.key(), object))
    }

    /// Sets the deletion timestamp of an object with finalizers, else removes it. A bound Pod is kept unless its grace period
    /// is 0.
    fn delete(&mut self, key: &Key, options: &Value) -> Response<Reply> {
        let Some(mut object) = self.objects.get(key).cloned() else {
            return status(404, "NotFound");
        };
        let differs = |field: &str| {
            let expected = &options["preconditions"][field];
            !expected.is_null() && *expected != object["metadata"][field]
        };
        if differs("uid") || differs("resourceVersion") {
            return status(409, "Conflict");
        }
        let graceful = object["spec"]["nodeName"].is_string() && options["gracePeriodSeconds"] != json!(0);
        if graceful || has_finalizers(&object) {
            if object["metadata"]["deletionTimestamp"].is_null() {
                object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            if key.0 == "api/v1/namespaces" {
                object["status"]["phase"] = "Terminating".into();
            }
            object = self.store(key, object);
        } else {
            self.drop_object(key);
        }
        reply(200, &object)
    }

    /// Removes a terminating object without finalizers.
    fn collect(&mut self, key: &Key) {
        let done = self
            .objects
            .get(key)
            .is_some_and(|object| !object["metadata"]["deletionTimestamp"].is_null() && !has_finalizers(object));
        if done {
            self.drop_object(key);
        }
    }

    fn matching(&self, resource: &str, namespace: &str) -> Vec<Value> {
        let here = |key: &Key| key.0 == resource && (namespace.is_empty() || key.1 == namespace);
        self.objects.iter().filter(|(key, _)| here(key)).map(|(_, object)| object.clone()).collect()
    }

    /// Stores an object and returns it with its new resourceVersion.
    fn store(&mut self, key: &Key, mut object: Value) -> Value {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = format!("uid-{}", self.revision).into();
        }
        let known = self.objects.insert(key.clone(), object.clone()).is_some();
        self.publish(key, if known { "MODIFIED" } else { "ADDED" }, &object);
        object
    }

    fn drop_object(&mut self, key: &Key) {
        if let Some(mut object) = self.objects.remove(key) {
            self.removed.insert(key.clone(), object.clone());
            self.revision += 1;
            object["metadata"]["resourceVersion"] = self.revision.to_string().into();
            self.publish(key, "DELETED", &object);
        }
    }

    fn publish(&mut self, key: &Key, event: &str, object: &Value) {
        let sees = |w: &Watcher| w.resource == key.0 && (w.namespace.is_empty() || w.namespace == key.1);
        self.watchers.retain(|w| !sees(w) || send(&w.events, event, object));
    }
}

fn send(events: &Events, event: &str, object: &Value) -> bool {
    // The type comes first, as from an API server.
    let line = format!("{{\"type\":{},\"object\":{object}}}\n", json!(event));
    events.send(Ok(http_body::Frame::data(line.into()))).is_ok()
}

fn revision_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|s| s.parse().ok()).unwrap_or(0)
}

fn key_of(resource: &str, object: &Value) -> Key {
    let part = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    (resource.to_owned(), part("namespace"), part("name"))
}

fn has_finalizers(object: &Value) -> bool {
    let any = |v: &Value| v.as_array().is_some_and(|a| !a.is_empty());
    any(&object["metadata"]["finalizers"]) || any(&object["spec"]["finalizers"])
}
