//! Static types of expressions.

use std::{collections::BTreeMap, fmt, sync::Arc};

/// The type of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// Unknown type, checked at run time.
    Dyn,
    /// A type without parameters: `bool`, `int`, `string`, `null_type`, `kubernetes.Quantity`, ...
    Named(&'static str),
    /// A list with this item type.
    List(Box<Type>),
    /// A map from strings to this type.
    Map(Box<Type>),
    /// An object with these fields and no others.
    Object(Arc<BTreeMap<String, Type>>),
    /// An optional value of this type.
    Optional(Box<Type>),
    /// A struct type with a name: `Object`, `Object.spec`, `JSONPatch`.
    Struct(Arc<str>),
}

impl Type {
    /// A boolean.
    pub const BOOL: Self = Self::Named("bool");
    /// A signed integer.
    pub const INT: Self = Self::Named("int");
    /// A floating-point number.
    pub const DOUBLE: Self = Self::Named("double");
    /// A string.
    pub const STRING: Self = Self::Named("string");
    /// Bytes.
    pub const BYTES: Self = Self::Named("bytes");
    /// A point in time.
    pub const TIMESTAMP: Self = Self::Named("timestamp");
    /// A duration.
    pub const DURATION: Self = Self::Named("duration");

    /// The authorizer variable (`kubernetes.authorization.Authorizer`).
    pub const AUTHORIZER: Self = Self::Named("authorizer");

    /// Pseudo variable that enables the mutation types `Object{...}` and `JSONPatch{...}` in an expression.
    pub const MUTATION_TYPES: (&'static str, Self) = ("@changes", Self::Dyn);

    /// Returns the type of a list.
    #[must_use]
    pub fn list(inner: Self) -> Self {
        Self::List(Box::new(inner))
    }

    /// Parses a type of the table [`crate::functions::FUNCTIONS`].
    pub(crate) fn from_word(word: &'static str) -> Self {
        match word {
            "dyn" => Self::Dyn,
            "list" => Self::list(Self::Dyn),
            "strings" => Self::list(Self::STRING),
            "map" => Self::Map(Box::new(Self::Dyn)),
            "optional" => Self::Optional(Box::new(Self::Dyn)),
            name => Self::Named(name),
        }
    }

    /// Returns the name of the type in the table of functions.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Dyn => "dyn",
            Self::Named(name) => name,
            Self::List(_) => "list",
            Self::Map(_) | Self::Object(_) | Self::Struct(_) => "map",
            Self::Optional(_) => "optional",
        }
    }

    /// Returns whether a value of one type may be of the other type.
    pub(crate) fn is_assignable(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (Self::Named("null_type"), Self::Named(name)) | (Self::Named(name), Self::Named("null_type")) => {
                // Values of these types are never null.
                !["bool", "int", "uint", "double", "string", "bytes"].contains(name)
            }
            (Self::Named(l), Self::Named(r)) => l == r,
            (Self::Struct(l), Self::Struct(r)) => l == r,
            (Self::List(l), Self::List(r)) | (Self::Optional(l), Self::Optional(r)) => l.is_assignable(r),
            (Self::Map(_) | Self::Object(_), Self::Map(_) | Self::Object(_)) => true,
            (Self::Named("null_type"), _) | (_, Self::Named("null_type")) => true,
            _ => false,
        }
    }

    /// Returns the common type of two branches.
    pub(crate) fn or(self, other: Self) -> Self {
        if self == other { self } else { Self::Dyn }
    }
}

impl Type {
    /// Formats the type for overload errors as cel-go's `FormatCELType`, which differs for `null_type`.
    pub(crate) fn format_cel_type(&self) -> String {
        match self {
            Self::Named("null_type") => "null".to_owned(),
            Self::List(inner) => format!("list({})", inner.format_cel_type()),
            Self::Map(inner) => format!("map(string, {})", inner.format_cel_type()),
            Self::Optional(inner) => format!("optional_type({})", inner.format_cel_type()),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Named(name) => f.write_str(name),
            Self::Struct(name) => f.write_str(name),
            Self::List(inner) => write!(f, "list({inner})"),
            Self::Map(inner) => write!(f, "map(string, {inner})"),
            Self::Object(_) => f.write_str("object"),
            Self::Optional(inner) => write!(f, "optional_type({inner})"),
        }
    }
}
