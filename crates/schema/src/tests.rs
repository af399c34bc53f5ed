//! Table tests of pruning, defaulting, validation and JSONPath.

use crate::{JsonPath, Schema, validate_structural};
use api::field::{FieldErrors, FieldPath};
use proptest::prelude::*;
use serde_json::{Value, json};

fn root(properties: &Value) -> Schema {
    Schema::parse(&json!({"type": "object", "properties": properties}))
}

#[track_caller]
fn check_pruned(properties: Value, given: Value, kept: Value, unknown: &[&str]) {
    let mut value = given;
    assert_eq!(root(&properties).prune(&mut value), unknown);
    assert_eq!(value, kept);
}

#[test]
fn undeclared_fields_are_pruned() {
    let text = json!({"type": "string"});
    let given = json!({"kind": "A", "metadata": {"x": 1}, "a": "1", "b": {"c": 1}});
    check_pruned(json!({"a": text}), given, json!({"kind": "A", "metadata": {"x": 1}, "a": "1"}), &["b"]);
    let list = json!({"l": {"type": "array", "items": {"type": "object", "properties": {"a": text}}}});
    check_pruned(
        list,
        json!({"l": [{"a": "1", "b": 1}, {"c": 1}]}),
        json!({"l": [{"a": "1"}, {}]}),
        &["l[0].b", "l[1].c"],
    );
    let map = json!({"m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": text}}}});
    check_pruned(map, json!({"m": {"x": {"a": "1", "b": 1}}}), json!({"m": {"x": {"a": "1"}}}), &["m.x.b"]);
    let any = json!({"p": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"k": {"type": "object", "properties": {"a": text}}}}});
    let given = json!({"p": {"u": {"v": [1]}, "k": {"a": "1", "b": 1}}});
    check_pruned(any, given, json!({"p": {"u": {"v": [1]}, "k": {"a": "1"}}}), &["p.k.b"]);
    let embedded = json!({"e": {"type": "object", "x-kubernetes-embedded-resource": true,
        "properties": {"spec": {"type": "object"}}}});
    let given = json!({"e": {"apiVersion": "v1", "kind": "A", "metadata": {"name": "n"}, "spec": {}, "more": 1}});
    let kept = json!({"e": {"apiVersion": "v1", "kind": "A", "metadata": {"name": "n"}, "spec": {}}});
    check_pruned(embedded, given, kept, &["e.more"]);
}

#[track_caller]
fn check_defaulted(properties: Value, given: Value, filled: Value) {
    let mut value = given;
    root(&properties).apply_defaults(&mut value);
    assert_eq!(value, filled);
}

#[test]
fn missing_fields_get_defaults_and_nulls_are_pruned() {
    let a = json!({"a": {"type": "string", "default": "x"}});
    check_defaulted(a.clone(), json!({}), json!({"a": "x"}));
    check_defaulted(a.clone(), json!({"a": null}), json!({"a": "x"}));
    check_defaulted(a, json!({"a": "y"}), json!({"a": "y"}));
    let nullable = json!({"a": {"type": "string", "nullable": true, "default": "x"}, "b": {"type": "string"}});
    check_defaulted(nullable, json!({"a": null, "b": null}), json!({"a": null}));
    let inner = json!({"o": {"type": "object", "default": {}, "properties": {"a": {"type": "integer", "default": 1}}}});
    check_defaulted(inner.clone(), json!({}), json!({"o": {"a": 1}}));
    let list = json!({"l": {"type": "array", "items": inner["o"].clone()}});
    check_defaulted(list, json!({"l": [{}, {"a": 2}, null]}), json!({"l": [{"a": 1}, {"a": 2}, {"a": 1}]}));
}

fn validate_all(schema: &Schema, new: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    schema.validate_values(new, old, errors);
    schema.validate_list_sets_and_maps(new, old, errors);
    schema.validate_rules(new, old, errors);
}

#[track_caller]
fn check_errors(property: Value, value: Value, expected: &[&str]) {
    let mut errors = FieldErrors::default();
    validate_all(&root(&json!({"f": property})), &json!({"f": value}), None, &mut errors);
    let got: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    assert_eq!(got, expected, "{property} {value}");
}

