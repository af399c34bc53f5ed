//! Sets that were written when the schema was another.

use crate::{
    element::Element,
    schema::{ListType, Map, Shape, Type, TypeId, TypeRef},
    set::{Node, Set},
};

/// The set with what has become atomic since owned as a whole; `None` when nothing has.
pub(crate) fn reconcile(of: TypeRef<'_>, set: &Set) -> Option<Set> {
    if !is_outdated(of, set) {
        return None;
    }
    let mut now = Set::default();
    for node in set.nodes() {
        let (member, below) = match below(of, &node.element) {
            Some(of) if !node.below.is_empty() && is_atomic(of) => (true, Set::default()),
            Some(of) => (node.member, reconcile(of, &node.below).unwrap_or_else(|| node.below.clone())),
            None => (node.member, node.below.clone()),
        };
        now.put(node.element.clone(), member, below);
    }
    Some(now)
}

fn is_outdated(of: TypeRef<'_>, set: &Set) -> bool {
    set.nodes().iter().filter(|n| !n.below.is_empty()).any(|Node { element, below: fields, .. }| {
        below(of, element).is_some_and(|of| is_atomic(of) || is_outdated(of, fields))
    })
}

/// The type of what an element leads to.
pub(crate) fn below<'a>(of: TypeRef<'a>, element: &Element) -> Option<TypeRef<'a>> {
    let id: Option<TypeId> = match (of.shape(None), element) {
        (Shape::Map(map), Element::Field(name)) => map.of(name),
        (Shape::List(list), Element::Key(_)) => Some(list.element),
        _ => None,
    };
    id.map(|id| of.at(id))
}

/// Whether the type is declared to be taken as a whole.
fn is_atomic(of: TypeRef<'_>) -> bool {
    match of.schema.get(of.id) {
        Type::List(list) => list.list_type == ListType::Atomic,
        Type::Map(map) => map.atomic,
        Type::Scalar(_) | Type::Untyped { .. } => false,
    }
}

/// Adds declared fields below which there is something.
pub(crate) fn with_named_fields(of: TypeRef<'_>, set: &Set) -> Set {
    let declared = |map: &Map, element: &Element| matches!(element, Element::Field(name) if map.field(name).is_some());
    let map = match of.shape(None) {
        Shape::Map(map) => Some(map),
        Shape::List(_) | Shape::Scalar(_) => None,
    };
    let mut all = Set::default();
    for node in set.nodes() {
        let named = !node.below.is_empty() && map.is_some_and(|m| declared(m, &node.element));
        let fields = match below(of, &node.element) {
            Some(of) => with_named_fields(of, &node.below),
            None => node.below.clone(),
        };
        all.put(node.element.clone(), node.member || named, fields);
    }
    all
}
