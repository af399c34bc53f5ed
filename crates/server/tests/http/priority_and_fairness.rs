//! API Priority and Fairness.

use crate::common::*;
use bytes::Bytes;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use request::UserInfo;
use response::{Body, BoxError};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Semaphore;
use tower::Service;

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

/// Starts a server with upstream's flow control objects and this number of seats.
async fn api_with_seats(total: usize) -> TestApi {
    let mut api = TestApi::new().await;
    api.server = api.server.clone().with_max_requests_inflight(total);
    api.server.clone().bootstrap_flow_control().await;
    let authenticated = json!([{"kind": "Group", "name": "system:authenticated"}]);
    api.grant_cluster_role("all", authenticated, json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]))
        .await;
    api
}

async fn uid(api: &TestApi, path: &str) -> String {
    api.send(&get(format!("{GROUP}/{path}"))).await.body["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Sends a request of this user that completes once it gets one of the permits.
fn send_blocking_request(
    api: &TestApi,
    user: &str,
    permits: &Arc<Semaphore>,
) -> impl Future<Output = u16> + Send + 'static {
    let (server, permits) = (api.server.clone(), permits.clone());
    let user = UserInfo { name: user.to_owned(), ..UserInfo::default() };
    let body = futures::stream::once(async move {
        permits.acquire().await.unwrap().forget();
        Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"{}")))
    });
    let body: Body = StreamBody::new(body).boxed_unsync();
    let request = Request::post(CONFIG_MAPS).body(body).unwrap();
    let mut service = server.local(user);
    async move { service.call(request).await.map_or(500, |response| response.status().as_u16()) }
}

