//! Structural schemas: what objects of a custom kind may hold, what is left out of them, and what is filled in.
//!
//! A [`Schema`] is read from the `openAPIV3Schema` of a CustomResourceDefinition that [`structural`] found nothing wrong
//! with. [`Schema::prune`] leaves out what is not declared, [`Schema::fill_in`] fills in, [`Schema::validate_values`] and
//! [`Schema::validate_lists`] say what is wrong, in upstream's words, and [`Schema::ask_rules`] asks the rules that are written
//! in CEL (`apiextensions-apiserver/pkg/apiserver`, `kube-openapi/pkg/validation`).
//!
//! Pure: no I/O, no clock, no randomness.
#![forbid(unsafe_code)]

mod checks;
mod compare;
mod defaults;
mod embedded;
mod field_path;
mod format;
mod json_path;
mod lists;
mod prune;
mod read;
mod rules;
mod structural;
mod validate;

pub use embedded::Place;
pub use field_path::Found;
pub use format::unrecognized_formats;
pub use json_path::{JsonPath, PathError};
pub use prune::Unknown;
pub use structural::structural;

use expr::pattern::Pattern;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// How large a pattern may become, in bytes.
const LARGEST_PATTERN: usize = 10 << 20;

/// A `pattern`, which is one of Go.
pub(crate) fn pattern_of(pattern: &str) -> Result<Pattern, String> {
    Pattern::compile(pattern, LARGEST_PATTERN)
}

/// What a value may be, and what becomes of it.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// `type`; without one, anything, or a number or text where `int_or_string`.
    pub kind: Option<Kind>,
    /// Whether null is a value.
    pub nullable: bool,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// Declared fields.
    pub properties: BTreeMap<Box<str>, Schema>,
    /// What else an object may hold.
    pub additional: Additional,
    /// What a list holds.
    pub items: Option<Box<Schema>>,
    /// What stands there when nothing does.
    pub default: Option<Value>,
    /// `x-kubernetes-list-type`.
    pub list: ListType,
    /// `x-kubernetes-map-type: atomic`.
    pub atomic: bool,
    /// What else must hold.
    pub checks: Checks,
    /// Rules about it.
    pub(crate) rules: Arc<[rules::Rule]>,
    /// Whether there are rules about it, or about what is in it.
    pub(crate) has_rules: bool,
    /// Whether it is a resource within another, or something in it is one.
    pub(crate) has_embedded: bool,
}

impl Schema {
    /// What holds of this one field of an object, whatever else it has.
    #[must_use]
    pub fn only(&self, name: &str) -> Option<Self> {
        let property = self.properties.get(name)?;
        let properties = BTreeMap::from([(name.into(), property.clone())]);
        let has_rules = property.has_rules;
        Some(Self { kind: Some(Kind::Object), properties, has_rules, ..Self::default() })
    }

    /// What expressions know of a whole resource of this schema; of its metadata they know the names.
    #[must_use]
    pub fn expression_type(&self) -> expr::Type {
        self.as_type(true)
    }
}

/// `additionalProperties`.
#[derive(Debug, Clone, Default)]
pub enum Additional {
    /// Nothing is said of other fields.
    #[default]
    Unsaid,
    /// There are none (`false`).
    Forbidden,
    /// There may be others (`true`).
    Allowed,
    /// Others are like this.
    Like(Box<Schema>),
}

impl Additional {
    /// What other fields are like, if that is said.
    #[must_use]
    pub fn schema(&self) -> Option<&Schema> {
        match self {
            Self::Like(schema) => Some(schema),
            _ => None,
        }
    }

    /// Whether it is there at all.
    #[must_use]
    pub fn is_said(&self) -> bool {
        !matches!(self, Self::Unsaid)
    }
}

/// `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A JSON object.
    Object,
    /// A list.
    Array,
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
}

impl Kind {
    /// As schemas write it.
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
    /// One value.
    #[default]
    Atomic,
    /// Values of which none stands twice.
    Set,
    /// Objects that are told apart by these fields.
    Map(Vec<Box<str>>),
}

/// What must hold of a value beside its type.
#[derive(Debug, Clone, Default)]
pub struct Checks {
    pub(crate) format: Option<Box<str>>,
    pub(crate) maximum: Option<Bound>,
    pub(crate) minimum: Option<Bound>,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) pattern: Option<Pattern>,
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

/// The end of a range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) at: f64,
    /// Whether the end itself is out of it.
    pub(crate) exclusive: bool,
}

/// Fields of a resource that every kind has.
pub(crate) const OF_EVERY_KIND: [&str; 3] = ["apiVersion", "kind", "metadata"];

#[cfg(test)]
mod tests;
