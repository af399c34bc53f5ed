//! Managers that use different API versions.

use crate::fixture::State;
use serde_json::json;

#[test]
fn renamed_field_conflicts_across_versions() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x", "number": 1}));
    let error = state.apply_object("v2", "b", json!({"apiVersion": "v2", "spec": {"words": "y"}}), false).unwrap_err();
    assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "a": .spec.text"#);
    state.apply_object("v2", "b", json!({"apiVersion": "v2", "spec": {"words": "y"}}), true).unwrap();
    state.expect_owners(&["a applied number", "b applied v2 words"]);
}

#[test]
fn field_applied_in_one_version_is_pruned_in_another() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x", "number": 1}));
    state.apply_object("v2", "a", json!({"apiVersion": "v2", "spec": {"number": 1}}), false).unwrap();
    state.expect_spec(json!({"number": 1})).expect_owners(&["a applied v2 number"]);
}

#[test]
fn managers_of_an_unserved_version_are_dropped() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x"})).apply("b", json!({"number": 1}));
    let mut managers = state.managers.to_json().unwrap();
    managers[0]["apiVersion"] = json!("v0");
    state.managers = apply::ManagedFields::from_json(&managers).unwrap();
    state.apply("b", json!({"number": 2})).expect_owners(&["b applied number"]);
}

#[test]
fn field_that_became_atomic_is_owned_as_one() {
    let mut state = State::default();
    state.apply("a", json!({"wholeMap": {"k": "v"}, "text": "x"}));
    let mut managers = state.managers.to_json().unwrap();
    managers[0]["fieldsV1"]["f:spec"]["f:wholeMap"] = json!({"f:k": {}});
    state.managers = apply::ManagedFields::from_json(&managers).unwrap();
    state.update("u", json!({"wholeMap": {"k": "v"}, "text": "y"}));
    state.expect_owners(&["a applied wholeMap", "u wrote text"]);
}
