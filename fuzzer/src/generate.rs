//! Generates valid and nearly valid values of a schema.

use crate::{rng::SeededRng, values};
use serde_json::{Map, Value, json};

/// Depth below which only required fields are generated.
const MAX_OPTIONAL_DEPTH: usize = 7;
/// Maximum depth of a value, despite required fields.
const MAX_DEPTH: usize = 20;

/// Generates values for the schemas of a server.
pub(crate) struct Generator<'a> {
    pub(crate) schemas: &'a Map<String, Value>,
}

impl Generator<'_> {
    /// Returns a value for a field of this name.
    pub(crate) fn value(&self, rng: &mut SeededRng, schema: &Value, field: &str, depth: usize) -> Value {
        if depth > MAX_DEPTH {
            return Value::Null;
        }
        let parts =
            schema["allOf"].as_array().or_else(|| schema["oneOf"].as_array()).or_else(|| schema["anyOf"].as_array());
        if let Some(reference) = schema["$ref"].as_str() {
            return self.named(rng, reference, field, depth);
        }
        if let Some(known) = schema["enum"].as_array().filter(|known| !known.is_empty()) {
            return rng.pick(known);
        }
        if schema["x-kubernetes-int-or-string"] == true || schema["format"] == "int-or-string" {
            return number_or_word(rng);
        }
        if let Some(part) = parts.and_then(|parts| parts.get(rng.below(parts.len()))) {
            return self.value(rng, part, field, depth + 1);
        }
        match schema["type"].as_str() {
            Some("string") => json!(formatted(rng, schema["format"].as_str().unwrap_or_default(), field)),
            Some("integer") => json!(values::number(rng)),
            Some("number") => json!(rng.below(1000) as f64 / 8.0),
            Some("boolean") => json!(rng.chance(50)),
            Some("array") => {
                let few = if depth > MAX_OPTIONAL_DEPTH { 0 } else { rng.below(3) };
                (0..few).map(|_| self.value(rng, &schema["items"], field, depth + 1)).collect()
            }
            _ => self.object(rng, schema, depth),
        }
    }

    fn named(&self, rng: &mut SeededRng, reference: &str, field: &str, depth: usize) -> Value {
        let name = reference.rsplit('/').next().unwrap_or_default();
        match name.rsplit('.').next().unwrap_or_default() {
            "Quantity" => json!(values::amount(rng)),
            "IntOrString" => number_or_word(rng),
            "Time" | "MicroTime" => json!(values::time(rng)),
            "ObjectMeta" => metadata(rng),
            "RawExtension" | "JSON" | "FieldsV1" => json!({"f:a": {"f:b": {}}}),
            _ => self.schemas.get(name).map_or(Value::Null, |schema| self.value(rng, schema, field, depth + 1)),
        }
    }

    fn object(&self, rng: &mut SeededRng, schema: &Value, depth: usize) -> Value {
        let mut object = Map::new();
        let required = schema["required"].as_array();
        // The probability of optional fields decreases with depth.
        let optional = if depth > MAX_OPTIONAL_DEPTH { 0 } else { 40 / (depth + 1) + 5 };
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            if required.is_some_and(|all| all.iter().any(|r| r == name)) || rng.chance(optional) {
                object.insert(name.clone(), self.value(rng, schema, name, depth + 1));
            }
        }
        if schema["additionalProperties"].is_object() {
            for _ in 0..rng.below(3) {
                let key = values::word(rng, "key");
                object.insert(key, self.value(rng, &schema["additionalProperties"], "value", depth + 1));
            }
        }
        Value::Object(object)
    }
}

fn metadata(rng: &mut SeededRng) -> Value {
    let mut metadata = json!({});
    let odd = [
        ("labels", json!({"a": values::word(rng, "")})),
        ("annotations", json!({"a": values::word(rng, "")})),
        ("finalizers", json!(["example.com/hold"])),
        ("generateName", json!("fuzz-")),
        (
            "ownerReferences",
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "fuzz-0", "uid": values::word(rng, "uid")}]),
        ),
        ("resourceVersion", json!(values::number(rng).to_string())),
        ("uid", json!(values::word(rng, "uid"))),
        ("deletionTimestamp", json!(values::time(rng))),
        ("creationTimestamp", json!(values::time(rng))),
        ("generation", json!(values::number(rng))),
        (
            "managedFields",
            json!([{"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}}]),
        ),
    ];
    for (field, value) in odd {
        if rng.chance(if field == "labels" { 40 } else { 5 }) {
            metadata[field] = value;
        }
    }
    metadata
}

fn number_or_word(rng: &mut SeededRng) -> Value {
    if rng.chance(60) { json!(values::number(rng)) } else { json!(values::word(rng, "port")) }
}

fn formatted(rng: &mut SeededRng, format: &str, field: &str) -> String {
    match format {
        "date-time" => values::time(rng),
        "byte" => rng.pick(&["", "YQ==", "YWJjZA==", "a", "!", "YQ==\n"]).to_owned(),
        "quantity" => values::amount(rng),
        _ => values::word(rng, field),
    }
}

#[cfg(test)]
mod tests {
    use super::Generator;
    use crate::rng::SeededRng;
    use serde_json::{Map, Value, json};

    #[test]
    fn value_has_required_fields_and_no_unknown_ones() {
        let point = json!({"type": "object", "required": ["x"], "properties": {
            "x": {"type": "integer"}, "next": {"$ref": "#/components/schemas/Point"}}});
        let schemas: Map<String, Value> = [("Point".to_owned(), point)].into_iter().collect();
        let generator = Generator { schemas: &schemas };
        let mut rng = SeededRng::new(1);
        let mut nested = 0;
        for _ in 0..200 {
            let value = generator.value(&mut rng, &json!({"$ref": "#/components/schemas/Point"}), "", 0);
            assert!(value["x"].is_i64(), "{value}");
            assert!(value.as_object().unwrap().keys().all(|k| ["x", "next"].contains(&k.as_str())));
            nested += usize::from(value["next"]["next"].is_object());
        }
        assert!(nested > 5, "{nested}");
    }
}
