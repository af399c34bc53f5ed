//! Field ownership after writes other than apply.

use crate::fixture::State;
use serde_json::json;

#[test]
fn creator_owns_all_fields() {
    State::default()
        .update("u", json!({"text": "x", "names": ["n"], "pair": {"a": 1}, "items": [{"name": "i", "texts": {}}]}))
        .expect_owners(&[r#"u wrote items names pair text items[name="i"] items[name="i"].implied items[name="i"].name items[name="i"].texts names[="n"] pair.a"#]);
}

#[test]
fn changed_field_is_owned_by_its_writer() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x", "number": 1, "map": {"k": "v"}}));
    state.update("u", json!({"text": "y", "number": 1, "map": {"k": "v", "l": "w"}}));
    state.expect_owners(&["a applied number map.k", "u wrote text map.l"]);
    state.update("u", json!({"text": "y", "number": 2}));
    state.expect_owners(&["u wrote number text"]);
    // Unchanged fields keep their owner.
    state.update("w", json!({"text": "y", "number": 2})).expect_owners(&["u wrote number text"]);
    assert_eq!(state.ticks_of("u").as_deref(), Some("00:03"));
}

#[test]
fn removed_field_has_no_owner() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x", "items": [{"name": "i", "value": 1}]})).update("u", json!({"text": "x"}));
    state.expect_owners(&["a applied text"]);
    state.update("u", json!({})).expect_owners(&[]);
}

#[test]
fn implied_struct_has_no_owner() {
    let mut state = State::default();
    state.update("u", json!({"implied": {"a": 1}, "pair": {"a": 1}})).expect_owners(&["u wrote pair implied.a pair.a"]);
    State::default().update("u", json!({})).expect_owners(&[]);
    // An implied field of a new list item is new, too.
    let mut state = State::default();
    state.update("u", json!({"text": "x", "items": [{"name": "i"}]}));
    state.expect_owners(&[r#"u wrote items text items[name="i"] items[name="i"].implied items[name="i"].name"#]);
}

#[test]
fn object_without_managed_fields_is_unmanaged_until_apply() {
    let object = json!({"apiVersion": "v1", "spec": {"text": "x"}});
    let mut state = State { object: Some(object), ..State::default() };
    state.update("u", json!({"text": "y"})).expect_owners(&[]);
    let message = state.apply_error("a", json!({"text": "z"}));
    assert_eq!(message, r#"Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .spec.text"#);
    state.apply("a", json!({"text": "y", "number": 1}));
    state.expect_owners(&["a applied number text", "before-first-apply wrote text"]);
}

#[test]
fn subresource_has_its_own_managed_fields_entry() {
    let mut state = State::default();
    state.update("u", json!({"text": "x"}));
    state.subresource = "status";
    state.update_object("v1", "u", json!({"apiVersion": "v1", "spec": {"text": "x"}, "status": {"phase": "p"}}));
    state.expect_owners(&["u wrote text", "u/status wrote .status.phase"]);
}

#[test]
fn update_entries_are_capped_at_ten() {
    let mut state = State::default();
    state.apply("applier", json!({"flag": true}));
    let mut map = json!({});
    for i in 0..12 {
        map[format!("k{i:02}")] = json!("v");
        state.update(&format!("u{i:02}"), json!({"flag": true, "map": map}));
    }
    let mut expected =
        vec!["ancient-changes wrote map map.k00 map.k01 map.k02".to_owned(), "applier applied flag".to_owned()];
    expected.extend((3..12).map(|i| format!("u{i:02} wrote map.k{i:02}")));
    state.expect_owners(&expected.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(state.ticks_of("ancient-changes").as_deref(), Some("00:04"));
}
