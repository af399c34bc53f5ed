//! Objects that were managed by client-side apply.

use crate::sample::State;
use serde_json::{Value, json};

const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object as `kubectl apply` made it, and another changed.
fn client_side(spec: Value, live: Value) -> State {
    let mut state = State::default();
    let last = json!({"apiVersion": "v1", "metadata": {"annotations": {}}, "spec": spec}).to_string();
    let object = |spec: &Value| json!({"apiVersion": "v1", "metadata": {"annotations": {LAST: last}}, "spec": spec});
    state.update_object("v1", "kubectl-client-side-apply", object(&spec));
    state.update_object("v1", "other", object(&live));
    state
}

fn config(spec: Value) -> Value {
    json!({"apiVersion": "v1", "spec": spec})
}

#[test]
fn kubectl_takes_over_what_it_applied_on_the_client() {
    let mut state = client_side(json!({"text": "x"}), json!({"text": "x"}));
    state.apply_object("v1", "kubectl", config(json!({"text": "y"})), false).unwrap();
    let last = state.object.as_ref().unwrap()["metadata"]["annotations"][LAST].as_str().unwrap();
    assert_eq!(last, "{\"apiVersion\":\"v1\",\"spec\":{\"text\":\"y\"}}\n");
    state.spec(json!({"text": "y"}));
}

#[test]
fn what_another_changed_since_is_a_conflict() {
    let mut state = client_side(json!({"text": "x", "number": 1}), json!({"text": "z", "number": 1}));
    let error = state.apply_object("v1", "kubectl", config(json!({"text": "y", "number": 2})), false).unwrap_err();
    assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "other" using v1: .spec.text"#);
}

#[test]
fn only_kubectl_does_so() {
    let mut state = client_side(json!({"text": "x"}), json!({"text": "x"}));
    let error = state.apply_object("v1", "another", config(json!({"text": "y"})), false).unwrap_err();
    assert!(error.to_string().contains(r#"conflict with "kubectl-client-side-apply" using v1"#), "{error}");
}

#[test]
fn an_annotation_that_is_no_object_of_this_version_allows_nothing() {
    for last in ["", "{", "[]", "1", r#"{"apiVersion":"v2","spec":{"text":"x"}}"#] {
        let object = json!({"apiVersion": "v1", "metadata": {"annotations": {LAST: last}}, "spec": {"text": "x"}});
        let mut state = State::default();
        state.update_object("v1", "other", object);
        assert!(state.apply_object("v1", "kubectl", config(json!({"text": "y"})), false).is_err(), "{last}");
    }
}
