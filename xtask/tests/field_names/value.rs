//! Abstract values: what is known of the value of a Rust expression.

use crate::schema::Node;
use std::{cmp::Ordering, collections::BTreeSet, rc::Rc};
use syn::ExprClosure;

/// Variables with their values; a later one shadows an earlier one.
pub(crate) type Variables = Vec<(String, Abstract)>;

/// What is known of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Abstract {
    Unknown,
    /// JSON of one of these types, or an iterator of it, or a field path to it. Empty for `null` and `!`.
    Json(Types),
    /// One of these string literals, or a list of them.
    Text(BTreeSet<Literal>),
    Tuple(Vec<Abstract>),
    Closure(Closure),
    /// A function, by its index.
    Function(usize),
}

/// Types of a JSON value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Types {
    pub(crate) nodes: BTreeSet<Node>,
    /// Whether the types were found by the name of a field only, so that they include those of other objects.
    pub(crate) is_guess: bool,
    /// The literal that names the field, if it is known. What reads the value is checked against its types.
    pub(crate) literal: Option<Literal>,
    /// Whether it is an element of the field, or the field itself: `map` is a method of iterators and of `Option`.
    pub(crate) is_element: bool,
}

impl Types {
    fn map(&self, change: impl Fn(&Node) -> Node) -> Self {
        let nodes: BTreeSet<Node> = self.nodes.iter().map(change).collect();
        let is_element = self.is_element || nodes != self.nodes;
        Self { nodes, is_element, ..self.clone() }
    }
}

/// A string literal in the source, with its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Literal {
    pub(crate) text: String,
    pub(crate) file: usize,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// A closure with the variables that it can use.
#[derive(Clone)]
pub(crate) struct Closure {
    pub(crate) code: &'static ExprClosure,
    pub(crate) variables: Rc<Variables>,
    /// Module of the closure.
    pub(crate) module: Rc<str>,
    pub(crate) file: usize,
}

impl Closure {
    fn address(&self) -> usize {
        std::ptr::from_ref(self.code).addr()
    }
}

impl std::fmt::Debug for Closure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closure")
    }
}

impl PartialEq for Closure {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl Eq for Closure {}

impl PartialOrd for Closure {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Closure {
    fn cmp(&self, other: &Self) -> Ordering {
        self.address().cmp(&other.address())
    }
}

impl Abstract {
    /// The value of `null`, `None` and expressions that do not return.
    pub(crate) fn nothing() -> Self {
        Self::Json(Types::default())
    }

    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Self::Json(types) if types.nodes.is_empty())
    }

    pub(crate) fn is_nonempty_text(&self) -> bool {
        matches!(self, Self::Text(literals) if literals.iter().all(|literal| !literal.text.is_empty()))
    }

    /// Returns what is known of a value that is one of two.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b || b.is_nothing() => a,
            (a, b) if a.is_nothing() => b,
            (Self::Json(mut a), Self::Json(b)) => {
                a.nodes.extend(b.nodes);
                a.is_guess |= b.is_guess;
                a.is_element |= b.is_element;
                a.literal = a.literal.filter(|literal| b.literal.as_ref() == Some(literal));
                Self::Json(a)
            }
            (Self::Text(mut a), Self::Text(b)) => {
                a.extend(b);
                Self::Text(a)
            }
            (Self::Tuple(a), Self::Tuple(b)) if a.len() == b.len() => {
                Self::Tuple(a.into_iter().zip(b).map(|(a, b)| a.or(b)).collect())
            }
            _ => Self::Unknown,
        }
    }

    /// Returns what is known of an element of a list or of an iterator.
    pub(crate) fn element(&self) -> Self {
        match self {
            Self::Json(types) => Self::Json(types.map(Node::element)),
            other => other.clone(),
        }
    }

    /// Returns what is known of a value of a map.
    pub(crate) fn entry(&self) -> Self {
        match self {
            Self::Json(types) => Self::Json(types.map(Node::entry)),
            other => other.clone(),
        }
    }

    /// Returns what is known of the values of an iterator of entries. Fields of an object have different types.
    pub(crate) fn entry_value(&self) -> Self {
        match self {
            Self::Json(types) if !types.nodes.iter().any(|t| matches!(t, Node::Object(_))) => self.entry(),
            _ => Self::Unknown,
        }
    }

    /// Returns the value without the name of its field.
    pub(crate) fn unnamed(self) -> Self {
        match self {
            Self::Json(types) => Self::Json(Types { literal: None, ..types }),
            other => other,
        }
    }

    /// Returns one item of a tuple.
    pub(crate) fn item(&self, index: usize) -> Self {
        match self {
            Self::Tuple(items) => items.get(index).cloned().unwrap_or(Self::Unknown),
            nothing if nothing.is_nothing() => Self::nothing(),
            _ => Self::Unknown,
        }
    }

    /// Whether it contains a closure, whose result depends on its variables.
    pub(crate) fn has_closure(&self) -> bool {
        match self {
            Self::Closure(_) => true,
            Self::Tuple(items) => items.iter().any(Self::has_closure),
            _ => false,
        }
    }
}
