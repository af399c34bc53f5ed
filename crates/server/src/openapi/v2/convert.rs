//! A document of version 3 in the words of version 2, which knows less: no defaults, no `nullable`, no choice of schemas.

use serde_json::{Map, Value, json};

/// What version 3 says of a schema and version 2 cannot, or upstream leaves out there.
const UNKNOWN: [&str; 6] = ["anyOf", "default", "not", "nullable", "oneOf", "readOnly"];
/// What an object of another shape has.
const SHAPE: [&str; 4] = ["type", "items", "properties", "additionalProperties"];

/// A path with its operations.
pub(super) fn path(item: &Value) -> Value {
    let mut converted = Map::new();
    for (key, value) in item.as_object().into_iter().flatten() {
        let value = if key == "parameters" { parameters(value) } else { operation(value) };
        converted.insert(key.clone(), value);
    }
    Value::Object(converted)
}

fn operation(value: &Value) -> Value {
    let mut converted = value.clone();
    let mut all: Vec<Value> = parameters(&value["parameters"]).as_array().cloned().unwrap_or_default();
    let body = value["requestBody"]["content"].as_object();
    if let Some(first) = body.and_then(|b| b.values().next()) {
        let mut parameter = json!({"in": "body", "name": "body", "schema": schema(&first["schema"])});
        if value["requestBody"]["required"] == true {
            parameter["required"] = json!(true);
        }
        all.insert(0, parameter);
    }
    let keys = |content: Option<&Map<String, Value>>| content.map(|c| c.keys().cloned().collect::<Vec<_>>());
    converted["consumes"] = json!(keys(body).unwrap_or_else(|| vec!["*/*".to_owned()]));
    converted["produces"] = json!(keys(value["responses"]["200"]["content"].as_object()));
    converted["schemes"] = json!(["https"]);
    converted["parameters"] = Value::Array(all);
    for response in converted["responses"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        let content = response.as_object_mut().and_then(|r| r.remove("content"));
        if let Some(held) = content.as_ref().and_then(Value::as_object).and_then(|c| c.values().next()) {
            response["schema"] = schema(&held["schema"]);
        }
    }
    converted.as_object_mut().map(|o| o.remove("requestBody"));
    converted
}

/// Parameters say their type themselves.
fn parameters(all: &Value) -> Value {
    let convert = |parameter: &Value| {
        let mut converted = parameter.clone();
        if let Some(map) = converted.as_object_mut() {
            let held = map.remove("schema");
            map.extend(held.as_ref().and_then(Value::as_object).cloned().unwrap_or_default());
        }
        converted
    };
    all.as_array().into_iter().flatten().map(convert).collect()
}

/// A schema, down to its last field.
pub(super) fn schema(value: &Value) -> Value {
    let Some(given) = value.as_object() else { return value.clone() };
    let mut converted = Map::new();
    for (key, inner) in given {
        let inner = match key.as_str() {
            "properties" => each(inner, schema),
            "items" | "additionalProperties" => schema(inner),
            "$ref" => json!(inner.as_str().unwrap_or_default().replacen("#/components/schemas/", "#/definitions/", 1)),
            _ => inner.clone(),
        };
        converted.insert(key.clone(), inner);
    }
    // A reference with something beside it has nothing around it here.
    if let Some(Value::Array(all)) = converted.remove("allOf")
        && let [one] = all.as_slice()
        && one["$ref"].is_string()
        && let Value::Object(reference) = schema(one)
    {
        converted.extend(reference);
    }
    // Where anything may be, kubectl would refuse what a part of the schema says.
    if given.get("nullable") == Some(&json!(true))
        || given.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(true))
    {
        SHAPE.iter().for_each(|key| drop(converted.remove(*key)));
    }
    if given.contains_key("oneOf") && !given.contains_key("type") {
        converted.insert("type".to_owned(), json!("string"));
    }
    converted.retain(|key, _| !UNKNOWN.contains(&key.as_str()));
    Value::Object(converted)
}

fn each(map: &Value, convert: impl Fn(&Value) -> Value) -> Value {
    map.as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), convert(value)))
        .collect::<Map<_, _>>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::{path, schema};
    use serde_json::json;

    #[test]
    fn a_schema_says_what_version_2_knows() {
        for (given, expected) in [
            (
                json!({"allOf": [{"$ref": "#/components/schemas/A"}], "default": {}, "description": "d"}),
                json!({"$ref": "#/definitions/A", "description": "d"}),
            ),
            (json!({"oneOf": [{"type": "string"}, {"type": "number"}]}), json!({"type": "string"})),
            (
                json!({"type": "array", "items": {"$ref": "#/components/schemas/A", "default": ""}}),
                json!({"type": "array", "items": {"$ref": "#/definitions/A"}}),
            ),
            (
                json!({"type": "object", "nullable": true, "properties": {"a": {}}, "description": "d"}),
                json!({"description": "d"}),
            ),
            // A field that is called like a keyword.
            (
                json!({"properties": {"default": {"type": "string", "default": "a"}}}),
                json!({"properties": {"default": {"type": "string"}}}),
            ),
        ] {
            assert_eq!(schema(&given), expected, "{given}");
        }
    }

    #[test]
    fn a_body_is_a_parameter() {
        let given = json!({"parameters": [{"name": "name", "in": "path", "required": true, "schema": {"type": "string"}}], "put": {
            "operationId": "a", "parameters": [{"name": "dryRun", "in": "query", "schema": {"type": "string"}}],
            "requestBody": {"required": true, "content": {"*/*": {"schema": {"$ref": "#/components/schemas/A"}}}},
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": {"type": "string"}}}}}}});
        assert_eq!(
            path(&given),
            json!({"parameters": [{"name": "name", "in": "path", "required": true, "type": "string"}], "put": {
            "operationId": "a", "consumes": ["*/*"], "produces": ["application/json"], "schemes": ["https"],
            "parameters": [{"in": "body", "name": "body", "required": true, "schema": {"$ref": "#/definitions/A"}},
                {"name": "dryRun", "in": "query", "type": "string"}],
            "responses": {"200": {"description": "OK", "schema": {"type": "string"}}}}})
        );
    }
}
