use super::*;
use crate::WatchEvent;
use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use std::collections::HashSet;

#[derive(Debug, PartialEq)]
struct Slim(String, Option<String>);

impl Cached for Slim {
    fn namespace(&self) -> &'static str {
        "x"
    }
    fn name(&self) -> &str {
        &self.0
    }
}

fn transform(map: ConfigMap) -> Slim {
    Slim(map.metadata.name.unwrap_or_default(), map.data.and_then(|d| d.get("a").cloned()))
}

fn map(name: &str, resource_version: u64, a: &str) -> Box<ConfigMap> {
    Box::new(ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("x".into()),
            resource_version: Some(resource_version.to_string()),
            ..ObjectMeta::default()
        },
        data: Some([("a".to_owned(), a.to_owned())].into()),
        ..ConfigMap::default()
    })
}

fn published(informer: &SharedInformer<Slim>, change: WatchEvent<ConfigMap>) -> Vec<String> {
    let seen = informer.store.write().fold(change, transform);
    let show = |one: &Option<Arc<Slim>>| one.as_ref().map_or("-", |s| s.1.as_deref().unwrap_or("")).to_owned();
    let line = |seen: &CacheEvent<Slim>| match seen {
        CacheEvent::Changed { before, after } => format!("{} > {}", show(before), show(after)),
        CacheEvent::Resync => "all".to_owned(),
    };
    seen.iter().map(line).collect()
}

#[test]
fn informer_publishes_changes_before_and_after() {
    let informer = SharedInformer::new();
    assert_eq!(published(&informer, WatchEvent::Applied(map("m", 3, "one"))), ["- > one"]);
    assert_eq!(published(&informer, WatchEvent::Applied(map("m", 4, "one"))), [""; 0]);
    assert_eq!(published(&informer, WatchEvent::Applied(map("m", 5, "two"))), ["one > two"]);
    assert_eq!(informer.resource_version(), 5);
    assert_eq!(published(&informer, WatchEvent::Applied(map("n", 6, "three"))), ["- > three"]);
    assert!(!informer.has_synced());
    assert_eq!(published(&informer, WatchEvent::Listed(["x/m".to_owned()].into())), ["three > -", "all"]);
    assert!(informer.has_synced() && informer.keys() == ["x/m"]);
    assert_eq!(published(&informer, WatchEvent::Listed(["x/m".to_owned()].into())), [""; 0]);
    assert_eq!(published(&informer, WatchEvent::Deleted(map("m", 9, "two"))), ["two > -"]);
    assert!(informer.resource_version() == 9 && informer.in_namespace("x").is_empty());
}

#[tokio::test]
async fn lagging_subscriber_receives_resync() {
    let informer: SharedInformer<Slim> = SharedInformer::new();
    let mut changes = informer.subscribe();
    for _ in 0..=EVENT_CHANNEL_CAPACITY {
        informer.events.send(CacheEvent::Changed { before: None, after: None }).unwrap();
    }
    assert!(matches!(changes.next().await, Some(CacheEvent::Resync)));
    assert!(matches!(changes.next().await, Some(CacheEvent::Changed { .. })));
}

#[tokio::test]
async fn late_subscriber_begins_with_a_resync() {
    let informer: SharedInformer<Slim> = SharedInformer::new();
    let mut early = informer.subscribe();
    informer.store.write().fold(WatchEvent::<ConfigMap>::Listed(HashSet::new()), transform);
    assert!(matches!(informer.subscribe().next().now_or_never(), Some(Some(CacheEvent::Resync))));
    assert!(futures::poll!(early.next()).is_pending());
}

#[tokio::test]
async fn informer_of_a_view_is_started_once() {
    let api = fake_api::FakeApi::new();
    api.put("api/v1/namespaces/x/configmaps/m", json!({"metadata": {"name": "m", "namespace": "x"}}));
    let informers = crate::SharedInformerFactory::new(api.client());
    let (one, two) = (informers.informer::<ConfigMap>(), informers.informer::<ConfigMap>());
    one.wait_until_synced().await;
    assert!(Arc::ptr_eq(&one.get("x", "m").unwrap(), &two.get("x", "m").unwrap()));
}
