//! Order of the items of merged lists.

use crate::fixture::State;
use serde_json::{Value, json};

#[track_caller]
fn check(object: &[&str], config: &[&str], expected: &[&str]) {
    let mut state = State::default();
    state
        .update("u", json!({"names": object}))
        .apply("a", json!({"names": config}))
        .expect_spec(json!({"names": expected}));
    let items = |names: &[&str]| -> Value { names.iter().map(|n| json!({"name": n})).collect() };
    let mut state = State::default();
    state.update("u", json!({"items": items(object)})).apply("a", json!({"items": items(config)}));
    state.expect_spec(json!({"items": items(expected)}));
}

#[test]
fn merged_items_have_the_applied_order() {
    check(&["a", "b", "c"], &["b"], &["a", "b", "c"]);
    check(&["a", "b", "c"], &["c", "a"], &["b", "c", "a"]);
    check(&["a", "b"], &["c"], &["a", "b", "c"]);
    check(&["a", "b"], &["c", "a"], &["c", "a", "b"]);
    check(&["a", "b", "c", "d"], &["d", "x", "a"], &["b", "c", "d", "x", "a"]);
    check(&["a", "b", "c"], &["a", "x", "c"], &["a", "b", "x", "c"]);
    check(&[], &["b", "a"], &["b", "a"]);
    check(&["a"], &["a", "b", "c"], &["a", "b", "c"]);
}

#[test]
fn list_items_are_merged_field_by_field() {
    let mut state = State::default();
    state.update("u", json!({"items": [{"name": "i", "value": 1, "texts": {"p": "1"}}]}));
    state.apply("a", json!({"items": [{"name": "i", "texts": {"q": "2"}}]}));
    state.expect_spec(json!({"items": [{"name": "i", "value": 1, "texts": {"p": "1", "q": "2"}}]}));
}
