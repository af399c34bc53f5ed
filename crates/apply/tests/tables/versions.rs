//! Managers who know the object in different versions.

use crate::sample::State;
use serde_json::json;

#[test]
fn a_field_is_the_same_under_its_other_name() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x", "number": 1}));
    let error = state.apply_object("v2", "b", json!({"apiVersion": "v2", "spec": {"words": "y"}}), false).unwrap_err();
    assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "a": .spec.text"#);
    state.apply_object("v2", "b", json!({"apiVersion": "v2", "spec": {"words": "y"}}), true).unwrap();
    state.owners(&["a applied number", "b applied v2 words"]);
}

#[test]
fn what_was_applied_in_one_version_is_given_up_in_another() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x", "number": 1}));
    state.apply_object("v2", "a", json!({"apiVersion": "v2", "spec": {"number": 1}}), false).unwrap();
    state.spec(json!({"number": 1})).owners(&["a applied v2 number"]);
}

#[test]
fn a_version_that_is_gone_takes_its_managers_with_it() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x"})).apply("b", json!({"number": 1}));
    let mut managers = state.managers.to_json().unwrap();
    managers[0]["apiVersion"] = json!("v0");
    state.managers = apply::Managers::from_json(&managers).unwrap();
    state.apply("b", json!({"number": 2})).owners(&["b applied number"]);
}

#[test]
fn what_became_atomic_is_owned_as_a_whole() {
    let mut state = State::default();
    state.apply("a", json!({"wholeMap": {"k": "v"}, "text": "x"}));
    let mut managers = state.managers.to_json().unwrap();
    managers[0]["fieldsV1"]["f:spec"]["f:wholeMap"] = json!({"f:k": {}});
    state.managers = apply::Managers::from_json(&managers).unwrap();
    state.update("u", json!({"wholeMap": {"k": "v"}, "text": "y"}));
    state.owners(&["a applied wholeMap", "u wrote text"]);
}