#[tokio::test]
async fn bootstrap_flow_schemas_and_levels_exist() {
    let api = api_with_seats(600).await;
    for (name, precedence, level, by) in [
        ("exempt", 1, "exempt", Value::Null),
        ("probes", 2, "exempt", Value::Null),
        ("system-leader-election", 100, "leader-election", json!("ByUser")),
        ("system-node-high", 400, "node-high", json!("ByUser")),
        ("system-nodes", 500, "system", json!("ByUser")),
        ("kube-controller-manager", 800, "workload-high", json!("ByNamespace")),
        ("kube-scheduler", 800, "workload-high", json!("ByNamespace")),
        ("kube-system-service-accounts", 900, "workload-high", json!("ByNamespace")),
        ("service-accounts", 9000, "workload-low", json!("ByUser")),
        ("global-default", 9900, "global-default", json!("ByUser")),
        ("catch-all", 10_000, "catch-all", json!("ByUser")),
    ] {
        let spec = json!({"matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level}, "distinguisherMethod": {"type": by}});
        let spec =
            if by.is_null() { json!({"matchingPrecedence": precedence, "distinguisherMethod": null}) } else { spec };
        let message =
            format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} and it exists");
        let status =
            json!({"conditions": [{"type": "Dangling", "status": "False", "reason": "Found", "message": message}]});
        api.check(get(format!("{GROUP}/flowschemas/{name}")), 200, json!({"spec": spec, "status": status})).await;
    }
    let levels = api.send(&get(format!("{GROUP}/prioritylevelconfigurations"))).await.body;
    assert_eq!(levels["items"].as_array().unwrap().len(), 8);
    // A restart writes nothing.
    let before = levels["metadata"]["resourceVersion"].clone();
    api.server.clone().bootstrap_flow_control().await;
    let after = api.send(&get(format!("{GROUP}/prioritylevelconfigurations"))).await.body;
    assert_eq!(after["metadata"]["resourceVersion"], before);
}

#[tokio::test]
async fn response_headers_name_flow_schema_and_level() {
    let api = api_with_seats(600).await;
    for (name, groups, schema, level) in [
        ("root", vec!["system:masters"], "exempt", "exempt"),
        ("system:node:n", vec!["system:nodes"], "system-nodes", "system"),
        ("system:serviceaccount:a:b", vec!["system:serviceaccounts"], "service-accounts", "workload-low"),
        ("ann", vec![], "global-default", "global-default"),
    ] {
        let response = api.send(&get(PODS).with_user(name, &groups)).await;
        let message = |header: &str| response.headers[header].to_str().unwrap().to_owned();
        assert_eq!(
            message("x-kubernetes-pf-flowschema-uid"),
            uid(&api, &format!("flowschemas/{schema}")).await,
            "{name}"
        );
        let level = uid(&api, &format!("prioritylevelconfigurations/{level}")).await;
        assert_eq!(message("x-kubernetes-pf-prioritylevel-uid"), level, "{name}");
    }
    // Discovery is classified, too; health checks are exempt.
    for (path, schema) in [("/version", "global-default"), ("/readyz", "probes")] {
        let response = api.send(&get(path).with_user("ann", &[])).await;
        let message = response.headers["x-kubernetes-pf-flowschema-uid"].to_str().unwrap();
        assert_eq!((response.status, message), (200, &*uid(&api, &format!("flowschemas/{schema}")).await), "{path}");
    }
    let as_ann = get("/version").with_user("root", &["system:masters"]).header("impersonate-user", "ann");
    let message = api.send(&as_ann).await.headers["x-kubernetes-pf-flowschema-uid"].to_str().unwrap().to_owned();
    assert_eq!(message, uid(&api, "flowschemas/global-default").await);
}

#[tokio::test]
async fn flood_of_one_user_does_not_starve_others() {
    // The priority level of both users has one seat.
    let api = api_with_seats(10).await;
    let (permits, done) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let flood: Vec<_> = (0..60)
        .map(|_| {
            let (request, done) = (send_blocking_request(&api, "ann", &permits), done.clone());
            tokio::spawn(async move {
                request.await;
                done.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    // All requests execute or wait in a queue.
    let (server, seen) = (api.server.clone(), done.clone());
    let request = Request::get(PODS).body(http_body_util::Empty::<Bytes>::new()).unwrap();
    let bob = UserInfo { name: "bob".to_owned(), ..UserInfo::default() };
    tokio::task::yield_now().await;
    let other = tokio::spawn(async move {
        let status = server.handle(Some(bob), request).await.status();
        (status.as_u16(), seen.load(Ordering::SeqCst))
    });
    for finished in 1..=60 {
        permits.add_permits(1);
        let reached = async {
            while done.load(Ordering::SeqCst) < finished {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), reached).await.unwrap();
    }
    let (status, before) = other.await.unwrap();
    // A flow has six queues, so another flow is served after one request of each.
    assert!(status == 200 && before <= 8, "{status} after {before} of 60 others");
    futures::future::join_all(flood).await.into_iter().for_each(|ended| ended.unwrap());
}

#[tokio::test]
async fn full_queue_returns_429_and_masters_are_exempt() {
    let api = api_with_seats(10).await;
    let all =
        json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]});
    let rule = json!({"subjects": [{"kind": "User", "user": {"name": "carl"}}], "resourceRules": [all]});
    let schema = json!({"metadata": {"name": "carl"}, "spec": {"priorityLevelConfiguration": {"name": "catch-all"}, "matchingPrecedence": 50, "rules": [rule]}});
    api.check(post(format!("{GROUP}/flowschemas"), &schema), 201, json!({})).await;
    let permits = Arc::new(Semaphore::new(0));
    let mut first = tokio::spawn(send_blocking_request(&api, "carl", &permits));
    // A rejected request shows that the first one has the seat.
    let rejected = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            let response = api.send(&get(PODS).with_user("carl", &[])).await;
            if response.status == 429 {
                return response;
            }
            tokio::task::yield_now().await;
        }
    });
    let rejected = rejected.await.unwrap();
    assert_eq!(rejected.headers["retry-after"], "1");
    let status = json!({"kind": "Status", "reason": "TooManyRequests", "message": "Too many requests, please try again later.", "details": {"retryAfterSeconds": 1}});
    let mut mismatches = Vec::new();
    compare(&status, &rejected.body, "", &mut mismatches);
    assert!(mismatches.is_empty(), "{mismatches:?}");
    let uid = uid(&api, "flowschemas/carl").await;
    assert_eq!(rejected.headers["x-kubernetes-pf-flowschema-uid"], uid.as_str());
    // Other levels, masters and health checks are not delayed.
    for request in [get(PODS).with_user("ann", &[]), get(PODS), get("/healthz").with_user("carl", &[])] {
        assert_eq!(api.send(&request).await.status, 200, "{request:?}");
    }
    permits.add_permits(1);
    assert!((&mut first).await.is_ok());
    api.check(get(PODS).with_user("carl", &[]), 200, json!({})).await;
}

