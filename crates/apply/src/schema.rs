//! What an object is made of, as far as merging it goes.

use serde_json::Value;
use std::sync::Arc;

/// All types of a kind, or of many.
#[derive(Debug)]
pub struct Schema {
    types: Vec<Type>,
}

/// A type of a [`Schema`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeId(usize);

/// How values of a type are checked and merged.
#[derive(Debug, Clone)]
pub enum Type {
    /// A plain value.
    Scalar(Scalar),
    /// A list.
    List(List),
    /// A struct or a map.
    Map(Map),
    /// Nothing is declared: each value says itself what it is. Lists are atomic; maps are merged, unless `atomic`.
    Untyped {
        /// Whether maps are taken as a whole, too.
        atomic: bool,
    },
}

/// Plain values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// A string.
    String,
    /// A number.
    Numeric,
    /// True or false.
    Boolean,
    /// Any of them, such as a port by number or name.
    Any,
}

/// A list.
#[derive(Debug, Clone)]
pub struct List {
    /// The type of its items.
    pub element: TypeId,
    /// What makes an item the same as another (`x-kubernetes-list-type`).
    pub list_type: ListType,
}

/// How lists are merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListType {
    /// As a whole: one owner, replaced by whoever applies it.
    Atomic,
    /// Plain values, each of which is there once.
    Set,
    /// Maps that are told apart by the values of these fields (`x-kubernetes-list-map-keys`).
    Map(Vec<Box<str>>),
}

/// A struct or a map.
#[derive(Debug, Clone)]
pub struct Map {
    /// Declared fields.
    pub fields: Vec<Field>,
    /// The type of every other value; without one, there is no other.
    pub element: Option<TypeId>,
    /// Whether it is taken as a whole (`x-kubernetes-map-type`).
    pub atomic: bool,
}

/// A declared field.
#[derive(Debug, Clone)]
pub struct Field {
    /// Its name, which sets of fields share.
    pub name: Arc<str>,
    /// Its type.
    pub of: TypeId,
    /// What an absent one stands for when it is a key of a list's item.
    pub default: Option<Value>,
    /// What is there when nobody said anything: `{}` for a struct that Go holds by value, null for a list that it
    /// always writes. Nobody owns what is there anyway.
    pub implied: Option<Value>,
}

/// A type together with the schema that knows what it is made of.
#[derive(Debug, Clone, Copy)]
pub struct TypeRef<'a> {
    /// The schema.
    pub schema: &'a Schema,
    /// The type.
    pub id: TypeId,
}

/// How a value is taken, once it is clear what it is.
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
    /// Anything; maps are merged field by field.
    pub const UNTYPED: TypeId = TypeId(0);
    /// Anything, as a whole.
    pub const UNTYPED_ATOMIC: TypeId = TypeId(1);

    /// Adds a type.
    pub fn add(&mut self, of: Type) -> TypeId {
        let mut of = of;
        if let Type::Map(map) = &mut of {
            map.fields.sort_by(|l, r| l.name.cmp(&r.name));
        }
        self.types.push(of);
        TypeId(self.types.len() - 1)
    }

    /// A type that is not known yet; [`Self::define`] says what it is. Until then it is untyped.
    pub fn declare(&mut self) -> TypeId {
        self.add(Type::Untyped { atomic: false })
    }

    /// Says what a declared type is.
    pub fn define(&mut self, id: TypeId, of: Type) {
        let made = self.add(of);
        let last = self.types.pop();
        debug_assert_eq!(made.0, self.types.len());
        if let (Some(place), Some(of)) = (self.types.get_mut(id.0), last) {
            *place = of;
        }
    }

    /// A type of this schema.
    #[must_use]
    pub fn get(&self, id: TypeId) -> &Type {
        // Only an id of another schema can be out of bounds.
        self.types.get(id.0).unwrap_or(&Type::Untyped { atomic: false })
    }

    /// Forgets space that is not needed once all types are there.
    pub fn shrink(&mut self) {
        self.types.shrink_to_fit();
    }
}

impl<'a> TypeRef<'a> {
    /// Another type of the same schema.
    pub(crate) fn at(self, id: TypeId) -> Self {
        Self { id, ..self }
    }

    /// How this value of the type is taken; one that does not tell is taken as a map.
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
    /// The declared field of this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.binary_search_by(|f| f.name.as_ref().cmp(name)).ok().and_then(|i| self.fields.get(i))
    }

    /// The type of the value under this key.
    pub(crate) fn of(&self, key: &str) -> Option<TypeId> {
        self.field(key).map(|f| f.of).or(self.element)
    }
}

impl Shape<'_> {
    /// Whether two values are taken in the same way.
    pub(crate) fn is_like(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Shape::Scalar(_), Shape::Scalar(_)) | (Shape::List(_), Shape::List(_)) | (Shape::Map(_), Shape::Map(_))
        )
    }
}
