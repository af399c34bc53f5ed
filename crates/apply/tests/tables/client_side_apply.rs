//! Migration of objects from client-side apply.

use crate::fixture::State;
use serde_json::{Value, json};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Creates an object by client-side apply and updates it by another manager.
fn client_side(spec: Value, live: Value) -> State {
    let mut state = State::default();
    let last = json!({"apiVersion": "v1", "metadata": {"annotations": {}}, "spec": spec}).to_string();
    let object =
        |spec: &Value| json!({"apiVersion": "v1", "metadata": {"annotations": {LAST_APPLIED: last}}, "spec": spec});
    state.update_object("v1", "kubectl-client-side-apply", object(&spec));
    state.update_object("v1", "other", object(&live));
    state
}

fn config(spec: Value) -> Value {
    json!({"apiVersion": "v1", "spec": spec})
}

#[test]
fn kubectl_takes_over_fields_of_client_side_apply() {
    let mut state = client_side(json!({"text": "x"}), json!({"text": "x"}));
    state.apply_object("v1", "kubectl", config(json!({"text": "y"})), false).unwrap();
    let last = state.object.as_ref().unwrap()["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap();
    assert_eq!(last, "{\"apiVersion\":\"v1\",\"spec\":{\"text\":\"y\"}}\n");
    state.expect_spec(json!({"text": "y"}));
}

#[test]
fn field_changed_after_client_side_apply_conflicts() {
    let mut state = client_side(json!({"text": "x", "number": 1}), json!({"text": "z", "number": 1}));
    let error = state.apply_object("v1", "kubectl", config(json!({"text": "y", "number": 2})), false).unwrap_err();
    assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "other" using v1: .spec.text"#);
}

#[test]
fn other_manager_does_not_take_over_client_side_apply() {
    let mut state = client_side(json!({"text": "x"}), json!({"text": "x"}));
    let error = state.apply_object("v1", "another", config(json!({"text": "y"})), false).unwrap_err();
    assert!(error.to_string().contains(r#"conflict with "kubectl-client-side-apply" using v1"#), "{error}");
}

#[test]
fn invalid_last_applied_annotation_is_ignored() {
    for last in ["", "{", "[]", "1", r#"{"apiVersion":"v2","spec":{"text":"x"}}"#] {
        let object =
            json!({"apiVersion": "v1", "metadata": {"annotations": {LAST_APPLIED: last}}, "spec": {"text": "x"}});
        let mut state = State::default();
        state.update_object("v1", "other", object);
        assert!(state.apply_object("v1", "kubectl", config(json!({"text": "y"})), false).is_err(), "{last}");
    }
}
