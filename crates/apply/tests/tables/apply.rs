//! Objects and field ownership after applies.

use crate::fixture::State;
use serde_json::json;

#[test]
fn applied_fields_are_owned() {
    let mut state = State::default();
    state
        .apply("a", json!({"text": "x", "names": ["n"], "items": [{"name": "i", "value": 1}], "map": {"k": "v"}}))
        .expect_owners(&[
            r#"a applied text items[name="i"] items[name="i"].name items[name="i"].value map.k names[="n"]"#,
        ]);
}

#[test]
fn equal_value_is_shared_by_its_appliers() {
    State::default()
        .apply("a", json!({"text": "x"}))
        .apply("b", json!({"text": "x"}))
        .expect_owners(&["a applied text", "b applied text"]);
}

#[test]
fn different_value_is_a_conflict() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x", "number": 1}));
    let message = state.apply_error("b", json!({"text": "y"}));
    assert_eq!(message, r#"Apply failed with 1 conflict: conflict with "a": .spec.text"#);
    // A manager with entries of two operations is listed twice.
    state.update("a", json!({"text": "x", "number": 2}));
    let message = state.apply_error("b", json!({"text": "y", "number": 3}));
    let expected = "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.text\nconflicts with \"a\" using v1:\n- .spec.number";
    assert_eq!(message, expected);
    state.expect_spec(json!({"text": "x", "number": 2}));
}

#[test]
fn forced_apply_takes_ownership() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x", "number": 1})).force("b", json!({"text": "y"}));
    state.expect_spec(json!({"text": "y", "number": 1})).expect_owners(&["a applied number", "b applied text"]);
    // A manager without fields is removed.
    state.force("b", json!({"text": "y", "number": 2})).expect_owners(&["b applied number text"]);
}

