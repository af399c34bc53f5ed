//! Schemas of built-in kinds for server-side apply, built from the [message table](wire::protobuf::message_table) of types.

use crate::{ALL, KindInfo, WriteTarget};
use apply::{Field, Filter, List, ListType, Map, Scalar, Schema, Type, TypeId, TypeRef};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::LazyLock};
use wire::protobuf::{
    merge_strategies,
    message_table::{Cardinality, Field as MessageField, Message, TABLE, ValueType},
};

/// Returns the type of a built-in kind.
pub fn type_ref(api_version: &str, kind: &str) -> Option<TypeRef<'static>> {
    let root = TYPES.roots.iter().find(|r| r.kind == kind && r.api_version == api_version)?;
    Some(TypeRef { schema: &TYPES.schema, id: root.id })
}

/// Adds the type of `ObjectMeta` to a schema.
pub(crate) fn metadata(schema: &mut Schema) -> TypeId {
    let mut builder = Builder { schema: std::mem::take(schema), messages: HashMap::new() };
    let id = TABLE.message("meta/v1.ObjectMeta").map_or(Schema::UNTYPED, |message| builder.message(message));
    *schema = builder.schema;
    id
}

static TYPES: LazyLock<Types> = LazyLock::new(Types::default);

struct Types {
    schema: Schema,
    roots: Vec<Root>,
}

struct Root {
    api_version: String,
    kind: &'static str,
    id: TypeId,
}

impl Default for Types {
    fn default() -> Self {
        let mut builder = Builder { schema: Schema::default(), messages: HashMap::new() };
        let mut roots = Vec::new();
        // Kinds of subresources.
        let subresources = [("autoscaling/v1".to_owned(), "Scale")];
        let kinds = ALL.iter().map(|k| (k.info().api_version(), k.info().kind)).chain(subresources);
        for (api_version, kind) in kinds {
            if let Some(message) = TABLE.kind(&api_version, kind) {
                let fields = builder.with_type(message);
                let id = builder.schema.add(Type::Map(Map { fields, element: None, atomic: message.atomic }));
                roots.push(Root { api_version, kind, id });
            }
        }
        let Builder { mut schema, .. } = builder;
        schema.shrink();
        Self { schema, roots }
    }
}

struct Builder {
    schema: Schema,
    /// Types that have been added, by the name of their message.
    messages: HashMap<&'static str, TypeId>,
}

impl Builder {
    /// Returns the fields of a kind. Its message does not contain `apiVersion` and `kind`.
    fn with_type(&mut self, message: &'static Message) -> Vec<Field> {
        let text = self.scalar(Scalar::String);
        let named = |name: &str| Field { name: name.into(), type_id: text, default: None, implied: None };
        let mut fields = self.fields(message);
        fields.extend(["apiVersion", "kind"].map(named));
        fields
    }

    fn message(&mut self, message: &'static Message) -> TypeId {
        if let Some(id) = self.messages.get(message.name.as_str()) {
            return *id;
        }
        // Messages can be recursive.
        let id = self.schema.declare();
        self.messages.insert(&message.name, id);
        let fields = if message.has_type_meta { self.with_type(message) } else { self.fields(message) };
        self.schema.define(id, Type::Map(Map { fields, element: None, atomic: message.atomic }));
        id
    }

    fn fields(&mut self, message: &'static Message) -> Vec<Field> {
        let mut fields = Vec::with_capacity(message.fields.len());
        for field in &message.fields {
            match (field.cardinality, field.value_type) {
                (Cardinality::Inline, ValueType::Message(index)) => fields.extend(self.fields(&TABLE.messages[index])),
                _ => {
                    let field_type = self.field(field);
                    // Only the defaults of keys of list items are used.
                    let (default, implied) = (field.declared_default().or_else(|| zero(field)), implied(field));
                    fields.push(Field { name: field.name.into(), type_id: field_type, default, implied });
                }
            }
        }
        fields
    }

