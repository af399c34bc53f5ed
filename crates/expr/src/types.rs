//! What is known of a value before it is there.

use std::{collections::BTreeMap, fmt, sync::Arc};

/// The type of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// Nothing is known.
    Dyn,
    /// One of the types that have a name only: `bool`, `int`, `string`, `null_type`, `kubernetes.Quantity`, ...
    Named(&'static str),
    /// A list of these.
    List(Box<Type>),
    /// A map of strings to these.
    Map(Box<Type>),
    /// An object with these fields and no others.
    Object(Arc<BTreeMap<String, Type>>),
    /// Perhaps one of these.
    Optional(Box<Type>),
    /// What is written with its name before it: `Object`, `Object.spec`, `JSONPatch`.
    Struct(Arc<str>),
}

impl Type {
    /// True or false.
    pub const BOOL: Self = Self::Named("bool");
    /// A whole number.
    pub const INT: Self = Self::Named("int");
    /// A number with a point.
    pub const DOUBLE: Self = Self::Named("double");
    /// Text.
    pub const STRING: Self = Self::Named("string");
    /// Bytes.
    pub const BYTES: Self = Self::Named("bytes");
    /// A moment.
    pub const TIMESTAMP: Self = Self::Named("timestamp");
    /// A span of time.
    pub const DURATION: Self = Self::Named("duration");

    /// Who says what somebody may do.
    pub const AUTHORIZER: Self = Self::Named("authorizer");

    /// A variable that nobody can name: where there is one of it, expressions can say how an object is changed, with
    /// `Object{...}` and `JSONPatch{...}`.
    pub const CHANGES: (&'static str, Self) = ("@changes", Self::Dyn);

    /// A list of this.
    #[must_use]
    pub fn list(of: Self) -> Self {
        Self::List(Box::new(of))
    }

    /// The type that a word of [`crate::functions::FUNCTIONS`] names.
    pub(crate) fn of_word(word: &'static str) -> Self {
        match word {
            "dyn" => Self::Dyn,
            "list" => Self::list(Self::Dyn),
            "strings" => Self::list(Self::STRING),
            "map" => Self::Map(Box::new(Self::Dyn)),
            "optional" => Self::Optional(Box::new(Self::Dyn)),
            name => Self::Named(name),
        }
    }

    /// The word for it in the table of functions.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Dyn => "dyn",
            Self::Named(name) => name,
            Self::List(_) => "list",
            Self::Map(_) | Self::Object(_) | Self::Struct(_) => "map",
            Self::Optional(_) => "optional",
        }
    }

    /// Whether a value can be of both types.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (Self::Named("null_type"), Self::Named(name)) | (Self::Named(name), Self::Named("null_type")) => {
                // Only what can be absent is ever null.
                !["bool", "int", "uint", "double", "string", "bytes"].contains(name)
            }
            (Self::Named(l), Self::Named(r)) => l == r,
            (Self::Struct(l), Self::Struct(r)) => l == r,
            (Self::List(l), Self::List(r)) | (Self::Optional(l), Self::Optional(r)) => l.meets(r),
            (Self::Map(_) | Self::Object(_), Self::Map(_) | Self::Object(_)) => true,
            (Self::Named("null_type"), _) | (_, Self::Named("null_type")) => true,
            _ => false,
        }
    }

    /// What two branches have in common.
    pub(crate) fn or(self, other: Self) -> Self {
        if self == other { self } else { Self::Dyn }
    }
}

impl Type {
    /// How messages about what does not fit name it (cel-go's `FormatCELType`), where null is no type's name.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Named("null_type") => "null".to_owned(),
            Self::List(of) => format!("list({})", of.told()),
            Self::Map(of) => format!("map(string, {})", of.told()),
            Self::Optional(of) => format!("optional_type({})", of.told()),
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
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(of) => write!(f, "map(string, {of})"),
            Self::Object(_) => f.write_str("object"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
        }
    }
}
