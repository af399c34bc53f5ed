//! What apply makes of an object, and of who owns it.

use crate::sample::State;
use serde_json::json;

#[test]
fn what_is_applied_is_owned() {
    let mut state = State::default();
    state
        .apply("a", json!({"text": "x", "names": ["n"], "items": [{"name": "i", "value": 1}], "map": {"k": "v"}}))
        .owners(&[r#"a applied text items[name="i"] items[name="i"].name items[name="i"].value map.k names[="n"]"#]);
}

#[test]
fn who_applies_the_same_owns_it_too() {
    State::default()
        .apply("a", json!({"text": "x"}))
        .apply("b", json!({"text": "x"}))
        .owners(&["a applied text", "b applied text"]);
}

#[test]
fn another_value_is_a_conflict() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x", "number": 1}));
    let message = state.refused("b", json!({"text": "y"}));
    assert_eq!(message, r#"Apply failed with 1 conflict: conflict with "a": .spec.text"#);
    // One that came to own them in two ways is named twice.
    state.update("a", json!({"text": "x", "number": 2}));
    let message = state.refused("b", json!({"text": "y", "number": 3}));
    let expected = "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.text\nconflicts with \"a\" using v1:\n- .spec.number";
    assert_eq!(message, expected);
    state.spec(json!({"text": "x", "number": 2}));
}

#[test]
fn an_apply_by_force_takes_what_it_changes() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x", "number": 1})).force("b", json!({"text": "y"}));
    state.spec(json!({"text": "y", "number": 1})).owners(&["a applied number", "b applied text"]);
    // With the rest of it, an owner goes.
    state.force("b", json!({"text": "y", "number": 2})).owners(&["b applied number text"]);
}

#[test]
fn what_is_no_longer_applied_goes() {
    State::default()
        .apply("a", json!({"text": "x", "number": 1, "names": ["p", "q"], "items": [{"name": "i"}, {"name": "j"}]}))
        .apply("a", json!({"number": 1, "names": ["q"], "items": [{"name": "j"}]}))
        .spec(json!({"number": 1, "names": ["q"], "items": [{"name": "j"}]}))
        .owners(&[r#"a applied number items[name="j"] items[name="j"].name names[="q"]"#]);
}

#[test]
fn what_another_owns_stays() {
    State::default()
        .apply("a", json!({"text": "x", "number": 1}))
        .apply("b", json!({"text": "x"}))
        .apply("a", json!({"number": 1}))
        .spec(json!({"text": "x", "number": 1}))
        .owners(&["a applied number", "b applied text"]);
    // Be it one that updates.
    State::default()
        .apply("a", json!({"pair": {"a": 1}}))
        .update("b", json!({"pair": {"a": 1, "b": 2}}))
        .apply("a", json!({}))
        .spec(json!({"pair": {"b": 2}}));
}

#[test]
fn an_item_goes_with_its_last_owner_whoever_owns_what_is_in_it() {
    State::default()
        .apply("a", json!({"text": "x", "items": [{"name": "i", "value": 1}]}))
        .update("b", json!({"text": "x", "items": [{"name": "i", "value": 1, "texts": {"k": "v"}}]}))
        .apply("a", json!({"text": "x"}))
        .spec(json!({"text": "x", "items": null}))
        .owners(&["a applied text"]);
}

#[test]
fn an_item_without_its_applier_loses_what_only_that_one_owned() {
    State::default()
        .apply("a", json!({"items": [{"name": "i", "value": 1}]}))
        .apply("b", json!({"items": [{"name": "i", "texts": {"k": "v"}}]}))
        .spec(json!({"items": [{"name": "i", "value": 1, "texts": {"k": "v"}}]}))
        .apply("a", json!({"items": []}))
        .spec(json!({"items": [{"name": "i", "texts": {"k": "v"}}]}));
}

#[test]
fn what_nobody_owns_within_a_field_goes_with_it_and_beside_it_stays() {
    let mut state = State::default();
    state.apply("a", json!({"items": [{"name": "i"}], "pair": {"a": 1}}));
    // As defaults come in: nobody owns them.
    state.object =
        Some(json!({"apiVersion": "v1", "spec": {"items": [{"name": "i", "value": 7}], "pair": {"a": 1, "b": 7}}}));
    state.apply("a", json!({"pair": {"a": 1}})).spec(json!({"pair": {"a": 1, "b": 7}}));
}

#[test]
fn what_never_was_applied_is_not_removed() {
    State::default()
        .update("b", json!({"text": "x", "number": 1}))
        .apply("a", json!({"number": 1}))
        .apply("a", json!({}))
        .spec(json!({"text": "x", "number": 1}))
        .owners(&["a applied .spec", "b wrote number text"]);
}

#[test]
fn an_apply_of_the_same_changes_nothing() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x"})).update("b", json!({"text": "x", "number": 1}));
    let before = (state.object.clone(), state.managers.to_json());
    state.apply("a", json!({"text": "x"}));
    assert_eq!((state.object.clone(), state.managers.to_json()), before);
    // Who only joins changed nothing, and so has no time.
    state.apply("c", json!({"number": 1}));
    assert_eq!((state.ticks_of("a").as_deref(), state.ticks_of("c")), (Some("00:01"), None));
    state.apply("a", json!({"text": "x", "flag": true}));
    assert_eq!(state.ticks_of("a").as_deref(), Some("00:05"));
}

#[test]
fn what_is_taken_as_a_whole_has_one_value() {
    let mut state = State::default();
    state.apply("a", json!({"wholeList": ["p"], "wholeMap": {"p": "1"}, "wholeStruct": {"a": 1}}));
    state.owners(&["a applied wholeList wholeMap wholeStruct"]);
    assert_eq!(
        state.refused("b", json!({"wholeList": ["p", "q"], "wholeMap": {"q": "2"}, "wholeStruct": {"b": 2}})),
        "Apply failed with 3 conflicts: conflicts with \"a\":\n- .spec.wholeList\n- .spec.wholeMap\n- .spec.wholeStruct"
    );
    state.force("b", json!({"wholeMap": {"q": "2"}})).spec(json!({
        "wholeList": ["p"], "wholeMap": {"q": "2"}, "wholeStruct": {"a": 1},
    }));
}

#[test]
fn keys_that_are_absent_have_their_defaults() {
    let mut state = State::default();
    state.apply("a", json!({"ports": [{"port": 80, "name": "http"}]}));
    state.owners(&[r#"a applied ports[port=80,protocol="TCP"] ports[port=80,protocol="TCP"].name ports[port=80,protocol="TCP"].port"#]);
    // As defaulting fills it in.
    state.object =
        Some(json!({"apiVersion": "v1", "spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "http"}]}}));
    state.apply(
        "b",
        json!({"ports": [{"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP", "name": "http"}]}),
    );
    state.spec(json!({"ports": [{"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP", "name": "http"}]}));
    state.apply("a", json!({"ports": []})).apply("b", json!({"ports": []})).spec(json!(null));
}

#[test]
fn null_is_a_value_of_its_own_and_removes_nothing_below_it() {
    State::default()
        .apply("a", json!({"text": null, "items": null, "map": {}}))
        .spec(json!({"text": null, "items": null, "map": {}}))
        .owners(&["a applied items map text"]);
    let mut state = State::default();
    state.apply("a", json!({"text": "x", "map": {"k": "v"}}));
    assert!(state.refused("b", json!({"text": null})).contains(".spec.text"));
    state.apply("b", json!({"map": null})).spec(json!({"text": "x", "map": {"k": "v"}}));
}

#[test]
fn what_has_no_type_is_merged_as_far_as_its_maps_go() {
    let mut state = State::default();
    state.apply("a", json!({"any": {"m": {"p": 1}, "l": [1], "s": "x"}}));
    state.owners(&["a applied any.l any.m any.s any.m.p"]);
    state.apply("b", json!({"any": {"m": {"q": 2}}})).spec(json!({"any": {"m": {"p": 1, "q": 2}, "l": [1], "s": "x"}}));
    assert!(state.refused("b", json!({"any": {"l": [2]}})).contains(".spec.any.l"));
    // A value of another kind is another value.
    assert!(state.refused("b", json!({"any": {"s": {"now": "a map"}}})).contains(".spec.any.s"));
    state.force("b", json!({"any": {"s": {"now": "a map"}}}));
    state.spec(json!({"any": {"m": {"p": 1}, "l": [1], "s": {"now": "a map"}}}));
}

#[test]
fn what_stands_twice_in_the_object_is_owned_as_one() {
    let mut state = State::default();
    state.update("b", json!({"names": ["n", "n"], "items": [{"name": "i", "value": 1}, {"name": "i", "value": 2}]}));
    state.owners(&[r#"b wrote items names items[name="i"] names[="n"]"#]);
    state.force("a", json!({"items": [{"name": "i", "value": 3}]}));
    state.spec(json!({"names": ["n", "n"], "items": [{"name": "i", "value": 3}]}));
}

#[test]
fn what_nobody_can_own_is_not_noted() {
    let mut state = State::default();
    let config = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "uid": "u", "labels": {"l": "1"}}});
    state.apply_object("v1", "a", config, false).unwrap();
    state.owners(&["a applied .metadata.labels.l"]);
}

#[test]
fn what_a_request_cannot_change_it_does_not_own() {
    let mut state = State { filter: apply::Filter::without(&[&["status"]]), ..State::default() };
    state.apply_object("v1", "a", json!({"spec": {"text": "x"}, "status": {"phase": "p"}}), false).unwrap();
    state.owners(&["a applied text"]);
    state.filter = apply::Filter::only(&[&["spec", "items", "*", "value"], &["spec", "items", "*", "texts"]]);
    state.subresource = "resize";
    let config = json!({"spec": {"text": "y", "items": [{"name": "i", "value": 1}]}});
    state.apply_object("v1", "a", config, true).unwrap();
    state.owners(&["a applied text", r#"a/resize applied items[name="i"] items[name="i"].value"#]);
}
