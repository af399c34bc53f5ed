//! Fields of the types of built-in kinds, from the message table.

use std::collections::{BTreeSet, HashMap};
use wire::protobuf::message_table::{Cardinality, Field, Message, TABLE, ValueType};

/// A type of a string, number or boolean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scalar {
    Text,
    Integer,
    /// A number that is no integer.
    Number,
    Boolean,
    IntegerOrText,
}

/// A type of JSON that code reads a value as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Text,
    Integer,
    Number,
    Boolean,
    List,
    /// An object or map.
    Object,
}

impl Access {
    /// Returns the type that a method of `serde_json::Value` or `FieldCursor` reads.
    pub(crate) fn of_method(name: &str) -> Option<Self> {
        Some(match name {
            "as_str" | "is_string" | "text" | "one_of" | "supported" | "validate_text" | "validate_required_text" => {
                Self::Text
            }
            "as_i64" | "as_u64" | "integer" | "nonnegative" | "validate_port" => Self::Integer,
            "as_f64" | "is_number" => Self::Number,
            "as_bool" | "is_boolean" | "is_true" | "is_false" => Self::Boolean,
            "as_array" | "as_array_mut" | "is_array" | "items" | "duplicates" => Self::List,
            "as_object" | "as_object_mut" | "is_object" | "entries" => Self::Object,
            _ => return None,
        })
    }

    /// Returns the name of the type, for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Boolean => "a boolean",
            Self::List => "a list",
            Self::Object => "an object",
        }
    }
}

/// A type of a JSON value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    /// A message, by its index in the table.
    Object(usize),
    List(Box<Node>),
    Map(Box<Node>),
    Scalar(Scalar),
    /// Any JSON, for example the default of a custom resource's field.
    Any,
}

impl Node {
    /// Returns the type of the elements of a list. Other types are returned unchanged, because iterators of values have the
    /// type of the values.
    pub(crate) fn element(&self) -> Self {
        if let Self::List(element) = self { (**element).clone() } else { self.clone() }
    }

    /// Returns the type of the values of a map.
    pub(crate) fn entry(&self) -> Self {
        if let Self::Map(element) = self { (**element).clone() } else { self.clone() }
    }

    /// Returns the type of a field; `None` if there is no such field.
    pub(crate) fn field(&self, name: &str) -> Option<Self> {
        match self {
            Self::Object(index) => object_field(&TABLE.messages[*index], name),
            Self::Map(element) => Some((**element).clone()),
            Self::List(_) | Self::Scalar(_) => None,
            Self::Any => Some(Self::Any),
        }
    }

    /// Whether a value of the type can be read as another.
    pub(crate) fn can_be(&self, access: Access) -> bool {
        match self {
            Self::Any => true,
            // A field of this type can also be a boolean or a list (`JSONSchemaPropsOrBool`, `JSONSchemaPropsOrArray`).
            Self::Object(index) => access == Access::Object || TABLE.messages[*index].name.ends_with("JSONSchemaProps"),
            Self::Map(_) => access == Access::Object,
            Self::List(_) => access == Access::List,
            Self::Scalar(Scalar::Text) => access == Access::Text,
            Self::Scalar(Scalar::Integer) => matches!(access, Access::Integer | Access::Number),
            Self::Scalar(Scalar::Number) => access == Access::Number,
            Self::Scalar(Scalar::Boolean) => access == Access::Boolean,
            Self::Scalar(Scalar::IntegerOrText) => {
                matches!(access, Access::Integer | Access::Number | Access::Text)
            }
        }
    }

    /// Returns the name of the type, for messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Object(index) => TABLE.messages[*index].name.clone(),
            Self::List(element) => format!("a list of {}", element.name()),
            Self::Map(element) => format!("a map of {}", element.name()),
            Self::Scalar(Scalar::Text) => "a string".to_owned(),
            Self::Scalar(Scalar::Integer) => "an integer".to_owned(),
            Self::Scalar(Scalar::Number) => "a number".to_owned(),
            Self::Scalar(Scalar::Boolean) => "a boolean".to_owned(),
            Self::Scalar(Scalar::IntegerOrText) => "an integer or string".to_owned(),
            Self::Any => "any".to_owned(),
        }
    }
}

/// All types of each field name.
pub(crate) struct Schema {
    by_name: HashMap<&'static str, BTreeSet<Node>>,
}

impl Schema {
    pub(crate) fn new() -> Self {
        let mut by_name = HashMap::<_, BTreeSet<Node>>::new();
        for field in TABLE.messages.iter().flat_map(|message| &message.fields) {
            by_name.entry(field.name).or_default().insert(field_type(field));
        }
        Self { by_name }
    }

    /// Returns the types of the fields of all messages that have this name.
    pub(crate) fn anywhere(&self, name: &str) -> Option<&BTreeSet<Node>> {
        self.by_name.get(name)
    }

    /// Returns the messages with this name, in all packages.
    pub(crate) fn messages(name: &str) -> BTreeSet<Node> {
        let found = |message: &Message| message.name.rsplit('.').next() == Some(name);
        TABLE.messages.iter().enumerate().filter(|(_, m)| found(m)).map(|(i, _)| Node::Object(i)).collect()
    }
}

fn object_field(message: &Message, name: &str) -> Option<Node> {
    let field = message.field_named(name).map(field_type);
    // Messages of kinds do not contain their type.
    field.or_else(|| {
        matches!(name, "apiVersion" | "kind").then_some(Node::Scalar(Scalar::Text)).filter(|_| is_kind(message))
    })
}

/// Whether a message has `apiVersion` and `kind` in JSON: kinds, options, and objects that are embedded in other objects.
fn is_kind(message: &Message) -> bool {
    message.field_named("metadata").is_some() || message.name.ends_with("Options")
}

fn field_type(field: &Field) -> Node {
    let element = match field.value_type {
        ValueType::Message(index) | ValueType::BoolOr(index) => Node::Object(index),
        ValueType::ListOr(index) => Node::Object(index),
        ValueType::Raw | ValueType::Json => Node::Any,
        ValueType::Strings => Node::List(Box::new(Node::Scalar(Scalar::Text))),
        ValueType::Bool => Node::Scalar(Scalar::Boolean),
        ValueType::Int32 | ValueType::Int64 => Node::Scalar(Scalar::Integer),
        ValueType::Double => Node::Scalar(Scalar::Number),
        ValueType::IntOrString => Node::Scalar(Scalar::IntegerOrText),
        ValueType::String
        | ValueType::Bytes
        | ValueType::Time
        | ValueType::MicroTime
        | ValueType::Duration
        | ValueType::Quantity => Node::Scalar(Scalar::Text),
    };
    match field.cardinality {
        Cardinality::List => Node::List(Box::new(element)),
        Cardinality::Map => Node::Map(Box::new(element)),
        Cardinality::Plain | Cardinality::Pointer | Cardinality::Inline => element,
    }
}