#[test]
fn field_that_is_no_longer_applied_is_removed() {
    State::default()
        .apply("a", json!({"text": "x", "number": 1, "names": ["p", "q"], "items": [{"name": "i"}, {"name": "j"}]}))
        .apply("a", json!({"number": 1, "names": ["q"], "items": [{"name": "j"}]}))
        .expect_spec(json!({"number": 1, "names": ["q"], "items": [{"name": "j"}]}))
        .expect_owners(&[r#"a applied number items[name="j"] items[name="j"].name names[="q"]"#]);
}

#[test]
fn field_with_another_owner_is_kept() {
    State::default()
        .apply("a", json!({"text": "x", "number": 1}))
        .apply("b", json!({"text": "x"}))
        .apply("a", json!({"number": 1}))
        .expect_spec(json!({"text": "x", "number": 1}))
        .expect_owners(&["a applied number", "b applied text"]);
    // The same applies to fields of updates.
    State::default()
        .apply("a", json!({"pair": {"a": 1}}))
        .update("b", json!({"pair": {"a": 1, "b": 2}}))
        .apply("a", json!({}))
        .expect_spec(json!({"pair": {"b": 2}}));
}

#[test]
fn list_item_without_owner_is_removed_with_its_fields() {
    State::default()
        .apply("a", json!({"text": "x", "items": [{"name": "i", "value": 1}]}))
        .update("b", json!({"text": "x", "items": [{"name": "i", "value": 1, "texts": {"k": "v"}}]}))
        .apply("a", json!({"text": "x"}))
        .expect_spec(json!({"text": "x", "items": null}))
        .expect_owners(&["a applied text"]);
}

#[test]
fn shared_list_item_loses_fields_of_a_former_owner() {
    State::default()
        .apply("a", json!({"items": [{"name": "i", "value": 1}]}))
        .apply("b", json!({"items": [{"name": "i", "texts": {"k": "v"}}]}))
        .expect_spec(json!({"items": [{"name": "i", "value": 1, "texts": {"k": "v"}}]}))
        .apply("a", json!({"items": []}))
        .expect_spec(json!({"items": [{"name": "i", "texts": {"k": "v"}}]}));
}

#[test]
fn unowned_field_is_removed_only_with_its_parent() {
    let mut state = State::default();
    state.apply("a", json!({"items": [{"name": "i"}], "pair": {"a": 1}}));
    // Defaults have no owner.
    state.object =
        Some(json!({"apiVersion": "v1", "spec": {"items": [{"name": "i", "value": 7}], "pair": {"a": 1, "b": 7}}}));
    state.apply("a", json!({"pair": {"a": 1}})).expect_spec(json!({"pair": {"a": 1, "b": 7}}));
}

#[test]
fn field_that_was_never_applied_is_kept() {
    State::default()
        .update("b", json!({"text": "x", "number": 1}))
        .apply("a", json!({"number": 1}))
        .apply("a", json!({}))
        .expect_spec(json!({"text": "x", "number": 1}))
        .expect_owners(&["a applied .spec", "b wrote number text"]);
}

#[test]
fn apply_of_the_same_configuration_changes_nothing() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x"})).update("b", json!({"text": "x", "number": 1}));
    let before = (state.object.clone(), state.managers.to_json());
    state.apply("a", json!({"text": "x"}));
    assert_eq!((state.object.clone(), state.managers.to_json()), before);
    // A manager that shares unchanged fields has no time.
    state.apply("c", json!({"number": 1}));
    assert_eq!((state.ticks_of("a").as_deref(), state.ticks_of("c")), (Some("00:01"), None));
    state.apply("a", json!({"text": "x", "flag": true}));
    assert_eq!(state.ticks_of("a").as_deref(), Some("00:05"));
}

#[test]
fn atomic_field_conflicts_as_one() {
    let mut state = State::default();
    state.apply("a", json!({"wholeList": ["p"], "wholeMap": {"p": "1"}, "wholeStruct": {"a": 1}}));
    state.expect_owners(&["a applied wholeList wholeMap wholeStruct"]);
    assert_eq!(
        state.apply_error("b", json!({"wholeList": ["p", "q"], "wholeMap": {"q": "2"}, "wholeStruct": {"b": 2}})),
        "Apply failed with 3 conflicts: conflicts with \"a\":\n- .spec.wholeList\n- .spec.wholeMap\n- .spec.wholeStruct"
    );
    state.force("b", json!({"wholeMap": {"q": "2"}})).expect_spec(json!({
        "wholeList": ["p"], "wholeMap": {"q": "2"}, "wholeStruct": {"a": 1},
    }));
}

#[test]
fn missing_list_map_key_has_its_default() {
    let mut state = State::default();
    state.apply("a", json!({"ports": [{"port": 80, "name": "http"}]}));
    state.expect_owners(&[r#"a applied ports[port=80,protocol="TCP"] ports[port=80,protocol="TCP"].name ports[port=80,protocol="TCP"].port"#]);
    // The object after defaulting.
    state.object =
        Some(json!({"apiVersion": "v1", "spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "http"}]}}));
    state.apply(
        "b",
        json!({"ports": [{"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP", "name": "http"}]}),
    );
    state.expect_spec(
        json!({"ports": [{"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP", "name": "http"}]}),
    );
    state.apply("a", json!({"ports": []})).apply("b", json!({"ports": []})).expect_spec(json!(null));
}

#[test]
fn null_is_a_value_and_removes_no_nested_fields() {
    State::default()
        .apply("a", json!({"text": null, "items": null, "map": {}}))
        .expect_spec(json!({"text": null, "items": null, "map": {}}))
        .expect_owners(&["a applied items map text"]);
    let mut state = State::default();
    state.apply("a", json!({"text": "x", "map": {"k": "v"}}));
    assert!(state.apply_error("b", json!({"text": null})).contains(".spec.text"));
    state.apply("b", json!({"map": null})).expect_spec(json!({"text": "x", "map": {"k": "v"}}));
}

#[test]
fn untyped_value_has_granular_maps_and_atomic_lists() {
    let mut state = State::default();
    state.apply("a", json!({"any": {"m": {"p": 1}, "l": [1], "s": "x"}}));
    state.expect_owners(&["a applied any.l any.m any.s any.m.p"]);
    state
        .apply("b", json!({"any": {"m": {"q": 2}}}))
        .expect_spec(json!({"any": {"m": {"p": 1, "q": 2}, "l": [1], "s": "x"}}));
    assert!(state.apply_error("b", json!({"any": {"l": [2]}})).contains(".spec.any.l"));
    // A value of another kind is a conflict.
    assert!(state.apply_error("b", json!({"any": {"s": {"now": "a map"}}})).contains(".spec.any.s"));
    state.force("b", json!({"any": {"s": {"now": "a map"}}}));
    state.expect_spec(json!({"any": {"m": {"p": 1}, "l": [1], "s": {"now": "a map"}}}));
}

#[test]
fn duplicate_items_are_owned_together() {
    let mut state = State::default();
    state.update("b", json!({"names": ["n", "n"], "items": [{"name": "i", "value": 1}, {"name": "i", "value": 2}]}));
    state.expect_owners(&[r#"b wrote items names items[name="i"] names[="n"]"#]);
    state.force("a", json!({"items": [{"name": "i", "value": 3}]}));
    state.expect_spec(json!({"names": ["n", "n"], "items": [{"name": "i", "value": 3}]}));
}

#[test]
fn system_metadata_has_no_owner() {
    let mut state = State::default();
    let config = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "uid": "u", "labels": {"l": "1"}}});
    state.apply_object("v1", "a", config, false).unwrap();
    state.expect_owners(&["a applied .metadata.labels.l"]);
}

#[test]
fn reset_fields_are_not_owned() {
    let mut state = State { filter: apply::Filter::without(&[&["status"]]), ..State::default() };
    state.apply_object("v1", "a", json!({"spec": {"text": "x"}, "status": {"phase": "p"}}), false).unwrap();
    state.expect_owners(&["a applied text"]);
    state.filter = apply::Filter::only(&[&["spec", "items", "*", "value"], &["spec", "items", "*", "texts"]]);
    state.subresource = "resize";
    let config = json!({"spec": {"text": "y", "items": [{"name": "i", "value": 1}]}});
    state.apply_object("v1", "a", config, true).unwrap();
    state.expect_owners(&["a applied text", r#"a/resize applied items[name="i"] items[name="i"].value"#]);
}
