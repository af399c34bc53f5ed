//! Values that a schema allows, or nearly so.

use crate::{dice::Dice, words};
use serde_json::{Map, Value, json};

/// Deeper than this only what is required is filled in.
const DEEP: usize = 7;
/// No value goes deeper, whatever is required.
const DEEPEST: usize = 20;

/// Makes values for the schemas of one server.
pub(crate) struct Generator<'a> {
    pub(crate) schemas: &'a Map<String, Value>,
}

impl Generator<'_> {
    /// A value for a field of this name.
    pub(crate) fn value(&self, dice: &mut Dice, schema: &Value, field: &str, depth: usize) -> Value {
        if depth > DEEPEST {
            return Value::Null;
        }
        let parts =
            schema["allOf"].as_array().or_else(|| schema["oneOf"].as_array()).or_else(|| schema["anyOf"].as_array());
        if let Some(reference) = schema["$ref"].as_str() {
            return self.named(dice, reference, field, depth);
        }
        if let Some(known) = schema["enum"].as_array().filter(|known| !known.is_empty()) {
            return dice.pick(known);
        }
        if schema["x-kubernetes-int-or-string"] == true || schema["format"] == "int-or-string" {
            return number_or_word(dice);
        }
        if let Some(part) = parts.and_then(|parts| parts.get(dice.below(parts.len()))) {
            return self.value(dice, part, field, depth + 1);
        }
        match schema["type"].as_str() {
            Some("string") => json!(formatted(dice, schema["format"].as_str().unwrap_or_default(), field)),
            Some("integer") => json!(words::number(dice)),
            Some("number") => json!(dice.below(1000) as f64 / 8.0),
            Some("boolean") => json!(dice.chance(50)),
            Some("array") => {
                let few = if depth > DEEP { 0 } else { dice.below(3) };
                (0..few).map(|_| self.value(dice, &schema["items"], field, depth + 1)).collect()
            }
            _ => self.object(dice, schema, depth),
        }
    }

    fn named(&self, dice: &mut Dice, reference: &str, field: &str, depth: usize) -> Value {
        let name = reference.rsplit('/').next().unwrap_or_default();
        match name.rsplit('.').next().unwrap_or_default() {
            "Quantity" => json!(words::amount(dice)),
            "IntOrString" => number_or_word(dice),
            "Time" | "MicroTime" => json!(words::time(dice)),
            "ObjectMeta" => metadata(dice),
            "RawExtension" | "JSON" | "FieldsV1" => json!({"f:a": {"f:b": {}}}),
            _ => self.schemas.get(name).map_or(Value::Null, |schema| self.value(dice, schema, field, depth + 1)),
        }
    }

    fn object(&self, dice: &mut Dice, schema: &Value, depth: usize) -> Value {
        let mut object = Map::new();
        let required = schema["required"].as_array();
        // Less and less of what need not be there.
        let optional = if depth > DEEP { 0 } else { 40 / (depth + 1) + 5 };
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            if required.is_some_and(|all| all.iter().any(|r| r == name)) || dice.chance(optional) {
                object.insert(name.clone(), self.value(dice, schema, name, depth + 1));
            }
        }
        if schema["additionalProperties"].is_object() {
            for _ in 0..dice.below(3) {
                let key = words::word(dice, "key");
                object.insert(key, self.value(dice, &schema["additionalProperties"], "value", depth + 1));
            }
        }
        Value::Object(object)
    }
}

fn metadata(dice: &mut Dice) -> Value {
    let mut metadata = json!({});
    let odd = [
        ("labels", json!({"a": words::word(dice, "")})),
        ("annotations", json!({"a": words::word(dice, "")})),
        ("finalizers", json!(["example.com/hold"])),
        ("generateName", json!("fuzz-")),
        (
            "ownerReferences",
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "fuzz-0", "uid": words::word(dice, "uid")}]),
        ),
        ("resourceVersion", json!(words::number(dice).to_string())),
        ("uid", json!(words::word(dice, "uid"))),
        ("deletionTimestamp", json!(words::time(dice))),
        ("creationTimestamp", json!(words::time(dice))),
        ("generation", json!(words::number(dice))),
        (
            "managedFields",
            json!([{"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}}]),
        ),
    ];
    for (field, value) in odd {
        if dice.chance(if field == "labels" { 40 } else { 5 }) {
            metadata[field] = value;
        }
    }
    metadata
}

fn number_or_word(dice: &mut Dice) -> Value {
    if dice.chance(60) { json!(words::number(dice)) } else { json!(words::word(dice, "port")) }
}

fn formatted(dice: &mut Dice, format: &str, field: &str) -> String {
    match format {
        "date-time" => words::time(dice),
        "byte" => dice.pick(&["", "YQ==", "YWJjZA==", "a", "!", "YQ==\n"]).to_owned(),
        "quantity" => words::amount(dice),
        _ => words::word(dice, field),
    }
}

#[cfg(test)]
mod tests {
    use super::Generator;
    use crate::dice::Dice;
    use serde_json::{Map, Value, json};

    #[test]
    fn a_value_has_what_its_schema_requires_and_nothing_that_it_has_not() {
        let point = json!({"type": "object", "required": ["x"], "properties": {
            "x": {"type": "integer"}, "next": {"$ref": "#/components/schemas/Point"}}});
        let schemas: Map<String, Value> = [("Point".to_owned(), point)].into_iter().collect();
        let generator = Generator { schemas: &schemas };
        let mut dice = Dice::new(1);
        let mut nested = 0;
        for _ in 0..200 {
            let value = generator.value(&mut dice, &json!({"$ref": "#/components/schemas/Point"}), "", 0);
            assert!(value["x"].is_i64(), "{value}");
            assert!(value.as_object().unwrap().keys().all(|k| ["x", "next"].contains(&k.as_str())));
            nested += usize::from(value["next"]["next"].is_object());
        }
        assert!(nested > 5, "{nested}");
    }
}