    fn field(&mut self, field: &'static MessageField) -> TypeId {
        let apply = merge_strategies::apply(field);
        let atomic = matches!(apply, Some(("atomic", _)));
        let element = match field.value_type {
            ValueType::String | ValueType::Bytes | ValueType::Time | ValueType::MicroTime | ValueType::Duration => {
                self.scalar(Scalar::String)
            }
            ValueType::Bool => self.scalar(Scalar::Boolean),
            ValueType::Int32 | ValueType::Int64 | ValueType::Double => self.scalar(Scalar::Numeric),
            ValueType::Quantity | ValueType::IntOrString => self.scalar(Scalar::Any),
            ValueType::Raw | ValueType::Json | ValueType::BoolOr(_) | ValueType::ListOr(_) => Schema::UNTYPED,
            ValueType::Strings => {
                let element = self.scalar(Scalar::String);
                self.schema.add(Type::List(List { element, list_type: ListType::Atomic }))
            }
            ValueType::Message(index) => self.message(&TABLE.messages[index]),
        };
        match (field.cardinality, field.value_type) {
            (Cardinality::List, _) => {
                let list_type = match apply {
                    Some(("set", _)) => ListType::Set,
                    Some(("map", keys)) => ListType::Map(keys.into_iter().map(Into::into).collect()),
                    _ => ListType::Atomic,
                };
                self.schema.add(Type::List(List { element, list_type }))
            }
            (Cardinality::Map, _) => {
                self.schema.add(Type::Map(Map { fields: Vec::new(), element: Some(element), atomic }))
            }
            // A field can be atomic although its type is not.
            (_, ValueType::Message(index)) if atomic => {
                let fields = self.fields(&TABLE.messages[index]);
                self.schema.add(Type::Map(Map { fields, element: None, atomic }))
            }
            _ => element,
        }
    }

    fn scalar(&mut self, scalar: Scalar) -> TypeId {
        let name = match scalar {
            Scalar::String => "string",
            Scalar::Boolean => "bool",
            Scalar::Numeric => "number",
            Scalar::Any => "any",
        };
        *self.messages.entry(name).or_insert_with(|| self.schema.add(Type::Scalar(scalar)))
    }
}

/// Returns the value that Go's struct has when a field is absent.
fn implied(field: &MessageField) -> Option<Value> {
    match (field.cardinality, field.value_type) {
        (Cardinality::Plain, ValueType::Message(_)) => Some(json!({})),
        (Cardinality::List | Cardinality::Map, _) if field.always_encoded => Some(Value::Null),
        _ => zero(field),
    }
}

/// Returns the zero value of a plain field without `omitempty`.
fn zero(field: &MessageField) -> Option<Value> {
    match (field.cardinality, field.value_type) {
        (Cardinality::Plain, ValueType::String) if field.always_encoded => Some(json!("")),
        (Cardinality::Plain, ValueType::Int32 | ValueType::Int64) if field.always_encoded => Some(json!(0)),
        (Cardinality::Plain, ValueType::Bool) if field.always_encoded => Some(json!(false)),
        _ => None,
    }
}

/// Returns the filter of fields that requests to this part of an object can own: upstream's `GetResetFields`, for most
/// kinds.
pub fn reset_fields_filter(info: &KindInfo, target: WriteTarget) -> Filter {
    match target {
        WriteTarget::Status => {
            let retained: Vec<[&str; 2]> =
                info.reset_by_status_update.iter().map(|field| ["metadata", field]).collect();
            let paths: Vec<&[&str]> =
                std::iter::once(&["spec"][..]).chain(retained.iter().map(|path| &path[..])).collect();
            Filter::without(&paths)
        }
        WriteTarget::Main | WriteTarget::Sub(_) if info.status => Filter::without(&[&["status"]]),
        WriteTarget::Main | WriteTarget::Sub(_) => Filter::Everything,
    }
}
