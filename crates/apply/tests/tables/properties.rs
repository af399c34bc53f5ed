//! Property tests of apply and update.

use crate::fixture::State;
use apply::{ManagedFields, Set};
use proptest::{prelude::*, sample::subsequence};
use serde_json::{Map, Value, json};

/// Returns strategies for the fields of the test kind's spec.
fn fields() -> Vec<(&'static str, BoxedStrategy<Value>)> {
    let word = || prop::sample::select(vec!["x", "y", "z"]);
    let words = move || subsequence(vec!["x", "y", "z"], 0..=3).prop_shuffle().prop_map(|w| json!(w)).boxed();
    let texts = || prop::collection::btree_map(word(), word(), 0..3).prop_map(|m| json!(m)).boxed();
    let item = move |name: &'static str| {
        (0..3_i32, texts()).prop_map(move |(value, texts)| json!({"name": name, "value": value, "texts": texts}))
    };
    let items = (item("p"), item("q"), item("r"), subsequence(vec![0_usize, 1, 2], 0..=3).prop_shuffle());
    let items = items.prop_map(|(p, q, r, which)| {
        let all = [p, q, r];
        which.into_iter().map(|i| all[i].clone()).collect::<Value>()
    });
    vec![
        ("text", word().prop_map(|w| json!(w)).boxed()),
        ("number", (0..3_i32).prop_map(|n| json!(n)).boxed()),
        ("names", words()),
        ("items", items.boxed()),
        ("map", texts()),
        ("wholeList", words()),
        ("wholeMap", texts()),
        ("any", json_value().boxed()),
    ]
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|m| json!(m)),
        ]
    })
}

/// Returns a strategy for specs with a subset of the fields.
fn spec() -> impl Strategy<Value = Value> {
    let count = fields().len();
    let values: Vec<BoxedStrategy<Value>> = fields().into_iter().map(|(_, s)| s).collect();
    (values, prop::collection::vec(any::<bool>(), count)).prop_map(|(values, chosen)| {
        let names = fields();
        let pairs = names.iter().zip(values).zip(chosen).filter(|(_, chosen)| *chosen);
        Value::Object(pairs.map(|(((name, _), value), _)| ((*name).to_owned(), value)).collect::<Map<_, _>>())
    })
}

/// Returns a strategy for arbitrary JSON and objects that resemble the test kind.
fn object_like() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["text", "names", "items", "ports", "map", "pair", "wholeStruct", "any", "x"]);
    let spec = prop::collection::btree_map(name, json_value(), 0..4);
    prop_oneof![
        json_value(),
        (spec, json_value())
            .prop_map(|(spec, metadata)| json!({"apiVersion": "v1", "spec": spec, "metadata": metadata})),
    ]
}

proptest! {
    #[test]
    fn apply_is_idempotent(before in spec(), config in spec()) {
        let mut state = State::default();
        state.update("u", before).force("a", config.clone());
        let first = (state.object.clone(), state.managers.to_json());
        // Without managed fields, the next apply is the first one and assigns existing fields to `before-first-apply`.
        prop_assume!(first.1.is_some());
        state.apply("a", config);
        prop_assert_eq!((state.object, state.managers.to_json()), first);
    }

    #[test]
    fn managers_with_equal_configurations_never_conflict(before in spec(), config in spec()) {
        let mut state = State::default();
        state.update("u", before).force("a", config.clone()).force("b", config.clone());
        // Equal configurations never conflict.
        state.apply("a", config.clone()).apply("b", config);
    }

    #[test]
    fn managers_with_different_fields_never_conflict(left in spec(), right in spec(), again in spec()) {
        let without = |from: &Value, other: &Value| {
            let fields = from.as_object().unwrap().iter().filter(|(k, _)| other.get(*k).is_none());
            Value::Object(fields.map(|(k, v)| (k.clone(), v.clone())).collect())
        };
        let mut state = State::default();
        let again = without(&again, &left);
        state.apply("a", left.clone()).apply("b", without(&right, &left)).apply("b", again.clone()).apply("a", left.clone());
        let spec = state.object.clone().unwrap()["spec"].clone();
        for (key, value) in strip(&again).as_object().unwrap() {
            prop_assert_eq!(&strip(&spec[key]), value);
        }
        // A manager that applies nothing does not remove fields of the other.
        state.apply("b", json!({}));
        let expected = json!({"apiVersion": "v1", "spec": left});
        prop_assert_eq!(strip(&state.object.unwrap()), strip(&expected));
    }

    #[test]
    fn managed_fields_survive_a_json_round_trip(specs in prop::collection::vec(spec(), 1..4)) {
        let mut state = State::default();
        for (i, spec) in specs.into_iter().enumerate() {
            state.force(&format!("m{i}"), spec);
        }
        let json = state.managers.to_json().unwrap_or_default();
        let read = ManagedFields::from_json(&json).unwrap();
        prop_assert_eq!(read.to_json().unwrap_or_default(), json);
        for entry in state.managers.entries() {
            let text = serde_json::to_string(&entry.fields).unwrap();
            prop_assert_eq!(&Set::from_json(&serde_json::from_str(&text).unwrap()).unwrap(), &entry.fields);
        }
    }

    #[test]
    fn managed_fields_have_one_form_as_text_and_json(specs in prop::collection::vec(spec(), 0..4)) {
        let mut state = State::default();
        for (i, spec) in specs.into_iter().enumerate() {
            state.force(&format!("m{i}"), spec);
        }
        let text = serde_json::to_string(&state.managers).unwrap();
        let json = state.managers.to_json().unwrap_or_else(|| json!([]));
        prop_assert_eq!(&text, &json.to_string());
        let read = ManagedFields::from_text(&text).unwrap();
        prop_assert_eq!(&read, &ManagedFields::from_json(&json).unwrap());
        prop_assert!(read.equals_ignoring_times(&state.managers));
    }

    #[test]
    fn managed_fields_from_text_equal_those_from_json(managed in json_value()) {
        if let Some(read) = ManagedFields::from_text(&managed.to_string()) {
            prop_assert_eq!(read, ManagedFields::from_json(&managed).unwrap());
        }
    }

    #[test]
    fn apply_and_update_never_panic(live in object_like(), config in object_like(), managed in json_value()) {
        let mut state = State::default();
        let _ = ManagedFields::from_json(&managed).map(|m| m.to_json());
        let _ = Set::from_json(&managed).map(|s| s.to_json());
        state.update_object("v1", "u", live);
        for manager in ["a", "kubectl"] {
            let _ = state.apply_object("v1", manager, config.clone(), false);
            let _ = state.apply_object("v2", manager, config.clone(), true);
        }
        state.update_object("v1", "u", config);
    }

    #[test]
    fn path_element_parser_never_panics(text in "[fkvix.:{}\"0-9a-c,\\[\\]]{0,16}") {
        if let Ok(element) = apply::PathElement::from_text(&text) {
            prop_assert_eq!(apply::PathElement::from_text(&element.to_text()).unwrap(), element);
        }
    }
}

/// Removes empty maps and lists, which disappear with their last item.
fn strip(value: &Value) -> Value {
    let empty =
        |v: &Value| v.is_null() || v.as_object().is_some_and(Map::is_empty) || v.as_array().is_some_and(Vec::is_empty);
    match value {
        Value::Object(map) => {
            Value::Object(map.iter().map(|(k, v)| (k.clone(), strip(v))).filter(|(_, v)| !empty(v)).collect())
        }
        Value::Array(items) => items.iter().map(strip).collect(),
        other => other.clone(),
    }
}
