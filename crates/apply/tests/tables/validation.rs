//! Errors of configurations that do not match the schema.

use crate::fixture::validation_errors;
use serde_json::json;

#[test]
fn values_must_match_their_types() {
    for (spec, expected) in [
        (json!({"text": "x", "number": 1.5, "flag": true, "names": ["a"], "any": [{}, "x"]}), ""),
        (json!({"text": null, "items": null, "pair": null}), ""),
        (json!({"unknown": 1}), ".spec.unknown: field not declared in schema"),
        (json!({"text": 1}), ".spec.text: expected string, got 1"),
        (json!({"number": "1"}), ".spec.number: expected numeric (int or float), got string"),
        (json!({"flag": "true"}), r#".spec.flag: expected boolean, got "true""#),
        (json!({"pair": []}), ".spec.pair: expected map, got []"),
        (json!({"names": {}}), ".spec.names: expected list, got {}"),
        (json!({"names": ["a", "a"]}), r#".spec.names: duplicate entries for key [="a"]"#),
        (json!({"items": [{"name": "i"}, {"name": "i"}]}), r#".spec.items: duplicate entries for key [name="i"]"#),
        (json!({"wholeList": ["a", "a", 1]}), ".spec.wholeList[2]: expected string, got 1"),
        (
            json!({"names": [null]}),
            ".spec.names: element 0: associative list without keys has an element that's an explicit null",
        ),
        (
            json!({"names": [{}]}),
            ".spec.names: element 0: associative list without keys has an element that's a map type",
        ),
        (json!({"names": [[]]}), ".spec.names: element 0: not supported: associative list with lists as elements"),
        (json!({"items": [null]}), ".spec.items: element 0: associative list with keys may not have a null element"),
        (json!({"items": ["i"]}), ".spec.items: element 0: associative list with keys may not have non-map elements"),
        (
            json!({"items": [{"value": 1}]}),
            r#".spec.items: element 0: associative list with keys has an element that omits all key fields ["name"] (and doesn't have default values for any key fields)"#,
        ),
        (
            json!({"items": [{"name": "i", "value": "x"}]}),
            r#".spec.items[name="i"].value: expected numeric (int or float), got string"#,
        ),
        (
            json!({"text": 1, "flag": 1}),
            "errors:\n  .spec.flag: expected boolean, got 1\n  .spec.text: expected string, got 1",
        ),
    ] {
        assert_eq!(validation_errors(spec.clone()), expected, "{spec}");
    }
}
