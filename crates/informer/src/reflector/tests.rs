use super::*;
use crate::{CacheEvent, SharedInformer};
use fake_api::FakeApi;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{convert::Infallible, sync::Arc};
use tokio_util::sync::CancellationToken;

/// A transport whose answers are scripted. Each is the lines of a response, after which the connection is closed; then
/// none follows.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<Vec<(u16, String)>>>,
    /// Queries of the requests.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Script {
    fn new(answers: &[(u16, Value)]) -> Self {
        let lines = |body: &Value| match body {
            // As API servers send it: the type first.
            Value::Array(events) => {
                let line = |e: &Value| format!("{{\"type\":{},\"object\":{}}}\n", e["type"], e["object"]);
                events.iter().map(line).collect()
            }
            other => other.to_string(),
        };
        let answers = answers.iter().rev().map(|(code, body)| (*code, lines(body))).collect();
        Self { answers: Arc::new(Mutex::new(answers)), requests: Arc::default() }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            script.requests.lock().push(request.uri().query().unwrap_or_default().to_owned());
            let next = script.answers.lock().pop();
            async move {
                let Some((code, body)) = next else { return std::future::pending().await };
                let frames = stream::iter([Ok::<_, Infallible>(http_body::Frame::data(body.into_bytes().into()))]);
                let body: StreamBody<_> = StreamBody::new(frames);
                Ok::<_, Infallible>(Response::builder().status(code).body(body.boxed_unsync()).unwrap())
            }
        });
        Api::namespaced(kube::Client::new(service, "x"), "x")
    }

    /// Returns the `resourceVersion` of each request: `None` of a list.
    fn versions(&self) -> Vec<Option<String>> {
        let version = |query: &String| {
            let mut parameters = query.split('&');
            parameters.find_map(|parameter| parameter.strip_prefix("resourceVersion=")).map(str::to_owned)
        };
        self.requests.lock().iter().map(version).collect()
    }
}

fn config_map(name: &str, version: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "x", "resourceVersion": version.to_string()}})
}

fn list(version: u32, items: &[Value]) -> (u16, Value) {
    let metadata = json!({"resourceVersion": version.to_string()});
    (200, json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items}))
}

fn event(kind: &str, object: Value) -> Value {
    json!({"type": kind, "object": object})
}

fn bookmark(version: u32) -> Value {
    let metadata = json!({"resourceVersion": version.to_string()});
    event("BOOKMARK", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
}

fn expired() -> Value {
    event(
        "ERROR",
        json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired",
        "message": "too old resource version"}),
    )
}

/// Returns an event in short form.
fn short(event: WatchEvent<ConfigMap>) -> String {
    match event {
        WatchEvent::Applied(map) => format!("+{}", object_key(&map.metadata)),
        WatchEvent::Deleted(map) => format!("-{}", object_key(&map.metadata)),
        WatchEvent::Listed(keys) => {
            let mut keys: Vec<_> = keys.into_iter().collect();
            keys.sort();
            format!("={}", keys.join(","))
        }
    }
}

async fn take(script: &Script, n: usize) -> Vec<String> {
    watch::<ConfigMap>(script.api(), Config::default()).take(n).map(short).collect().await
}

