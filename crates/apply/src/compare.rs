//! What became of an object.

use crate::{
    element::Element,
    field_set::element,
    identity::{Identity, identity},
    schema::{List, ListType, Map, Shape, TypeRef},
    set::Set,
    value,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// How one object differs from another. No field is in more than one of these.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Fields that only the first has.
    pub removed: Set,
    /// Fields that both have, with other values.
    pub modified: Set,
    /// Fields that only the second has.
    pub added: Set,
}

impl Comparison {
    /// Whether there is no difference.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }
}

/// Compares two objects of this type; items of lists that have no identity are left out.
#[must_use]
pub fn compare(of: TypeRef<'_>, old: Option<&Value>, new: Option<&Value>) -> Comparison {
    any(of, old, new).below
}

/// What became of a field itself, and of those below it.
#[derive(Default)]
struct Change {
    removed: bool,
    modified: bool,
    added: bool,
    below: Comparison,
}

impl Change {
    /// One that is looked at as a whole.
    fn leaf(old: Option<&Value>, new: Option<&Value>) -> Self {
        Self {
            added: old.is_none(),
            removed: old.is_some() && new.is_none(),
            modified: matches!((old, new), (Some(old), Some(new)) if !value::equal(old, new)),
            below: Comparison::default(),
        }
    }

    /// Notes what became of a field below this one.
    fn put(&mut self, element: Element, change: Self) {
        let below = &mut self.below;
        let sets = [
            (&mut below.removed, change.removed, change.below.removed),
            (&mut below.modified, change.modified, change.below.modified),
            (&mut below.added, change.added, change.below.added),
        ];
        // Mostly one of them has anything to note.
        for (set, member, below) in sets {
            if member || !below.is_empty() {
                set.put(element.clone(), member, below);
            }
        }
    }

    fn is_empty(&self) -> bool {
        !(self.removed || self.modified || self.added) && self.below.is_same()
    }
}

fn any(of: TypeRef<'_>, old: Option<&Value>, new: Option<&Value>) -> Change {
    // What did not change, as most did not, has no differences below.
    if old == new {
        return Change::default();
    }
    let (left, right) = (of.shape(old), of.shape(new));
    if new.is_none() {
        return shaped(of, left, old, new);
    }
    if old.is_none() || left.is_like(right) {
        return shaped(of, right, old, new);
    }
    // It became another kind of value: what it had goes, and it is another as a whole.
    let mut change = shaped(of, left, old, None);
    let now = shaped(of, right, None, new);
    change.below.added = now.below.added;
    Change { modified: true, removed: false, added: false, ..change }
}

fn shaped(of: TypeRef<'_>, shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) -> Change {
    match shape {
        Shape::Scalar(_) => Change::leaf(old, new),
        Shape::List(list) => {
            let (l, r) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
            let empty = |v: Option<&Vec<Value>>| v.is_none_or(Vec::is_empty);
            if list.list_type == ListType::Atomic || (empty(l) && empty(r)) {
                return Change::leaf(old, new);
            }
            let change = items(of, list, l.map_or(&[], Vec::as_slice), r.map_or(&[], Vec::as_slice));
            Change { added: old.is_none(), removed: new.is_none(), ..change }
        }
        Shape::Map(map) => {
            let (l, r) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let empty = |v: Option<&serde_json::Map<String, Value>>| v.is_none_or(serde_json::Map::is_empty);
            if map.atomic || (empty(l) && empty(r)) {
                return Change::leaf(old, new);
            }
            let change = fields(of, map, l, r);
            Change { added: old.is_none(), removed: new.is_none(), ..change }
        }
    }
}

fn fields(
    of: TypeRef<'_>,
    map: &Map,
    old: Option<&serde_json::Map<String, Value>>,
    new: Option<&serde_json::Map<String, Value>>,
) -> Change {
    let mut change = Change::default();
    let mut visit = |key: &str, of: TypeRef<'_>, l: Option<&Value>, r: Option<&Value>| {
        let below = any(of, l, r);
        if !below.is_empty() {
            change.put(element(map.field(key), key), below);
        }
    };
    // What is there anyway when the map itself is.
    let implied = |key: &str, map_is: bool| map.field(key).and_then(|f| f.implied.as_ref()).filter(|_| map_is);
    for (key, l) in old.into_iter().flatten() {
        let Some(id) = map.of(key) else { continue };
        let r = new.and_then(|n| n.get(key)).or_else(|| implied(key, new.is_some()));
        visit(key, of.at(id), Some(l), r);
    }
    for (key, r) in new.into_iter().flatten().filter(|(k, _)| old.is_none_or(|o| !o.contains_key(*k))) {
        let Some(id) = map.of(key) else { continue };
        visit(key, of.at(id), implied(key, old.is_some()), Some(r));
    }
    if old.is_some() != new.is_some() {
        let said = |key: &str| old.or(new).is_some_and(|m| m.contains_key(key));
        for field in map.fields.iter().filter(|f| f.implied.is_some() && !said(&f.name)) {
            visit(
                &field.name,
                of.at(field.of),
                implied(&field.name, old.is_some()),
                implied(&field.name, new.is_some()),
            );
        }
    }
    change
}

fn items(of: TypeRef<'_>, list: &List, old: &[Value], new: &[Value]) -> Change {
    let mut all: BTreeMap<Identity<'_>, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old {
        if let Ok(identity) = identity(of, list, item) {
            all.entry(identity).or_default().0.push(item);
        }
    }
    for item in new {
        if let Ok(identity) = identity(of, list, item) {
            all.entry(identity).or_default().1.push(item);
        }
    }
    let mut change = Change::default();
    for (identity, (old, new)) in all {
        let below = match (old.as_slice(), new.as_slice()) {
            (old @ ([] | [_]), new @ ([] | [_])) => {
                any(of.at(list.element), old.first().copied(), new.first().copied())
            }
            // Those that stand twice are owned together, as one.
            ([_, _, ..], [_, _, ..]) => Change { modified: !same(&old, &new), ..Change::default() },
            ([_, _, ..], new) => {
                let change = any(of.at(list.element), None, new.first().copied());
                Change { removed: true, added: !new.is_empty(), ..change }
            }
            (old, _) => {
                let change = any(of.at(list.element), old.first().copied(), None);
                Change { removed: !old.is_empty(), added: true, ..change }
            }
        };
        if !below.is_empty() {
            change.put((&identity).into(), below);
        }
    }
    change
}

fn same(old: &[&Value], new: &[&Value]) -> bool {
    old.len() == new.len() && old.iter().zip(new).all(|(l, r)| value::equal(l, r))
}
