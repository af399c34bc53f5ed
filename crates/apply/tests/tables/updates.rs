//! Who owns what after writes that are no applies.

use crate::sample::State;
use serde_json::json;

#[test]
fn who_creates_owns_everything() {
    State::default()
        .update("u", json!({"text": "x", "names": ["n"], "pair": {"a": 1}, "items": [{"name": "i", "texts": {}}]}))
        .owners(&[r#"u wrote items names pair text items[name="i"] items[name="i"].implied items[name="i"].name items[name="i"].texts names[="n"] pair.a"#]);
}

#[test]
fn what_changed_belongs_to_who_changed_it() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x", "number": 1, "map": {"k": "v"}}));
    state.update("u", json!({"text": "y", "number": 1, "map": {"k": "v", "l": "w"}}));
    state.owners(&["a applied number map.k", "u wrote text map.l"]);
    state.update("u", json!({"text": "y", "number": 2}));
    state.owners(&["u wrote number text"]);
    // What did not change says nothing of who wrote it.
    state.update("w", json!({"text": "y", "number": 2})).owners(&["u wrote number text"]);
    assert_eq!(state.ticks_of("u").as_deref(), Some("00:03"));
}

#[test]
fn what_is_removed_has_no_owner() {
    let mut state = State::default();
    state.apply("a", json!({"text": "x", "items": [{"name": "i", "value": 1}]})).update("u", json!({"text": "x"}));
    state.owners(&["a applied text"]);
    state.update("u", json!({})).owners(&[]);
}

#[test]
fn a_struct_that_is_always_there_has_no_owner() {
    let mut state = State::default();
    state.update("u", json!({"implied": {"a": 1}, "pair": {"a": 1}})).owners(&["u wrote pair implied.a pair.a"]);
    State::default().update("u", json!({})).owners(&[]);
    // Where the one around it is new, it is new, too.
    let mut state = State::default();
    state.update("u", json!({"text": "x", "items": [{"name": "i"}]}));
    state.owners(&[r#"u wrote items text items[name="i"] items[name="i"].implied items[name="i"].name"#]);
}

#[test]
fn an_object_that_nobody_manages_stays_so_until_it_is_applied() {
    let object = json!({"apiVersion": "v1", "spec": {"text": "x"}});
    let mut state = State { object: Some(object), ..State::default() };
    state.update("u", json!({"text": "y"})).owners(&[]);
    let message = state.refused("a", json!({"text": "z"}));
    assert_eq!(message, r#"Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .spec.text"#);
    state.apply("a", json!({"text": "y", "number": 1}));
    state.owners(&["a applied number text", "before-first-apply wrote text"]);
}

#[test]
fn each_subresource_has_its_own_entry() {
    let mut state = State::default();
    state.update("u", json!({"text": "x"}));
    state.subresource = "status";
    state.update_object("v1", "u", json!({"apiVersion": "v1", "spec": {"text": "x"}, "status": {"phase": "p"}}));
    state.owners(&["u wrote text", "u/status wrote .status.phase"]);
}

#[test]
fn no_more_than_ten_entries_of_updates_are_kept() {
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
    state.owners(&expected.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(state.ticks_of("ancient-changes").as_deref(), Some("00:04"));
}
