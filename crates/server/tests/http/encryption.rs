//! Objects in an outdated stored form are written again although nothing changes.

use crate::common::*;
use serde_json::json;
use std::sync::Arc;
use store::{Key, MemoryEngine, Options, Store, StoredForm, TransformError, TransformedEngine, Transformer};

const PATH: &str = "/api/v1/namespaces/default/secrets/s";

/// Stores data reversed, behind a letter.
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

async fn boot(engine: &MemoryEngine, letter: u8) -> Api {
    let transformed = TransformedEngine::new(engine.clone(), Arc::new(Reversed(letter)));
    Api::of(engine.clone(), Store::open(transformed, Options::default()).unwrap()).await
}

#[tokio::test]
async fn stale_object_is_rewritten_by_a_replace_without_changes() {
    let engine = MemoryEngine::new();
    let secret = json!({"metadata": {"name": "s"}, "data": {"k": "dg=="}});
    let api = boot(&engine, b'a').await;
    let made = api.check(post("/api/v1/namespaces/default/secrets", &secret), 201, json!({})).await.body;
    let same = api.check(put(PATH, &made), 200, json!({})).await.body;
    assert_eq!(same, made, "without a stale form nothing is written");

    let api = boot(&engine, b'b').await;
    let dry = api.check(put(format!("{PATH}?dryRun=All"), &made), 200, json!({})).await.body;
    assert_eq!(version(&dry), version(&made), "a dry run writes nothing");
    let mut watch = api.watch("/api/v1/namespaces/default/secrets?watch=true").await;
    watch.check("ADDED", json!({"metadata": {"name": "s"}})).await;
    let rewritten = api.check(put(PATH, &made), 200, json!({"data": {"k": "dg=="}})).await.body;
    assert_ne!(version(&rewritten), version(&made));
    assert_eq!(rewritten["metadata"]["managedFields"], made["metadata"]["managedFields"]);
    watch.check("MODIFIED", json!({"metadata": {"name": "s"}})).await;
    let again = api.check(put(PATH, &rewritten), 200, json!({})).await.body;
    assert_eq!(again, rewritten, "it is written once");

    let api = boot(&engine, b'c').await;
    let patched = api.check(merge(PATH, &json!({})), 200, json!({})).await.body;
    assert_ne!(version(&patched), version(&rewritten), "a patch without changes does the same");
}
