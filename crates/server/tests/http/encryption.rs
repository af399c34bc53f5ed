//! An unchanged update rewrites objects that are stored in an outdated form.

use crate::common::*;
use serde_json::json;
use std::sync::Arc;
use store::{Key, MemoryEngine, Options, Store, StoredForm, TransformError, TransformedEngine, Transformer};

const PATH: &str = "/api/v1/namespaces/default/secrets/s";

/// Transformer that stores data reversed, behind a prefix.
struct Reversed(u8);

impl Transformer for Reversed {
    fn is_active(&self) -> bool {
        true
    }

    fn transform_to_storage(&self, _: &Key, data: &[u8]) -> Result<Option<Vec<u8>>, TransformError> {
        Ok(Some([self.0].into_iter().chain(data.iter().rev().copied()).collect()))
    }

    fn transform_from_storage(&self, _: &Key, stored: &[u8]) -> Result<StoredForm, TransformError> {
        let (letter, data) = stored.split_first().ok_or_else(|| TransformError("it is empty".to_owned()))?;
        Ok(StoredForm { data: Some(data.iter().rev().copied().collect()), is_stale: *letter != self.0 })
    }
}

async fn boot(engine: &MemoryEngine, letter: u8) -> TestApi {
    let transformed = TransformedEngine::new(engine.clone(), Arc::new(Reversed(letter)));
    TestApi::with_store(engine.clone(), Store::open(transformed, Options::default()).unwrap()).await
}

#[tokio::test]
async fn unchanged_update_rewrites_stale_stored_object() {
    let engine = MemoryEngine::new();
    let secret = json!({"metadata": {"name": "s"}, "data": {"k": "dg=="}});
    let api = boot(&engine, b'a').await;
    let created = api.check(post("/api/v1/namespaces/default/secrets", &secret), 201, json!({})).await.body;
    let same = api.check(put(PATH, &created), 200, json!({})).await.body;
    assert_eq!(same, created, "an unchanged update without stale storage writes nothing");

    let api = boot(&engine, b'b').await;
    let dry = api.check(put(format!("{PATH}?dryRun=All"), &created), 200, json!({})).await.body;
    assert_eq!(resource_version(&dry), resource_version(&created), "a dry run writes nothing");
    let mut watch = api.watch("/api/v1/namespaces/default/secrets?watch=true").await;
    watch.check("ADDED", json!({"metadata": {"name": "s"}})).await;
    let rewritten = api.check(put(PATH, &created), 200, json!({"data": {"k": "dg=="}})).await.body;
    assert_ne!(resource_version(&rewritten), resource_version(&created));
    assert_eq!(rewritten["metadata"]["managedFields"], created["metadata"]["managedFields"]);
    watch.check("MODIFIED", json!({"metadata": {"name": "s"}})).await;
    let again = api.check(put(PATH, &rewritten), 200, json!({})).await.body;
    assert_eq!(again, rewritten, "a current object is not rewritten");

    let api = boot(&engine, b'c').await;
    let patched = api.check(merge_patch(PATH, &json!({})), 200, json!({})).await.body;
    assert_ne!(resource_version(&patched), resource_version(&rewritten), "an unchanged patch rewrites stale storage");
}
