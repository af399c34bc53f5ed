//! Structural schemas of custom resources: pruning, defaulting and validation.
//!
//! A [`Schema`] is parsed from the `openAPIV3Schema` of a CustomResourceDefinition that [`validate_structural`] has validated.
//! [`Schema::prune`] removes unknown fields, [`Schema::apply_defaults`] applies defaults, [`Schema::validate_values`] and
//! [`Schema::validate_list_sets_and_maps`] return upstream's validation errors, and [`Schema::validate_rules`] evaluates validation rules in
//! CEL (`apiextensions-apiserver/pkg/apiserver`, `kube-openapi/pkg/validation`).
//!
//! Pure: no I/O, no clock, no randomness.
#![forbid(unsafe_code)]

mod correlation;
mod defaulting;
mod embedded_resources;
mod field_path;
mod format;
mod json_path;
mod list_sets;
mod parse;
mod pruning;
mod structural;
mod validate;
mod validation_rules;
mod value_validation;

pub use embedded_resources::EmbeddedResource;
pub use field_path::{FieldPathError, ResolvedFieldPath};
pub use format::unrecognized_formats;
pub use json_path::{JsonPath, JsonPathError};
pub use pruning::UnknownFields;
pub use structural::validate_structural;

use expr::go_regexp::{GoRegexp, RegexpError};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// Maximum size of a compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 10 << 20;

/// Compiles a `pattern`, which has Go's syntax.
pub(crate) fn compile_pattern(pattern: &str) -> Result<GoRegexp, RegexpError> {
    GoRegexp::compile(pattern, MAX_PATTERN_BYTES)
}

/// A structural schema.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// `type`; `None` allows any value or, with `int_or_string`, integers and strings.
    pub kind: Option<JsonType>,
    /// `nullable`.
    pub nullable: bool,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown_fields: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `properties`.
    pub properties: BTreeMap<Box<str>, Schema>,
    /// `additionalProperties`.
    pub additional: AdditionalProperties,
    /// `items`.
    pub items: Option<Box<Schema>>,
    /// `default`.
    pub default: Option<Value>,
    /// `x-kubernetes-list-type`.
    pub list_type: ListType,
    /// `x-kubernetes-map-type: atomic`.
    pub atomic: bool,
    /// Value validation.
    pub value_validation: ValueValidation,
    /// `x-kubernetes-validations`.
    pub(crate) rules: Arc<[validation_rules::Rule]>,
    /// Whether the schema or a nested schema has validation rules.
    pub(crate) has_rules: bool,
    /// Whether the schema or a nested schema is an embedded resource.
    pub(crate) has_embedded: bool,
}

impl Schema {
    /// Returns the schema of an object with only this field.
    #[must_use]
    pub fn with_only_field(&self, name: &str) -> Option<Self> {
        let property = self.properties.get(name)?;
        let properties = BTreeMap::from([(name.into(), property.clone())]);
        let has_rules = property.has_rules;
        Some(Self { kind: Some(JsonType::Object), properties, has_rules, ..Self::default() })
    }

    /// Returns the CEL type of a resource of this schema; its metadata has only `name` and `generateName`.
    #[must_use]
    pub fn expression_type(&self) -> expr::Type {
        self.as_type(true)
    }
}

/// `additionalProperties`.
#[derive(Debug, Clone, Default)]
pub enum AdditionalProperties {
    /// Not specified.
    #[default]
    Unspecified,
    /// `false`: additional fields are forbidden.
    Forbidden,
    /// `true`: any additional fields are allowed.
    Allowed,
    /// The schema of additional fields.
    Schema(Box<Schema>),
}

impl AdditionalProperties {
    /// Returns the schema of additional fields.
    #[must_use]
    pub fn schema(&self) -> Option<&Schema> {
        match self {
            Self::Schema(schema) => Some(schema),
            _ => None,
        }
    }

    /// Returns whether `additionalProperties` is specified.
    #[must_use]
    pub fn is_specified(&self) -> bool {
        !matches!(self, Self::Unspecified)
    }
}

/// `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonType {
    /// A JSON object.
    Object,
    /// A list.
    Array,
    /// A string.
    String,
    /// An integer.
    Integer,
    /// A number.
    Number,
    /// A boolean.
    Boolean,
}

impl JsonType {
    /// Returns the name of the type in schemas.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let all = [Self::Object, Self::Array, Self::String, Self::Integer, Self::Number, Self::Boolean];
        all.into_iter().find(|kind| kind.name() == name)
    }
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListType {
    /// The list is one value.
    #[default]
    Atomic,
    /// The items are unique.
    Set,
    /// The items are objects with unique values of these key fields.
    Map(Vec<Box<str>>),
}

/// Value validation of a schema (`ValueValidation`).
#[derive(Debug, Clone, Default)]
pub struct ValueValidation {
    pub(crate) format: Option<Box<str>>,
    pub(crate) maximum: Option<Bound>,
    pub(crate) minimum: Option<Bound>,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) pattern: Option<GoRegexp>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) required: Vec<Box<str>>,
    pub(crate) allowed: Vec<Value>,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Box<Schema>>,
}

/// Minimum or maximum of a range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) limit: f64,
    /// Whether the bound itself is excluded.
    pub(crate) exclusive: bool,
}

/// Fields that all resources have.
pub(crate) const RESOURCE_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

#[cfg(test)]
mod tests;
