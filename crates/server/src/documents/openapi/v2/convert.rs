//! Conversion from version 3 to version 2, which supports neither `nullable` nor alternative schemas; upstream omits defaults.

use serde_json::{Map, Value, json};

/// Keywords of schemas that version 2 does not support, or that upstream omits there.
const OMITTED_KEYWORDS: [&str; 6] = ["anyOf", "default", "not", "nullable", "oneOf", "readOnly"];
/// Keywords that describe the structure of a value.
const STRUCTURE_KEYWORDS: [&str; 4] = ["type", "items", "properties", "additionalProperties"];

/// Converts a path with its operations.
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
    let produced = value["responses"]["200"]["content"].as_object();
    if let Some(consumed) = keys(body).or_else(|| consumed(value, produced)) {
        converted["consumes"] = json!(consumed);
    }
    converted["produces"] = json!(keys(produced));
    converted["schemes"] = json!(["https"]);
    if !all.is_empty() {
        converted["parameters"] = Value::Array(all);
    }
    for response in converted["responses"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        let content = response.as_object_mut().and_then(|r| r.remove("content"));
        if let Some(content) = content.as_ref().and_then(Value::as_object).and_then(|c| c.values().next()) {
            response["schema"] = schema(&content["schema"]);
        }
    }
    converted.as_object_mut().map(|o| o.remove("requestBody"));
    converted
}

/// Returns the `consumes` of an operation without a body: any for resources, those of the response for discovery
/// (`discovery/group.go`), and none for plain documents.
fn consumed(operation: &Value, produced: Option<&Map<String, Value>>) -> Option<Vec<String>> {
    if !operation["x-kubernetes-action"].is_null() {
        return Some(vec!["*/*".to_owned()]);
    }
    let is_text = |content: &Value| content["schema"]["type"] == "string";
    produced.filter(|all| !all.values().any(is_text)).map(|all| all.keys().cloned().collect())
}

/// Converts parameters, which have their type inline.
fn parameters(all: &Value) -> Value {
    let convert = |parameter: &Value| {
        let mut converted = parameter.clone();
        if let Some(map) = converted.as_object_mut() {
            let schema = map.remove("schema");
            map.extend(schema.as_ref().and_then(Value::as_object).cloned().unwrap_or_default());
        }
        converted
    };
    all.as_array().into_iter().flatten().map(convert).collect()
}

/// Converts the schema of a kind. If unknown fields are preserved, properties are omitted: kubectl would reject other fields
/// (`buildKubeNative`).
pub(super) fn definition(value: &Value) -> Value {
    const GROUP_VERSION_KIND: &str = "x-kubernetes-group-version-kind";
    match value.get(GROUP_VERSION_KIND) {
        Some(names) if value["x-kubernetes-preserve-unknown-fields"] == true => {
            json!({"type": "object", GROUP_VERSION_KIND: names})
        }
        _ => schema(value),
    }
}

/// Converts a schema recursively.
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
    // A reference with siblings is not wrapped in version 2.
    if let Some(Value::Array(all)) = converted.remove("allOf")
        && let [one] = all.as_slice()
        && one["$ref"].is_string()
        && let Value::Object(reference) = schema(one)
    {
        converted.extend(reference);
    }
    // If any value is allowed, kubectl would reject what does not match the rest of the schema.
    if given.get("nullable") == Some(&json!(true))
        || given.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(true))
    {
        STRUCTURE_KEYWORDS.iter().for_each(|key| drop(converted.remove(*key)));
    }
    if let Some(Value::Array(mut required)) = converted.remove("required") {
        required.retain(|field| is_required(given, field));
        if !required.is_empty() {
            converted.insert("required".to_owned(), required.into());
        }
    }
    if given.contains_key("oneOf") && !given.contains_key("type") {
        converted.insert("type".to_owned(), json!("string"));
    }
    converted.retain(|key, _| !OMITTED_KEYWORDS.contains(&key.as_str()));
    Value::Object(converted)
}

/// Whether a required field is also required in version 2: not if it is nullable, and not the type of an embedded resource with
/// unknown fields (`ToStructuralOpenAPIV2`, `addEmbeddedProperties`).
fn is_required(schema: &Map<String, Value>, field: &Value) -> bool {
    let is_set = |schema: Option<&Value>, key: &str| schema.and_then(|schema| schema.get(key)) == Some(&json!(true));
    let property = schema.get("properties").and_then(|all| all.get(field.as_str().unwrap_or_default()));
    let is_given = |key: &str| schema.get(key) == Some(&json!(true));
    let is_type = matches!(field.as_str(), Some("kind" | "apiVersion"))
        && is_given("x-kubernetes-embedded-resource")
        && is_given("x-kubernetes-preserve-unknown-fields");
    !is_type && !is_set(property, "nullable") && !is_set(schema.get("additionalProperties"), "nullable")
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
    use super::{definition, path, schema};
    use serde_json::json;

    #[test]
    fn schemas_are_converted_to_version_2() {
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
            // Nullable fields are not required.
            (
                json!({"required": ["a", "b"], "properties": {"a": {"nullable": true}, "b": {}}}),
                json!({"required": ["b"], "properties": {"a": {}, "b": {}}}),
            ),
            (
                json!({"required": ["a"], "additionalProperties": {"nullable": true}}),
                json!({"additionalProperties": {}}),
            ),
            (
                json!({"required": ["kind", "apiVersion"], "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
                json!({"x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            ),
            // A field with the name of a keyword.
            (
                json!({"properties": {"default": {"type": "string", "default": "a"}}}),
                json!({"properties": {"default": {"type": "string"}}}),
            ),
        ] {
            assert_eq!(schema(&given), expected, "{given}");
        }
    }

    #[test]
    fn kind_with_unknown_fields_has_no_properties() {
        let names = json!([{"group": "g", "version": "v1", "kind": "K"}]);
        let given = json!({"type": "object", "description": "d", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"spec": {}}, "x-kubernetes-group-version-kind": names});
        assert_eq!(definition(&given), json!({"type": "object", "x-kubernetes-group-version-kind": names}));
    }

    #[test]
    fn body_is_converted_to_a_parameter() {
        let given = json!({"parameters": [{"name": "name", "in": "path", "required": true, "schema": {"type": "string"}}], "put": {
            "operationId": "a", "x-kubernetes-action": "put", "parameters": [{"name": "dryRun", "in": "query", "schema": {"type": "string"}}],
            "requestBody": {"required": true, "content": {"*/*": {"schema": {"$ref": "#/components/schemas/A"}}}},
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": {"type": "string"}}}}}}});
        assert_eq!(
            path(&given),
            json!({"parameters": [{"name": "name", "in": "path", "required": true, "type": "string"}], "put": {
            "operationId": "a", "x-kubernetes-action": "put", "consumes": ["*/*"], "produces": ["application/json"], "schemes": ["https"],
            "parameters": [{"in": "body", "name": "body", "required": true, "schema": {"$ref": "#/definitions/A"}},
                {"name": "dryRun", "in": "query", "type": "string"}],
            "responses": {"200": {"description": "OK", "schema": {"type": "string"}}}}})
        );
    }
}
