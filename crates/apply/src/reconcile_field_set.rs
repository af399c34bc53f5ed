//! Reconciliation of field sets with a changed schema.

use crate::{
    path_element::PathElement,
    schema::{ListType, Map, Shape, Type, TypeId, TypeRef},
    set::{Node, Set},
};

/// Replaces nested fields of values that have become atomic by the values themselves (`ReconcileFieldSetWithSchema`);
/// `None` if the set does not change.
pub(crate) fn reconcile_field_set(type_ref: TypeRef<'_>, set: &Set) -> Option<Set> {
    if !is_outdated(type_ref, set) {
        return None;
    }
    let mut reconciled = Set::default();
    for node in set.nodes() {
        let (member, nested) = match element_type(type_ref, &node.element) {
            Some(type_ref) if !node.nested.is_empty() && is_atomic(type_ref) => (true, Set::default()),
            Some(type_ref) => {
                (node.member, reconcile_field_set(type_ref, &node.nested).unwrap_or_else(|| node.nested.clone()))
            }
            None => (node.member, node.nested.clone()),
        };
        reconciled.put(node.element.clone(), member, nested);
    }
    Some(reconciled)
}

fn is_outdated(type_ref: TypeRef<'_>, set: &Set) -> bool {
    set.nodes().iter().filter(|n| !n.nested.is_empty()).any(|Node { element, nested: fields, .. }| {
        element_type(type_ref, element).is_some_and(|type_ref| is_atomic(type_ref) || is_outdated(type_ref, fields))
    })
}

/// Returns the type of the value at a path element.
pub(crate) fn element_type<'a>(type_ref: TypeRef<'a>, element: &PathElement) -> Option<TypeRef<'a>> {
    let id: Option<TypeId> = match (type_ref.shape(None), element) {
        (Shape::Map(map), PathElement::Field(name)) => map.field_type(name),
        (Shape::List(list), PathElement::Key(_)) => Some(list.element),
        _ => None,
    };
    id.map(|id| type_ref.with_id(id))
}

/// Returns whether a type is declared atomic.
fn is_atomic(type_ref: TypeRef<'_>) -> bool {
    match type_ref.schema.get(type_ref.id) {
        Type::List(list) => list.list_type == ListType::Atomic,
        Type::Map(map) => map.atomic,
        Type::Scalar(_) | Type::Untyped { .. } => false,
    }
}

/// Adds declared fields that have nested fields in the set (`EnsureNamedFieldsAreMembers`).
pub(crate) fn with_named_fields(type_ref: TypeRef<'_>, set: &Set) -> Set {
    let declared =
        |map: &Map, element: &PathElement| matches!(element, PathElement::Field(name) if map.field(name).is_some());
    let map = match type_ref.shape(None) {
        Shape::Map(map) => Some(map),
        Shape::List(_) | Shape::Scalar(_) => None,
    };
    let mut all = Set::default();
    for node in set.nodes() {
        let named = !node.nested.is_empty() && map.is_some_and(|m| declared(m, &node.element));
        let fields = match element_type(type_ref, &node.element) {
            Some(type_ref) => with_named_fields(type_ref, &node.nested),
            None => node.nested.clone(),
        };
        all.put(node.element.clone(), node.member || named, fields);
    }
    all
}