#[tokio::test]
async fn watch_holds_its_seat_only_while_starting() {
    let api = api_with_seats(10).await;
    let mut watches = Vec::new();
    for _ in 0..5 {
        watches.push(api.watch_with(&get(format!("{PODS}?watch=1")).with_user("ann", &[])).await);
    }
    api.check(get(PODS).with_user("ann", &[]), 200, json!({})).await;
}

#[tokio::test]
async fn mandatory_flow_control_objects_are_restored() {
    let api = api_with_seats(600).await;
    let path = format!("{GROUP}/flowschemas/catch-all");
    let change = json!({"spec": {"matchingPrecedence": 9999}});
    let rejected = api.check(merge_patch(&path, &change), 422, json!({})).await.body;
    assert!(
        rejected["message"].as_str().unwrap().contains("spec of 'catch-all' must equal the fixed value"),
        "{rejected}"
    );
    let first = json!({"spec": {"matchingPrecedence": 1}});
    let rejected = api.check(merge_patch(format!("{GROUP}/flowschemas/probes"), &first), 422, json!({})).await.body;
    assert!(
        rejected["message"].as_str().unwrap().contains("only the schema named 'exempt' may have matchingPrecedence 1")
    );
    let shares = json!({"spec": {"exempt": {"nominalConcurrencyShares": 5}}});
    api.check(merge_patch(format!("{GROUP}/prioritylevelconfigurations/exempt"), &shares), 200, json!({})).await;
    // A FlowSchema without its level has a `Dangling` condition; mandatory and suggested objects are recreated.
    let mut events =
        api.watch(&format!("{GROUP}/flowschemas?watch=1&fieldSelector=metadata.name%3Dservice-accounts")).await;
    events.next().await;
    let other = json!({"spec": {"priorityLevelConfiguration": {"name": "none"}}});
    let of_account = format!("{GROUP}/flowschemas/service-accounts");
    let own = json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}}});
    api.check(merge_patch(&of_account, &own), 200, json!({})).await;
    events.next().await;
    api.check(merge_patch(&of_account, &other), 200, json!({})).await;
    events.next().await;
    let condition = json!({"type": "Dangling", "status": "True", "reason": "NotFound"});
    events.check("MODIFIED", json!({"status": {"conditions": [condition]}})).await;
    for (name, precedence) in [("catch-all", 10_000), ("service-accounts", 9000)] {
        let mut events = api.watch(&format!("{GROUP}/flowschemas?watch=1&fieldSelector=metadata.name%3D{name}")).await;
        events.next().await;
        api.check(delete(format!("{GROUP}/flowschemas/{name}")), 200, json!({})).await;
        events.check("DELETED", json!({})).await;
        events.check("ADDED", json!({"spec": {"matchingPrecedence": precedence}})).await;
    }
}

#[tokio::test]
async fn condition_without_time_gets_a_transition_time() {
    let api = api_with_seats(600).await;
    let path = format!("{GROUP}/flowschemas/probes");
    let mut events = api.watch(&format!("{GROUP}/flowschemas?watch=1&fieldSelector=metadata.name%3Dprobes")).await;
    let mut schema = events.check("ADDED", json!({})).await;
    schema["status"]["conditions"][0].as_object_mut().unwrap().remove("lastTransitionTime");
    api.check(put(format!("{path}/status"), &schema), 200, json!({})).await;
    events.next().await;
    // Without a time the condition would differ from the computed one, and would be rewritten for ever.
    let settled = events.check("MODIFIED", json!({})).await;
    assert!(settled["status"]["conditions"][0]["lastTransitionTime"].is_string(), "{settled}");
}
