//! Tests of the garbage collector against a fake API server, on a paused clock.
#![expect(clippy::expect_used, reason = "a test may panic")]

use controllers::Options;
use fake_api::FakeApi;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

fn start() -> FakeApi {
    let api = FakeApi::new();
    tokio::spawn(controllers::run(api.client(), Options::default(), CancellationToken::new()));
    api
}

fn path(name: &str) -> String {
    format!("api/v1/namespaces/x/configmaps/{name}")
}

/// Creates a ConfigMap with owners and finalizers.
fn make(api: &FakeApi, name: &str, owners: &[Value], finalizers: &[&str]) {
    let metadata = json!({"name": name, "namespace": "x", "uid": format!("uid-of-{name}"), "ownerReferences": owners, "finalizers": finalizers});
    api.put(&path(name), json!({"metadata": metadata}));
}

fn owner(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": format!("uid-of-{name}"), "blockOwnerDeletion": true})
}

fn owners(api: &FakeApi, name: &str) -> Vec<String> {
    let object = api.get(&path(name)).expect("it is there");
    let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    owners.iter().map(|o| o["name"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn object_without_owners_is_deleted_with_its_dependents() {
    let api = start();
    make(&api, "a", &[], &[]);
    make(&api, "b", &[owner("a")], &[]);
    make(&api, "c", &[owner("b")], &[]);
    make(&api, "d", &[owner("a"), owner("e")], &[]);
    make(&api, "e", &[], &[]);
    make(&api, "f", &[], &[]);
    api.delete(&path("a"));
    api.wait_until("b and c are gone", |api| api.get(&path("b")).is_none() && api.get(&path("c")).is_none()).await;
    api.wait_until("d knows its loss", |api| owners(api, "d") == ["e"]).await;
    assert!(api.get(&path("e")).is_some() && api.get(&path("f")).is_some());
}

#[tokio::test(start_paused = true)]
async fn unknown_owner_is_looked_up_before_deletion() {
    let api = start();
    make(&api, "a", &[], &[]);
    make(&api, "lost", &[owner("nobody")], &[]);
    // Same name, another UID.
    let mut other = owner("a");
    other["uid"] = json!("uid-of-an-earlier-one");
    make(&api, "mistaken", &[other], &[]);
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u"});
    make(&api, "strange", &[unknown], &[]);
    api.wait_until("both are gone", |api| api.get(&path("lost")).is_none() && api.get(&path("mistaken")).is_none())
        .await;
    assert!(api.get(&path("strange")).is_some(), "nobody can say that its owner is gone");
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_deletes_dependents_first() {
    let api = start();
    make(&api, "a", &[], &["foregroundDeletion"]);
    make(&api, "b", &[owner("a")], &["example.com/hold"]);
    let mut free = owner("a");
    free["blockOwnerDeletion"] = json!(false);
    make(&api, "c", &[free], &["example.com/hold"]);
    api.delete(&path("a"));
    let goes =
        |api: &FakeApi, name| api.get(&path(name)).is_some_and(|o| o["metadata"]["deletionTimestamp"].is_string());
    // Dependents that do not block the deletion are deleted, too.
    api.wait_until("b and c are being deleted", |api| goes(api, "b") && goes(api, "c")).await;
    assert!(api.get(&path("a")).is_some(), "b holds it");
    make(&api, "b", &[], &[]);
    api.wait_until("a is gone", |api| api.get(&path("a")).is_none()).await;
    assert!(goes(&api, "c"), "a did not wait for it");
}

#[tokio::test(start_paused = true)]
async fn orphaned_dependents_lose_their_owner_reference() {
    let api = start();
    make(&api, "a", &[], &["orphan"]);
    make(&api, "b", &[owner("a")], &[]);
    api.refuse_next("PATCH api/v1/namespaces/x/configmaps/b", 409);
    api.delete(&path("a"));
    api.wait_until("a is gone", |api| api.get(&path("a")).is_none()).await;
    assert_eq!(owners(&api, "b"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn dependent_without_live_owner_reference_survives() {
    let api = start();
    make(&api, "a", &[], &[]);
    make(&api, "b", &[owner("a")], &[]);
    make(&api, "c", &[owner("a")], &[]);
    sleep(Duration::from_secs(1)).await;
    // The watch shows the removal of the owner first.
    let orphan = json!({"metadata": {"name": "b", "namespace": "x", "uid": "uid-of-b"}});
    api.put_unobserved(&path("b"), orphan);
    api.delete(&path("a"));
    api.wait_until("c is gone", |api| api.get(&path("c")).is_none()).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(owners(&api, "b"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn conflict_with_unchanged_owners_does_not_stop_deletion() {
    let api = start();
    make(&api, "a", &[], &[]);
    make(&api, "b", &[owner("a")], &[]);
    let delete = format!("DELETE {}", path("b"));
    (0..3).for_each(|_| api.refuse_next(&delete, 409));
    api.delete(&path("a"));
    api.wait_until("b is gone", |api| api.get(&path("b")).is_none()).await;
    assert_eq!(api.refusals(&delete), 0);
}

#[tokio::test(start_paused = true)]
async fn unlistable_kind_delays_collection_by_30_seconds() {
    let (api, start) = (FakeApi::new(), Instant::now());
    (0..200).for_each(|_| api.refuse_next("GET apis/coordination.k8s.io/v1/leases", 500));
    tokio::spawn(controllers::run(api.client(), Options::default(), CancellationToken::new()));
    make(&api, "a", &[], &[]);
    make(&api, "b", &[owner("a")], &[]);
    make(&api, "c", &[], &["orphan"]);
    make(&api, "d", &[owner("c")], &[]);
    api.delete(&path("a"));
    api.delete(&path("c"));
    api.wait_until("b is gone", |api| api.get(&path("b")).is_none()).await;
    assert_eq!(start.elapsed().as_secs(), 30);
    // A Lease that c owns would be deleted once it is observed.
    assert!(api.get(&path("c")).is_some());
    api.wait_until("c is gone", |api| api.get(&path("c")).is_none()).await;
    assert_eq!((api.refusals("GET apis/coordination.k8s.io/v1/leases"), owners(&api, "d").len()), (0, 0));
}
