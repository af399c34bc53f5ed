//! A store on a full disk: writes fail, reads succeed.

use crate::common::*;
use serde_json::json;
use std::time::Duration;
use store::{CommitError, MemoryEngine};

#[tokio::test]
async fn full_disk_rejects_writes_and_serves_reads() {
    let api = TestApi::new().await;
    let created = api.create_config_map("a", json!({})).await;
    api.create_pod("p").await;
    let path = format!("{CONFIG_MAPS}/a");
    let full = json!({"kind": "Status", "status": "Failure", "reason": "InsufficientStorage", "code": 507,
        "message": "the store cannot take the write: the disk that holds the store is full"});
    let writes = [
        post(CONFIG_MAPS, &json!({"metadata": {"name": "b"}})),
        put(&path, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}})),
        merge_patch(&path, &json!({"data": {"k": "v"}})),
        delete(&path),
        delete(CONFIG_MAPS),
        post(format!("{PODS}/p/binding"), &json!({"metadata": {"name": "p"}, "target": {"name": "n"}})),
        post(format!("{PODS}/p/eviction"), &json!({"metadata": {"name": "p"}})),
    ];
    let mut events = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", resource_version(&created))).await;
    for request in writes.clone() {
        let case = format!("{} {}", request.method, request.path);
        api.engine.fail_next_commit(CommitError::Full);
        api.check(request, 507, full.clone()).await;
        assert_eq!(api.send(&get(&path)).await.body, created, "{case}");
        api.check(
            get(PODS),
            200,
            json!({"items": [{"spec": {"nodeName": null}, "metadata": {"deletionTimestamp": null}}]}),
        )
        .await;
    }
    api.engine.fail_next_commit(CommitError::injected());
    api.check(
        writes[0].clone(),
        500,
        json!({"reason": "InternalError", "message": "Internal error occurred: the store could not be written"}),
    )
    .await;
    // Writes succeed once there is space; watches have not seen the rejected ones.
    api.check(writes[2].clone(), 200, json!({"data": {"k": "v"}})).await;
    events.check("MODIFIED", json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
}

#[tokio::test]
async fn system_objects_are_created_once_space_is_free() {
    let engine = MemoryEngine::new();
    engine.fail_next_commit(CommitError::Full);
    let api = TestApi::reopen(engine).await;
    let path = "/api/v1/namespaces/default";
    api.check(get(path), 404, json!({})).await;
    let created = async {
        while api.send(&get(path)).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), created).await.unwrap();
}