#[test]
fn invalid_values_have_upstreams_message() {
    check_errors(json!({"type": "integer"}), json!(1.0), &[]);
    check_errors(json!({"type": "number"}), json!(1), &[]);
    check_errors(
        json!({"type": "string"}),
        Value::Null,
        &["f: Invalid value: \"null\": f in body must be of type string: \"null\""],
    );
    check_errors(json!({"type": "string", "nullable": true}), Value::Null, &[]);
    check_errors(json!({"x-kubernetes-int-or-string": true}), json!("50%"), &[]);
    check_errors(
        json!({"type": "number", "maximum": 1.5, "exclusiveMaximum": true}),
        json!(1.5),
        &["f: Invalid value: 1.5: f in body should be less than 1.5"],
    );
    check_errors(
        json!({"type": "integer", "multipleOf": 3}),
        json!(4),
        &["f: Invalid value: 4: f in body should be a multiple of 3"],
    );
    check_errors(
        json!({"type": "string", "minLength": 2}),
        json!("ä"),
        &["f: Invalid value: \"ä\": f in body should be at least 2 chars long"],
    );
    check_errors(
        json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
        json!([]),
        &["f: Invalid value: 0: f in body should have at least 1 items"],
    );
    check_errors(
        json!({"type": "object", "minProperties": 1}),
        json!({}),
        &["f: Invalid value: 0: f in body should have at least 1 properties"],
    );
    check_errors(json!({"type": "object", "required": ["a"]}), json!({}), &["f.a: Required value"]);
    check_errors(
        json!({"type": "object", "additionalProperties": {"type": "integer"}}),
        json!({"k": "v"}),
        &["f.k: Invalid value: \"string\": f.k in body must be of type integer: \"string\""],
    );
    check_errors(
        json!({"type": "string", "anyOf": [{"pattern": "^a"}, {"pattern": "^b"}]}),
        json!("c"),
        &[
            "<nil>: Invalid value: \"\": \"f\" must validate at least one schema (anyOf)",
            "f: Invalid value: \"c\": f in body should match '^a'",
        ],
    );
    check_errors(
        json!({"type": "string", "not": {"enum": ["a"]}}),
        json!("a"),
        &["<nil>: Invalid value: \"\": \"f\" must not validate the schema (not)"],
    );
    check_errors(
        json!({"type": "string", "allOf": [{"minLength": 2}, {"maxLength": 3}]}),
        json!("a"),
        &[
            "f: Invalid value: \"a\": f in body should be at least 2 chars long",
            "<nil>: Invalid value: \"\": \"f\" must validate all the schemas (allOf)",
        ],
    );
    let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "string", "default": "d"}}}});
    check_errors(list, json!([{"k": "d"}, {}, {}]), &["f[1]: Duplicate value: {\"k\":\"d\"}"]);
}

