//! Sets of fields, stored as trees (`fieldpath.Set`).

mod fields_v1;
mod operations;

use crate::{path::Path, path_element::PathElement};
use std::sync::Arc;

/// A set of fields. A field can be a member with or without its nested fields.
///
/// Clones share their nodes, and results of set operations share unchanged nodes with their operands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    /// Sorted nodes, each of which is a member or has nested members. `None` if there are none.
    nodes: Option<Arc<Vec<Node>>>,
}

/// Node of the tree: a path element and its nested fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) element: PathElement,
    /// Whether the field itself is a member of the set.
    pub(crate) member: bool,
    pub(crate) nested: Set,
}

impl Set {
    /// Creates a set of paths.
    #[must_use]
    pub fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut set = Self::default();
        paths.into_iter().for_each(|p| set.insert(p));
        set
    }

    /// Creates a set of sorted nodes.
    fn of_nodes(nodes: Vec<Node>) -> Self {
        Self { nodes: (!nodes.is_empty()).then(|| Arc::new(nodes)) }
    }

    /// Creates a set of unsorted nodes, which may contain duplicates. This takes O(n log n), whereas [`Self::put`] moves up
    /// to n nodes for each.
    pub(crate) fn of_unsorted(mut nodes: Vec<Node>) -> Self {
        nodes.retain(|node| node.member || !node.nested.is_empty());
        if nodes.is_sorted_by(|l, r| l.element < r.element) {
            return Self::of_nodes(nodes);
        }
        nodes.sort_by(|l, r| l.element.cmp(&r.element));
        let mut merged: Vec<Node> = Vec::with_capacity(nodes.len());
        let mut nested: Vec<Set> = Vec::new();
        for mut node in nodes {
            match merged.last_mut().filter(|last| last.element == node.element) {
                Some(last) => {
                    last.member |= node.member;
                    nested.push(node.nested);
                }
                None => {
                    Self::merge_nested(&mut merged, &mut nested);
                    nested.push(std::mem::take(&mut node.nested));
                    merged.push(node);
                }
            }
        }
        Self::merge_nested(&mut merged, &mut nested);
        Self::of_nodes(merged)
    }

    /// Sets the nested fields of the last node to the union of its duplicates.
    fn merge_nested(merged: &mut [Node], nested: &mut Vec<Self>) {
        if let Some(last) = merged.last_mut() {
            last.nested = Self::union_all(std::mem::take(nested));
        }
    }

    /// Returns the union of any number of sets, in time proportional to their total size.
    #[must_use]
    pub fn union_all(sets: impl IntoIterator<Item = Self>) -> Self {
        let mut sets: Vec<Self> = sets.into_iter().filter(|set| !set.is_empty()).collect();
        match sets.len() {
            0 | 1 => sets.pop().unwrap_or_default(),
            _ => Self::of_unsorted(sets.iter().flat_map(|set| set.nodes().iter().cloned()).collect()),
        }
    }

    /// Adds a field; an empty path is ignored.
    pub fn insert(&mut self, path: &[PathElement]) {
        if let [element, rest @ ..] = path {
            let node = self.entry(element);
            match rest {
                [] => node.member = true,
                _ => node.nested.insert(rest),
            }
        }
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_none()
    }

    /// Returns whether a field itself is a member.
    #[must_use]
    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [element] => self.has_member(element),
            [element, rest @ ..] => self.get(element).is_some_and(|n| n.nested.has(rest)),
        }
    }

    /// Returns the paths of all members in upstream's order: each level before its nested levels.
    #[must_use]
    pub fn paths(&self) -> Vec<Path> {
        let mut all = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut all);
        all
    }

    fn collect_paths(&self, at: &mut Vec<PathElement>, into: &mut Vec<Path>) {
        for node in self.nodes().iter().filter(|n| n.member) {
            let path = at.iter().chain([&node.element]).cloned().collect();
            into.push(Path(path));
        }
        for node in self.nodes() {
            at.push(node.element.clone());
            node.nested.collect_paths(at, into);
            at.pop();
        }
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        self.nodes.as_ref().map_or(&[], |nodes| nodes.as_slice())
    }

    /// Returns the nodes for modification, cloned if they are shared. The caller must not leave them empty.
    fn nodes_mut(&mut self) -> &mut Vec<Node> {
        Arc::make_mut(self.nodes.get_or_insert_default())
    }

    pub(crate) fn get(&self, element: &PathElement) -> Option<&Node> {
        let nodes = self.nodes();
        nodes.binary_search_by(|n| n.element.cmp(element)).ok().and_then(|i| nodes.get(i))
    }

    /// Returns the node of a field by name.
    pub(crate) fn get_field(&self, name: &str) -> Option<&Node> {
        let nodes = self.nodes();
        let found = nodes.binary_search_by(|n| match &n.element {
            PathElement::Field(field) => field.as_ref().cmp(name),
            _ => std::cmp::Ordering::Greater,
        });
        found.ok().and_then(|i| nodes.get(i))
    }

    pub(crate) fn has_member(&self, element: &PathElement) -> bool {
        self.get(element).is_some_and(|n| n.member)
    }

    /// Adds an element with its nested fields; an element without membership and nested fields is ignored.
    pub(crate) fn put(&mut self, element: PathElement, member: bool, nested: Self) {
        if !member && nested.is_empty() {
            return;
        }
        let (nodes, node) = (self.nodes_mut(), Node { element, member, nested });
        // Elements are usually added in order.
        if nodes.last().is_none_or(|last| last.element < node.element) {
            nodes.push(node);
            return;
        }
        match nodes.binary_search_by(|n| n.element.cmp(&node.element)) {
            Ok(index) => {
                let found = &mut nodes[index];
                found.member |= node.member;
                found.nested = found.nested.union(&node.nested);
            }
            Err(index) => nodes.insert(index, node),
        }
    }

    fn entry(&mut self, element: &PathElement) -> &mut Node {
        let nodes = self.nodes_mut();
        let index = match nodes.binary_search_by(|n| n.element.cmp(element)) {
            Ok(index) => index,
            Err(index) => {
                nodes.insert(index, Node { element: element.clone(), member: false, nested: Self::default() });
                index
            }
        };
        &mut nodes[index]
    }
}
