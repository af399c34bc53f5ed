//! Converts an OpenAPI v2 document to comparable lines, one per operation and schema. The server's tests use the same code
//! for the document that it publishes.

use serde_json::{Map, Value};

/// Returns the lines of a document. Media types are omitted, because upstream's document has CBOR, which is off by default.
pub(crate) fn lines(document: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for (path, item) in fields(&document["paths"]) {
        for (method, operation) in fields(item).filter(|(method, _)| *method != "parameters") {
            all.push(operation_line(document, path, item, method, operation));
        }
    }
    all.extend(fields(&document["definitions"]).map(|(name, schema)| schema_line(name, schema)));
    all.sort();
    all
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

/// Formats an operation: `get /api/v1/pods id=… action=list kind=/v1/Pod tags=core_v1 path=… query=… body=Pod 200=PodList "description"`
fn operation_line(document: &Value, path: &str, item: &Value, method: &str, operation: &Value) -> String {
    let kind = &operation["x-kubernetes-group-version-kind"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = ["group", "version", "kind"].map(|part| text(&kind[part])).join("/");
    let tags: Vec<String> = operation["tags"].as_array().into_iter().flatten().map(text).collect();
    let (shared, _) = parameters(document, &item["parameters"]);
    let (declared, body) = parameters(document, &operation["parameters"]);
    let answers =
        fields(&operation["responses"]).map(|(code, answer)| format!("{code}={}", kind_of(&answer["schema"])));
    let answers: Vec<String> = answers.collect();
    format!(
        "{method} {path} id={} action={} kind={kind} tags={} shared={} own={} body={body} {} {}",
        text(&operation["operationId"]),
        text(&operation["x-kubernetes-action"]),
        tags.join(","),
        shared.join(","),
        declared.join(","),
        answers.join(" "),
        operation["description"],
    )
}

/// Returns parameter names, those in the path with an `@`, and the type of the body.
fn parameters(document: &Value, all: &Value) -> (Vec<String>, String) {
    let (mut names, mut body) = (Vec::new(), String::new());
    for parameter in all.as_array().into_iter().flatten() {
        let reference = parameter["$ref"].as_str().and_then(|r| document.pointer(r.trim_start_matches('#')));
        let parameter = reference.unwrap_or(parameter);
        let name = parameter["name"].as_str().unwrap_or_default();
        match parameter["in"].as_str() {
            Some("body") => body = kind_of(&parameter["schema"]),
            Some("path") => names.push(format!("@{name}")),
            _ => names.push(name.to_owned()),
        }
    }
    names.sort();
    (names, body)
}

/// Formats a schema: `io.k8s.api.core.v1.Pod type=object required=… spec:PodSpec …`.
fn schema_line(name: &str, schema: &Value) -> String {
    let mut required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    required.sort_unstable();
    let properties = fields(&schema["properties"])
        .map(|(field, property)| format!("{field}:{}{}", kind_of(property), marks(property)));
    let mut properties: Vec<String> = properties.collect();
    properties.sort();
    format!("{name} {}{} required={} {}", kind_of(schema), marks(schema), required.join(","), properties.join(" "))
}

/// Formats a type: `PodSpec`, `[]string`, `{}Quantity`, `integer(int32)`.
fn kind_of(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return reference.rsplit('.').next().unwrap_or_default().to_owned();
    }
    if schema["items"].is_object() {
        return format!("[]{}", kind_of(&schema["items"]));
    }
    if schema["additionalProperties"].is_object() {
        return format!("{{}}{}", kind_of(&schema["additionalProperties"]));
    }
    let kind = schema["type"].as_str().unwrap_or_default();
    schema["format"].as_str().map_or_else(|| kind.to_owned(), |format| format!("{kind}({format})"))
}

/// Formats the `x-kubernetes-*` extensions, except for the group, version and kind.
fn marks(schema: &Value) -> String {
    let extensions = fields(schema).filter_map(|(key, value)| Some((key.strip_prefix("x-kubernetes-")?, value)));
    let mut all: Vec<String> = extensions
        .map(|(key, value)| match value {
            Value::Array(kinds) if key == "group-version-kind" => format!("~kinds={}", kinds.len()),
            value => format!("~{key}={value}"),
        })
        .collect();
    all.sort();
    all.concat()
}