#[test]
fn update_validates_only_changed_values() {
    let items = json!({"type": "object", "required": ["k"],
        "properties": {"k": {"type": "string"}, "n": {"type": "integer", "maximum": 1}}});
    let schema = root(&json!({
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": items},
        "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    }));
    let old = json!({"l": [{"k": "a", "n": 5}, {"k": "b", "n": 1}], "s": ["x", "x"]});
    let changed_errors = |new: Value| {
        let mut errors = FieldErrors::default();
        validate_all(&schema, &new, Some(&old), &mut errors);
        errors.0.iter().map(|e| e.field.clone()).collect::<Vec<_>>()
    };
    assert_eq!(changed_errors(json!({"l": [{"k": "b", "n": 0}, {"k": "a", "n": 5}], "s": ["x", "x"]})), [""; 0]);
    assert_eq!(changed_errors(json!({"l": [{"k": "a", "n": 6}], "s": ["x"]})), ["l[0].n"]);
}

#[test]
fn reordered_list_map_is_unchanged() {
    let text = json!({"type": "string"});
    let item =
        json!({"type": "object", "required": ["k"], "properties": {"k": text, "v": {"type": "array", "items": text}}});
    let list = |kind: &str| {
        let keys = if kind == "map" { json!(["k"]) } else { Value::Null };
        Schema::parse(
            &json!({"type": "array", "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": keys, "items": item}),
        )
    };
    let (a, b) = (json!({"k": "a", "v": ["1", "2"]}), json!({"k": "b"}));
    let (old, moved) = (json!([a, b]), json!([b, a]));
    for (kind, new, unchanged) in [
        ("map", &moved, true),
        ("set", &moved, false),
        ("atomic", &moved, false),
        ("set", &old, true),
        ("map", &json!([b]), false),
        ("map", &json!([b, {"k": "c"}]), false),
        ("map", &json!([b, {"k": "a", "v": ["2", "1"]}]), false),
        ("map", &json!({}), false),
    ] {
        assert_eq!(list(kind).unchanged(&old, new), unchanged, "{kind} {new}");
    }
    // The same applies to nested lists.
    let around = Schema::parse(&json!({"type": "object", "additionalProperties": {"type": "object",
        "x-kubernetes-preserve-unknown-fields": true, "properties": {"l": {"type": "array",
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item}}}}));
    let value = |list: &Value, other: u8| json!({"x": {"l": list, "other": [other]}});
    assert!(around.unchanged(&value(&old, 1), &value(&moved, 1)));
    assert!(!around.unchanged(&value(&old, 1), &value(&moved, 2)));
}

#[test]
fn duplicates_in_the_old_object_allow_duplicates() {
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let schema = root(&json!({"s": set, "t": set}));
    let duplicate_fields = |old: Value| {
        let mut errors = FieldErrors::default();
        schema.validate_list_sets_and_maps(&json!({"s": ["a", "a"], "t": ["b", "b"]}), Some(&old), &mut errors);
        errors.0.iter().map(|e| e.field.clone()).collect::<Vec<_>>()
    };
    assert_eq!(duplicate_fields(json!({"s": ["a"]})), ["s[1]", "t[1]"]);
    assert_eq!(duplicate_fields(json!({"s": ["x", "x"]})), [""; 0]);
}

#[track_caller]
fn check_structural_errors(schema: Value, expected: &[&str]) {
    let mut errors = FieldErrors::default();
    validate_structural(&schema, &FieldPath::new("s"), &mut errors);
    let got: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    assert_eq!(got, expected, "{schema}");
}

#[test]
fn structural_schema_specifies_the_type_of_every_field() {
    check_structural_errors(json!({"type": "object"}), &[]);
    check_structural_errors(json!({}), &["s.type: Required value: must not be empty at the root"]);
    check_structural_errors(
        json!({"type": "array"}),
        &["s.items: Required value: must be specified", "s.type: Invalid value: \"array\": must be object at the root"],
    );
    let with_property = |property: Value| json!({"type": "object", "properties": {"a": property}});
    check_structural_errors(
        with_property(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})),
        &[],
    );
    check_structural_errors(
        with_property(json!({"type": "string", "anyOf": [{"type": "string"}]})),
        &["s.properties[a].anyOf[0].type: Forbidden: must be empty to be structural"],
    );
    check_structural_errors(
        with_property(json!({"type": "object", "oneOf": [{"properties": {"b": {"minLength": 1}}}]})),
        &[
            "s.properties[a].properties[b]: Required value: because it is defined in s.properties[a].oneOf[0].properties[b]",
        ],
    );
    check_structural_errors(
        with_property(
            json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        ),
        &["s.properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"],
    );
    check_structural_errors(
        with_property(json!({"type": "string", "$ref": "#/x"})),
        &["s.properties[a].$ref: Forbidden: $ref is not supported"],
    );
    check_structural_errors(
        json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
        &[
            "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ],
    );
    check_structural_errors(
        with_property(json!({"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}},
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]})),
        &[
            "s.properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ],
    );
    check_structural_errors(
        with_property(json!({"type": "integer", "maximum": 1, "default": 2})),
        &[
            "s.properties[a].default: Invalid value: 2: s.properties[a].default in body should be less than or equal to 1",
        ],
    );
}

#[test]
fn json_path_finds_values() {
    let value = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Old", "n": 2}]},
        "metadata": {"annotations": {"a.b/c": "x", "a": {"b/c": "in"}}, "labels": {"serving.knative.dev/configuration": "hello"}}});
    for (path, expected) in [
        (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
        (".status.conditions[?(@.type=='Ready')].status", json!(["True"])),
        (".status.conditions[?(@.n>1)].type", json!(["Old"])),
        (".status.conditions[-1].type", json!(["Old"])),
        (".status.conditions[*].type", json!(["Ready", "Old"])),
        (".status.conditions[0:1].type", json!(["Ready"])),
        (".metadata.annotations.a\\.b/c", json!(["x"])),
        (".metadata.annotations['a\\.b/c']", json!(["x"])),
        (".metadata.labels['serving\\.knative\\.dev/configuration']", json!(["hello"])),
        // An unescaped dot ends a quoted name, too.
        (".metadata.annotations['a.b/c']", json!(["in"])),
        (".metadata.labels['serving.knative.dev/configuration']", json!([])),
        (".status['conditions'][0]['type']", json!(["Ready"])),
        (".status.conditions[0]['status','type']", json!(["True", "Ready"])),
        (".status.conditions[1,0].type", json!(["Old", "Ready"])),
        (".status.conditions[?(@.type!=\"a==b\")].type", json!(["Ready", "Old"])),
        (".status.conditions[?(@.n)].type", json!(["Old"])),
        (".status.conditions[:1].type", json!(["Ready"])),
        (".status.conditions[-1:].type", json!(["Old"])),
        // Slices out of bounds are empty.
        (".status.conditions[0:3].type", json!([])),
        (".status.conditions[2].type", json!([])),
        (".status.conditions[::0].type", json!([])),
        (".metadata.annotations[*]", json!([])),
        (".metadata.labels.*", json!(["hello"])),
        (".status.conditions[0] .type", json!(["Ready"])),
        ("..n", json!([2])),
        (".nothing.here", json!([])),
    ] {
        let found: Vec<Value> = JsonPath::parse(path).unwrap().find(&value).into_iter().cloned().collect();
        assert_eq!(json!(found), expected, "{path}");
    }
    for bad in ["spec.x", ".a[", ".a[x]", ".a[?(x)]", ".a[\"b\"]", ".a['b\"]", ".a]", ".a,b"] {
        assert!(JsonPath::parse(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn json_path_never_panics(text in "[.a*\\[\\]?()@=<>'\"\\\\0-9:-]{0,24}") {
        if let Ok(path) = JsonPath::parse(&format!(".{text}")) {
            let _ = path.find(&json!({"a": [{"a": 1}, "a"]}));
        }
    }
}
