//! Fields of the types of built-in kinds, from the message table.

use std::collections::{BTreeSet, HashMap};
use wire::protobuf::message_table::{Cardinality, Field, Message, TABLE, ValueType};

/// A type of a JSON value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    /// A message, by its index in the table.
    Object(usize),
    List(Box<Node>),
    Map(Box<Node>),
    /// A string, number or boolean.
    Leaf,
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
            Self::List(_) | Self::Leaf => None,
            Self::Any => Some(Self::Any),
        }
    }

    /// Returns the name of the type, for messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Object(index) => TABLE.messages[*index].name.clone(),
            Self::List(element) => format!("a list of {}", element.name()),
            Self::Map(element) => format!("a map of {}", element.name()),
            Self::Leaf => "a scalar".to_owned(),
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
    field.or_else(|| matches!(name, "apiVersion" | "kind").then_some(Node::Leaf).filter(|_| is_kind(message)))
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
        ValueType::Strings => Node::List(Box::new(Node::Leaf)),
        _ => Node::Leaf,
    };
    match field.cardinality {
        Cardinality::List => Node::List(Box::new(element)),
        Cardinality::Map => Node::Map(Box::new(element)),
        Cardinality::Plain | Cardinality::Pointer | Cardinality::Inline => element,
    }
}