#[tokio::test(start_paused = true)]
async fn interrupted_watch_resumes_from_its_last_event() {
    let script = Script::new(&[
        list(5, &[config_map("a", 4)]),
        (200, json!([event("ADDED", config_map("b", 7))])),
        (200, json!([event("DELETED", config_map("a", 9))])),
    ]);
    assert_eq!(take(&script, 4).await, ["+x/a", "=x/a", "+x/b", "-x/a"]);
    assert_eq!(script.versions(), [None, Some("5".to_owned()), Some("7".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn interrupted_watch_resumes_from_a_bookmark() {
    let script =
        Script::new(&[list(5, &[]), (200, json!([bookmark(40)])), (200, json!([event("ADDED", config_map("b", 41))]))]);
    assert_eq!(take(&script, 2).await, ["=", "+x/b"]);
    assert_eq!(script.versions(), [None, Some("5".to_owned()), Some("40".to_owned())]);
    assert!(script.requests.lock()[1].contains("allowWatchBookmarks=true"));
}

#[tokio::test(start_paused = true)]
async fn expired_watch_is_listed_again() {
    let script = Script::new(&[
        list(5, &[config_map("a", 4)]),
        (200, json!([expired()])),
        list(50, &[config_map("b", 49)]),
        (200, json!([event("MODIFIED", config_map("b", 51))])),
    ]);
    assert_eq!(take(&script, 5).await, ["+x/a", "=x/a", "+x/b", "=x/b", "+x/b"]);
    assert_eq!(script.versions(), [None, Some("5".to_owned()), None, Some("50".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn failed_list_is_retried_with_backoff() {
    let failure = || (503, json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 503}));
    let script = Script::new(&[failure(), failure(), list(5, &[])]);
    let start = tokio::time::Instant::now();
    assert_eq!(take(&script, 1).await, ["="]);
    assert_eq!(script.requests.lock().len(), 3);
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn object_that_cannot_be_decoded_begins_a_new_list() {
    let mut wrong = config_map("wrong", 4);
    wrong["data"] = json!(1);
    let script = Script::new(&[
        list(5, &[config_map("a", 4), wrong.clone()]),
        list(5, &[config_map("a", 4)]),
        (200, json!([event("MODIFIED", wrong)])),
        list(7, &[config_map("a", 4), config_map("b", 6)]),
    ]);
    let start = tokio::time::Instant::now();
    assert_eq!(take(&script, 6).await, ["+x/a", "+x/a", "=x/a", "+x/a", "+x/b", "=x/a,x/b"]);
    assert_eq!(script.versions(), [None, None, Some("5".to_owned()), None]);
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn silent_watch_is_listed_again_after_the_interval() {
    let script = Script::new(&[list(5, &[])]);
    let start = tokio::time::Instant::now();
    let mut events = watch::<ConfigMap>(script.api(), Config::default());
    assert_eq!(events.next().await.map(short).as_deref(), Some("="));
    // The watch has no answer.
    assert!(tokio::time::timeout(Duration::from_secs(1), events.next()).await.is_err());
    let (code, body) = list(6, &[]);
    script.answers.lock().push((code, body.to_string()));
    assert_eq!(events.next().await.map(short).as_deref(), Some("="));
    assert!(start.elapsed() >= RELIST_INTERVAL);
    assert_eq!(script.versions(), [None, Some("5".to_owned()), None]);
}

#[tokio::test(start_paused = true)]
async fn missed_deletion_is_published_after_relist() {
    let script = Script::new(&[
        list(5, &[config_map("a", 4), config_map("b", 3)]),
        (200, json!([expired()])),
        list(50, &[config_map("b", 3)]),
    ]);
    let informer = SharedInformer::<ConfigMap>::new();
    let changes = informer.subscribe();
    let (stop, all) = (CancellationToken::new(), |event: &CacheEvent<ConfigMap>| match event {
        CacheEvent::Changed { before, after } => format!("{}{}", before.iter().count(), after.iter().count()),
        CacheEvent::Resync => "resync".to_owned(),
    });
    let stop_on_drop = stop.clone().drop_guard();
    tokio::spawn(informer.clone().run(script.api(), |map: ConfigMap| map, stop));
    // Both are added; after the relist, one is deleted, and the unchanged one is not published again.
    let seen = changes.take(4).map(|event| all(&event)).collect::<Vec<String>>();
    let seen = tokio::time::timeout(Duration::from_secs(60), seen).await.unwrap();
    assert_eq!(seen, ["01", "01", "resync", "10"]);
    assert_eq!(informer.keys(), ["x/b"]);
    drop(stop_on_drop);
}

const MAPS: &str = "GET api/v1/namespaces/x/configmaps";

#[tokio::test(start_paused = true)]
async fn watch_while_served_ends_with_not_found() {
    let api = FakeApi::new();
    let maps = || Api::<ConfigMap>::namespaced(api.client(), "x");
    // Other errors do not end the watch.
    api.refuse_next(MAPS, 503);
    let mut changes = watch_while_served(maps(), Config::default());
    assert!(matches!(changes.next().await, Some(WatchEvent::Listed(_))));
    (0..9).for_each(|_| api.refuse_next(MAPS, 404));
    assert!(watch_while_served(maps(), Config::default()).next().await.is_none());
    // `watch` retries a kind that is not served.
    assert!(matches!(watch(maps(), Config::default()).next().await, Some(WatchEvent::Listed(_))));
    assert_eq!(api.refusals(MAPS), 0);
}
