//! Type checking of the expressions of validating policies (`pkg/controller/validatingadmissionpolicystatus`).

use crate::{ALL, SchemaResolver, apply_types};
use ::admission::{
    Type,
    policy::{self, ResourceType},
};
use apply::{Scalar, Type as Shape, TypeRef};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// Maximum depth of types, some of which are recursive. Deeper values are `Dyn`.
const MAX_DEPTH: usize = 16;

/// Sets `observedGeneration` and `typeChecking` of a policy's status.
pub(super) fn set_type_checking_status(policy: &mut Value, resolver: SchemaResolver<'_>) {
    let params = &policy["spec"]["paramKind"];
    let [version, kind] = ["apiVersion", "kind"].map(|field| params[field].as_str().unwrap_or(""));
    let params = apply_types::type_ref(version, kind).map(|type_ref| expression_type(type_ref, 0)).or_else(|| {
        let (group, version) = version.rsplit_once('/')?;
        resolver(group, version, kind).map(|known| with_metadata(known.object))
    });
    let find = |group: &str, version: &str, resource: &str| {
        built_in_type(group, version, resource).or_else(|| {
            let ResourceType { kind, object } = resolver(group, version, resource)?;
            Some(ResourceType { kind, object: with_metadata(object) })
        })
    };
    let warnings = policy::type_check(&policy["spec"], params.as_ref(), &find);
    let all = warnings.iter().map(|w| json!({"fieldRef": w.field, "warning": w.warning})).collect::<Vec<_>>();
    let type_checking = if all.is_empty() { json!({}) } else { json!({"expressionWarnings": all}) };
    let generation = policy["metadata"]["generation"].clone();
    policy["status"]["observedGeneration"] = generation;
    policy["status"]["typeChecking"] = type_checking;
}

/// Returns the type of a built-in resource.
fn built_in_type(group: &str, version: &str, resource: &str) -> Option<ResourceType> {
    let mut all = ALL.iter().map(|kind| kind.info());
    let info = all.find(|i| (i.group, i.version, i.plural) == (group, version, resource))?;
    let type_ref = apply_types::type_ref(&info.api_version(), info.kind)?;
    let kind = format!("{}/{}, Kind={}", info.group, info.version, info.kind);
    Some(ResourceType { kind, object: expression_type(type_ref, 0) })
}

/// Adds the type of metadata to that of a custom kind.
fn with_metadata(object: Type) -> Type {
    let Type::Object(mut fields) = object else { return object };
    let any = apply_types::type_ref("v1", "ConfigMap").map(|type_ref| expression_type(type_ref, 0));
    if let Some(Type::Object(known)) = any
        && let Some(metadata) = known.get("metadata")
    {
        Arc::make_mut(&mut fields).insert("metadata".to_owned(), metadata.clone());
    }
    Type::Object(fields)
}

/// Returns the CEL type of a type.
fn expression_type(type_ref: TypeRef<'_>, depth: usize) -> Type {
    if depth > MAX_DEPTH {
        return Type::Dyn;
    }
    let at = |id| expression_type(TypeRef { id, ..type_ref }, depth + 1);
    match type_ref.schema.get(type_ref.id) {
        Shape::Scalar(Scalar::String) => Type::STRING,
        Shape::Scalar(Scalar::Boolean) => Type::BOOL,
        // Only the schemas of definitions have non-integer numbers (`maximum`, `minimum`, `multipleOf`). Comparing them with 1.5
        // gets a warning.
        Shape::Scalar(Scalar::Numeric) => Type::INT,
        Shape::Scalar(Scalar::Any) | Shape::Untyped { .. } => Type::Dyn,
        Shape::List(list) => Type::list(at(list.element)),
        Shape::Map(map) => match map.element {
            Some(element) if map.fields.is_empty() => Type::Map(Box::new(at(element))),
            Some(_) => Type::Dyn,
            None => {
                let fields: BTreeMap<String, Type> =
                    map.fields.iter().map(|field| (field.name.to_string(), at(field.type_id))).collect();
                Type::Object(Arc::new(fields))
            }
        },
    }
}
