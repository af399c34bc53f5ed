//! Field sets and their serialization as `fieldsV1`.

use apply::{Path, PathElement, PathElementError, Set};
use serde_json::{Value, json};

fn set(fields: Value) -> Set {
    Set::from_json(&fields).unwrap()
}

#[test]
fn path_elements_are_serialized_as_upstream() {
    for (element, text, shown) in [
        (PathElement::field("a.b/c"), "f:a.b/c", ".a.b/c"),
        (
            PathElement::key([("port", json!(80)), ("host", json!("h"))]),
            r#"k:{"host":"h","port":80}"#,
            r#"[host="h",port=80]"#,
        ),
        (PathElement::Value(json!("a<b>&")), r#"v:"a\u003cb\u003e\u0026""#, r#"[="a<b>&"]"#),
        (PathElement::Value(json!(1)), "v:1", "[=1]"),
        (PathElement::Value(json!(true)), "v:true", "[=true]"),
        (PathElement::Index(3), "i:3", "[3]"),
    ] {
        assert_eq!((element.to_text().as_str(), element.to_string().as_str()), (text, shown), "{text}");
        assert_eq!(PathElement::from_text(text).unwrap(), element, "{text}");
    }
}

#[test]
fn invalid_element_is_refused_and_unknown_type_is_skipped() {
    for bad in ["", "f", "name", "k:1", "k:{", "v:", "v:x", "i:", "i:x", "i:1.5"] {
        assert!(Set::from_json(&json!({bad: {}})).is_err(), "{bad}");
    }
    assert_eq!(PathElement::from_text("x:1"), Err(PathElementError::UnknownType));
    assert_eq!(set(json!({"x:1": {}, "f:a": {}})), set(json!({"f:a": {}})));
    for bad in [json!([]), json!("f:a"), json!({"f:a": 1})] {
        assert!(Set::from_json(&bad).is_err(), "{bad}");
    }
}

#[test]
fn field_is_serialized_with_its_nested_fields() {
    let paths = [Path::of_fields(&["a"]), Path::of_fields(&["a", "b"]), Path::of_fields(&["c", "d"])];
    let set = Set::of(&paths);
    assert_eq!(set.to_json(), json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}}));
    assert!(set.has(&paths[0]) && set.has(&paths[2]) && !set.has(&Path::of_fields(&["c"])));
    assert_eq!(set.paths(), paths.to_vec());
}

#[test]
fn fields_v1_text_equals_its_json() {
    let text = r#"{"f:l":{".":{},"i:1":{},"k:{\"p\":80}":{".":{},"f:p":{}},"k:{\"p\":9}":{},"v:\"a\"":{}}}"#;
    let set = set(serde_json::from_str(text).unwrap());
    assert_eq!((serde_json::to_string(&set).unwrap().as_str(), set.to_json().to_string().as_str()), (text, text));
    assert_eq!(serde_json::from_str::<Set>(text).unwrap(), set);
}

#[test]
fn field_sets_are_united_and_subtracted() {
    let left = set(json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}, "f:e": {"f:g": {}}}));
    let right = set(json!({"f:a": {"f:b": {}}, "f:d": {".": {}, "f:h": {}}, "f:e": {}}));
    for (got, expected) in [
        (
            left.union(&right),
            json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {".": {}, "f:h": {}}, "f:e": {".": {}, "f:g": {}}}),
        ),
        (left.intersection(&right), json!({"f:a": {"f:b": {}}, "f:d": {}})),
        (left.difference(&right), json!({"f:a": {".": {}, "f:c": {}}, "f:e": {"f:g": {}}})),
        (left.recursive_difference(&right), json!({"f:a": {".": {}, "f:c": {}}})),
        (right.difference(&left), json!({"f:d": {"f:h": {}}, "f:e": {}})),
        (right.recursive_difference(&left), json!({"f:e": {}})),
    ] {
        assert_eq!(got.to_json(), expected);
    }
}
