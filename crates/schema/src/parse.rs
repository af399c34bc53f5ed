//! Parsing of schemas. Invalid fields count as unspecified, because [`crate::validate_structural`] has validated the schema.

use crate::{
    AdditionalProperties, Bound, JsonType, ListType, Schema, ValueValidation, compile_pattern, validation_rules::Rule,
};
use serde_json::Value;
use std::sync::Arc;

impl Schema {
    /// Parses an `openAPIV3Schema`.
    #[must_use]
    pub fn parse(json: &Value) -> Self {
        let mut schema = Self::parse_without_rules(json);
        schema.parse_rules(json, true);
        schema
    }

    /// Adds the validation rules, which need the type of their value.
    fn parse_rules(&mut self, json: &Value, root: bool) {
        if let Some(rules) = json["x-kubernetes-validations"].as_array().filter(|r| !r.is_empty()) {
            let value_type = self.as_type(root);
            self.rules = rules.iter().map(|rule| Rule::read(rule, &value_type)).collect();
        }
        self.has_rules = !self.rules.is_empty();
        for (name, property) in &mut self.properties {
            property.parse_rules(&json["properties"][name.as_ref()], false);
            self.has_rules |= property.has_rules;
        }
        if let Some(items) = &mut self.items {
            items.parse_rules(&json["items"], false);
            self.has_rules |= items.has_rules;
        }
        if let AdditionalProperties::Schema(additional) = &mut self.additional {
            additional.parse_rules(&json["additionalProperties"], false);
            self.has_rules |= additional.has_rules;
        }
    }

    /// Parses a schema without validation rules.
    pub(crate) fn parse_without_rules(json: &Value) -> Self {
        let is = |key: &str| json[key] == true;
        let mut schema = Self {
            kind: json["type"].as_str().and_then(JsonType::parse),
            nullable: is("nullable"),
            preserve_unknown_fields: is("x-kubernetes-preserve-unknown-fields"),
            embedded: is("x-kubernetes-embedded-resource"),
            int_or_string: is("x-kubernetes-int-or-string"),
            properties: json["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, property)| (name.as_str().into(), Self::parse_without_rules(property)))
                .collect(),
            additional: match &json["additionalProperties"] {
                Value::Bool(true) => AdditionalProperties::Allowed,
                Value::Bool(false) => AdditionalProperties::Forbidden,
                additional @ Value::Object(_) => {
                    AdditionalProperties::Schema(Box::new(Self::parse_without_rules(additional)))
                }
                _ => AdditionalProperties::Unspecified,
            },
            items: json["items"].is_object().then(|| Box::new(Self::parse_without_rules(&json["items"]))),
            default: json.get("default").cloned(),
            list_type: list_type(json),
            atomic: json["x-kubernetes-map-type"] == "atomic",
            value_validation: ValueValidation::read(json),
            rules: Arc::default(),
            has_rules: false,
            has_embedded: false,
        };
        let additional = schema.additional.schema();
        let within = schema.properties.values().chain(schema.items.as_deref()).chain(additional);
        schema.has_embedded = schema.embedded || within.into_iter().any(|nested| nested.has_embedded);
        schema
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

impl ValueValidation {
    fn read(json: &Value) -> Self {
        let count = |key: &str| json[key].as_u64();
        let number = |key: &str| json[key].as_f64();
        let bound =
            |key: &str, exclusive: &str| Some(Bound { limit: number(key)?, exclusive: json[exclusive] == true });
        let list = |key: &str| json[key].as_array().map(Vec::as_slice).unwrap_or_default();
        let all = |key: &str| list(key).iter().map(Schema::parse_without_rules).collect();
        Self {
            format: json["format"].as_str().filter(|f| !f.is_empty()).map(Into::into),
            maximum: bound("maximum", "exclusiveMaximum"),
            minimum: bound("minimum", "exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern: json["pattern"].as_str().filter(|p| !p.is_empty()).and_then(|p| compile_pattern(p).ok()),
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
            not: json["not"].is_object().then(|| Box::new(Schema::parse_without_rules(&json["not"]))),
        }
    }
}
