//! A CustomResourceDefinition with all schema features, and an object of it.

use serde_json::{Value, json};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Returns a definition with this plural name.
pub(crate) fn definition(plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.fuzz.example.com")},
        "spec": {
            "group": "fuzz.example.com", "scope": "Namespaced", "preserveUnknownFields": false,
            "names": {"plural": plural, "singular": plural, "kind": format!("K{plural}"), "shortNames": [format!("x{plural}")], "categories": ["all"]},
            "conversion": {"strategy": "None"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "deprecated": true, "deprecationWarning": "old",
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {"spec": {
                    "type": "object",
                    "x-kubernetes-validations": [{"rule": "!has(self.n) || self.n < 10", "message": "m", "reason": "FieldValueInvalid", "fieldPath": ".n"}],
                    "properties": properties(),
                }}}},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.s"}},
                "additionalPrinterColumns": [{"name": "N", "type": "integer", "format": "int32", "description": "d", "priority": 1, "jsonPath": ".spec.n"}],
                "selectableFields": [{"jsonPath": ".spec.p"}],
            }],
        },
    })
}

/// Returns the properties of `spec`.
fn properties() -> Value {
    json!({
        "n": {"type": "integer", "minimum": 0, "maximum": 9.5, "multipleOf": 1, "default": 1},
        "t": {"type": "string", "format": "date-time", "nullable": true},
        "p": {"type": "string", "pattern": "^a", "maxLength": 5, "enum": ["a", "ab"]},
        "i": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "l": {"type": "array", "maxItems": 3, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "number"}}}},
        "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}, "x-kubernetes-map-type": "atomic"},
        "e": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "o": {"type": "object", "properties": {"a": {"type": "string"}}, "oneOf": [{"required": ["a"]}, {"not": {"required": ["a"]}}]},
    })
}

/// Returns a valid widget.
pub(crate) fn object() -> Value {
    json!({
        "apiVersion": "fuzz.example.com/v1", "kind": "Kwidgets",
        "metadata": {"name": "w", "labels": {"a": "b"}},
        "spec": {
            "n": 3, "t": "2026-01-01T00:00:00Z", "p": "ab", "i": "50%", "l": [{"k": "a", "v": 1.5}], "s": ["x", "y"], "m": {"a": 1},
            "e": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}, "o": {"a": "b"},
        },
        "status": {"n": 1},
    })
}
