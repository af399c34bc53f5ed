//! From the JSON of a CustomResourceDefinition to a schema. What is wrong there was told before ([`crate::structural`]):
//! here it counts as not said.

use crate::{Additional, Bound, Checks, Kind, ListType, Schema};
use regex::Regex;
use serde_json::Value;

impl Schema {
    /// The schema that `openAPIV3Schema` describes.
    #[must_use]
    pub fn read(json: &Value) -> Self {
        let is = |key: &str| json[key] == true;
        Self {
            kind: json["type"].as_str().and_then(Kind::parse),
            nullable: is("nullable"),
            preserve: is("x-kubernetes-preserve-unknown-fields"),
            embedded: is("x-kubernetes-embedded-resource"),
            int_or_string: is("x-kubernetes-int-or-string"),
            properties: json["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, property)| (name.as_str().into(), Self::read(property)))
                .collect(),
            additional: match &json["additionalProperties"] {
                Value::Bool(true) => Additional::Allowed,
                Value::Bool(false) => Additional::Forbidden,
                like @ Value::Object(_) => Additional::Like(Box::new(Self::read(like))),
                _ => Additional::Unsaid,
            },
            items: json["items"].is_object().then(|| Box::new(Self::read(&json["items"]))),
            default: json.get("default").cloned(),
            list: list_type(json),
            atomic: json["x-kubernetes-map-type"] == "atomic",
            checks: Checks::read(json),
        }
    }
}

fn list_type(json: &Value) -> ListType {
    let keys = || json["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
    match json["x-kubernetes-list-type"].as_str() {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(keys().map(Into::into).collect()),
        _ => ListType::Atomic,
    }
}

impl Checks {
    fn read(json: &Value) -> Self {
        let count = |key: &str| json[key].as_u64();
        let number = |key: &str| json[key].as_f64();
        let bound = |key: &str, exclusive: &str| Some(Bound { at: number(key)?, exclusive: json[exclusive] == true });
        let list = |key: &str| json[key].as_array().map(Vec::as_slice).unwrap_or_default();
        let all = |key: &str| list(key).iter().map(Schema::read).collect();
        Self {
            format: json["format"].as_str().filter(|f| !f.is_empty()).map(Into::into),
            maximum: bound("maximum", "exclusiveMaximum"),
            minimum: bound("minimum", "exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern: json["pattern"].as_str().filter(|p| !p.is_empty()).and_then(|p| Regex::new(p).ok()),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            unique_items: json["uniqueItems"] == true,
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            required: list("required").iter().filter_map(Value::as_str).map(Into::into).collect(),
            allowed: list("enum").to_vec(),
            all_of: all("allOf"),
            any_of: all("anyOf"),
            one_of: all("oneOf"),
            not: json["not"].is_object().then(|| Box::new(Schema::read(&json["not"]))),
        }
    }
}
