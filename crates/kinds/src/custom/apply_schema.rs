//! Types of custom kinds for server-side apply.

use crate::apply_types;
use apply::{Field, List, ListType, Map, Scalar, Schema as Types, Type, TypeId};
use schema::{AdditionalProperties, JsonType, Schema};

/// Builds the types of a resource from its schema. Returns them with the resource's type.
pub(super) fn build_types(resource: &Schema) -> (Types, TypeId) {
    let mut builder = Builder { types: Types::default() };
    let root = builder.resource(resource);
    let mut types = builder.types;
    types.shrink();
    (types, root)
}

struct Builder {
    types: Types,
}

impl Builder {
    fn resource(&mut self, schema: &Schema) -> TypeId {
        let text = self.types.add(Type::Scalar(Scalar::String));
        let metadata = apply_types::metadata(&mut self.types);
        let mut fields = self.fields(schema);
        fields.retain(|f| !matches!(f.name.as_ref(), "apiVersion" | "kind" | "metadata"));
        for (name, type_id) in [("apiVersion", text), ("kind", text), ("metadata", metadata)] {
            fields.push(Field { name: name.into(), type_id, default: None, implied: None });
        }
        let element = self.element(schema);
        self.types.add(Type::Map(Map { fields, element, atomic: false }))
    }

    fn value(&mut self, schema: &Schema) -> TypeId {
        let scalar = match schema.kind {
            _ if schema.int_or_string => Scalar::Any,
            Some(JsonType::String) => Scalar::String,
            Some(JsonType::Integer | JsonType::Number) => Scalar::Numeric,
            Some(JsonType::Boolean) => Scalar::Boolean,
            Some(JsonType::Object) if schema.embedded => return self.resource(schema),
            Some(JsonType::Object) => {
                let (fields, element) = (self.fields(schema), self.element(schema));
                return self.types.add(Type::Map(Map { fields, element, atomic: schema.atomic }));
            }
            Some(JsonType::Array) => {
                let element = schema.items.as_ref().map_or(Types::UNTYPED, |items| self.value(items));
                let list_type = match &schema.list_type {
                    schema::ListType::Atomic => ListType::Atomic,
                    schema::ListType::Set => ListType::Set,
                    schema::ListType::Map(keys) => ListType::Map(keys.clone()),
                };
                return self.types.add(Type::List(List { element, list_type }));
            }
            None => return Types::UNTYPED,
        };
        self.types.add(Type::Scalar(scalar))
    }

    fn fields(&mut self, schema: &Schema) -> Vec<Field> {
        let mut fields = Vec::with_capacity(schema.properties.len());
        for (name, property) in &schema.properties {
            let (type_ref, default) = (self.value(property), property.default.clone());
            fields.push(Field { name: name.as_ref().into(), type_id: type_ref, default, implied: None });
        }
        fields
    }

    /// Returns the type of undeclared fields; `None` if they are pruned.
    fn element(&mut self, schema: &Schema) -> Option<TypeId> {
        match &schema.additional {
            AdditionalProperties::Schema(like) => Some(self.value(like)),
            AdditionalProperties::Allowed => Some(Types::UNTYPED),
            _ if schema.preserve_unknown_fields || schema.properties.is_empty() => Some(Types::UNTYPED),
            AdditionalProperties::Unspecified | AdditionalProperties::Forbidden => None,
        }
    }
}
