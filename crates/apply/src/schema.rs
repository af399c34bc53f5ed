//! Schemas for merging (`structured-merge-diff/schema`).

use serde_json::Value;
use std::sync::Arc;

/// The types of one or more kinds.
#[derive(Debug)]
pub struct Schema {
    types: Vec<Type>,
}

/// Identifier of a type in a [`Schema`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeId(usize);

/// A type, which determines how its values are validated and merged.
#[derive(Debug, Clone)]
pub enum Type {
    /// A scalar.
    Scalar(Scalar),
    /// A list.
    List(List),
    /// A struct or a map.
    Map(Map),
    /// An untyped value, whose JSON type determines how it is merged. Lists are atomic; maps are granular unless `atomic`.
    Untyped {
        /// Whether maps are atomic, too.
        atomic: bool,
    },
}

/// Types of scalars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// A string.
    String,
    /// A number.
    Numeric,
    /// A boolean.
    Boolean,
    /// Any scalar, such as a port number or name.
    Any,
}

/// Type of a list.
#[derive(Debug, Clone)]
pub struct List {
    /// The type of its items.
    pub element: TypeId,
    /// How items are identified and merged (`x-kubernetes-list-type`).
    pub list_type: ListType,
}

/// Merge behavior of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListType {
    /// The list has one owner and is replaced as a whole.
    Atomic,
    /// The items are unique scalars.
    Set,
    /// The items are maps, identified by the values of these fields (`x-kubernetes-list-map-keys`).
    Map(Vec<Box<str>>),
}

/// Type of a struct or a map.
#[derive(Debug, Clone)]
pub struct Map {
    /// Declared fields.
    pub fields: Vec<Field>,
    /// Type of undeclared fields; `None` if only declared fields are allowed.
    pub element: Option<TypeId>,
    /// Whether the map is atomic (`x-kubernetes-map-type`).
    pub atomic: bool,
}

/// A declared field.
#[derive(Debug, Clone)]
pub struct Field {
    /// Name of the field, shared with field sets.
    pub name: Arc<str>,
    /// Type of the field.
    pub type_id: TypeId,
    /// Default of a missing key field of a list item.
    pub default: Option<Value>,
    /// Value that upstream serializes for an unset field: `{}` for a struct that Go holds by value, null for a list without
    /// `omitempty`. Implied values have no owner.
    pub implied: Option<Value>,
}

/// Reference to a type of a schema.
#[derive(Debug, Clone, Copy)]
pub struct TypeRef<'a> {
    /// The schema.
    pub schema: &'a Schema,
    /// The type.
    pub id: TypeId,
}

/// Resolved type of a value (`schema.Atom`).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape<'a> {
    Scalar(Scalar),
    List(&'a List),
    Map(&'a Map),
}

static UNTYPED_LIST: List = List { element: Schema::UNTYPED_ATOMIC, list_type: ListType::Atomic };
static UNTYPED_MAP: Map = Map { fields: Vec::new(), element: Some(Schema::UNTYPED), atomic: false };
static UNTYPED_ATOMIC_MAP: Map = Map { fields: Vec::new(), element: Some(Schema::UNTYPED_ATOMIC), atomic: true };

impl Default for Schema {
    fn default() -> Self {
        Self { types: vec![Type::Untyped { atomic: false }, Type::Untyped { atomic: true }] }
    }
}

impl Schema {
    /// Untyped value with granular maps (`deduced`).
    pub const UNTYPED: TypeId = TypeId(0);
    /// Untyped atomic value.
    pub const UNTYPED_ATOMIC: TypeId = TypeId(1);

    /// Adds a type.
    pub fn add(&mut self, definition: Type) -> TypeId {
        let mut definition = definition;
        if let Type::Map(map) = &mut definition {
            map.fields.sort_by(|l, r| l.name.cmp(&r.name));
        }
        self.types.push(definition);
        TypeId(self.types.len() - 1)
    }

    /// Declares a type, which is untyped until [`Self::define`] defines it.
    pub fn declare(&mut self) -> TypeId {
        self.add(Type::Untyped { atomic: false })
    }

    /// Defines a declared type.
    pub fn define(&mut self, id: TypeId, definition: Type) {
        let made = self.add(definition);
        let last = self.types.pop();
        debug_assert_eq!(made.0, self.types.len());
        if let (Some(declared), Some(definition)) = (self.types.get_mut(id.0), last) {
            *declared = definition;
        }
    }

    /// Returns a type of this schema.
    #[must_use]
    pub fn get(&self, id: TypeId) -> &Type {
        // Only an id of another schema can be out of bounds.
        self.types.get(id.0).unwrap_or(&Type::Untyped { atomic: false })
    }

    /// Releases unused memory once all types are added.
    pub fn shrink(&mut self) {
        self.types.shrink_to_fit();
    }
}

impl<'a> TypeRef<'a> {
    /// Returns a reference to another type of the same schema.
    pub(crate) fn with_id(self, id: TypeId) -> Self {
        Self { id, ..self }
    }

    /// Resolves the type for a value; an untyped null or missing value is a map.
    pub(crate) fn shape(self, value: Option<&Value>) -> Shape<'a> {
        match self.schema.get(self.id) {
            Type::Scalar(scalar) => Shape::Scalar(*scalar),
            Type::List(list) => Shape::List(list),
            Type::Map(map) => Shape::Map(map),
            Type::Untyped { atomic } => match value {
                Some(Value::Array(_)) => Shape::List(&UNTYPED_LIST),
                None | Some(Value::Null | Value::Object(_)) if *atomic => Shape::Map(&UNTYPED_ATOMIC_MAP),
                None | Some(Value::Null | Value::Object(_)) => Shape::Map(&UNTYPED_MAP),
                Some(_) => Shape::Scalar(Scalar::Any),
            },
        }
    }
}

impl Map {
    /// Returns a declared field by name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.binary_search_by(|f| f.name.as_ref().cmp(name)).ok().and_then(|i| self.fields.get(i))
    }

    /// Returns the type of the value of a key.
    pub(crate) fn field_type(&self, key: &str) -> Option<TypeId> {
        self.field(key).map(|f| f.type_id).or(self.element)
    }
}

impl Shape<'_> {
    /// Returns whether both are scalars, lists or maps.
    pub(crate) fn is_same_kind(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Shape::Scalar(_), Shape::Scalar(_)) | (Shape::List(_), Shape::List(_)) | (Shape::Map(_), Shape::Map(_))
        )
    }
}
