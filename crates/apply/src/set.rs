//! A set of fields, kept as a tree.

mod algebra;
mod fields_v1;

use crate::{element::Element, path::Path};
use std::sync::Arc;

/// A set of fields. A field can be in it with or without those below it.
///
/// Clones share what they hold, and so do sets that are made of others as far as those are the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    /// Sorted; none of them is without both membership and members below. `None` when there are none.
    nodes: Option<Arc<Vec<Node>>>,
}

/// What a set holds at and below one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) element: Element,
    /// Whether the field itself is in the set.
    pub(crate) member: bool,
    pub(crate) below: Set,
}

impl Set {
    /// The set of these paths.
    #[must_use]
    pub fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut set = Self::default();
        paths.into_iter().for_each(|p| set.insert(p));
        set
    }

    /// The set of these nodes, which are sorted.
    fn of_nodes(nodes: Vec<Node>) -> Self {
        Self { nodes: (!nodes.is_empty()).then(|| Arc::new(nodes)) }
    }

    /// The set of these nodes, which may be in any order and hold an element several times: n nodes cost n log n, where
    /// [`Self::put`] moves up to n nodes for each.
    pub(crate) fn of_unsorted(mut nodes: Vec<Node>) -> Self {
        nodes.retain(|node| node.member || !node.below.is_empty());
        if nodes.is_sorted_by(|l, r| l.element < r.element) {
            return Self::of_nodes(nodes);
        }
        nodes.sort_by(|l, r| l.element.cmp(&r.element));
        let mut merged: Vec<Node> = Vec::with_capacity(nodes.len());
        let mut below: Vec<Set> = Vec::new();
        for mut node in nodes {
            match merged.last_mut().filter(|last| last.element == node.element) {
                Some(last) => {
                    last.member |= node.member;
                    below.push(node.below);
                }
                None => {
                    Self::settle(&mut merged, &mut below);
                    below.push(std::mem::take(&mut node.below));
                    merged.push(node);
                }
            }
        }
        Self::settle(&mut merged, &mut below);
        Self::of_nodes(merged)
    }

    /// Gives the last node what was found below its element.
    fn settle(merged: &mut [Node], below: &mut Vec<Self>) {
        if let Some(last) = merged.last_mut() {
            last.below = Self::union_all(std::mem::take(below));
        }
    }

    /// The union of any number of sets, which costs their sizes together.
    #[must_use]
    pub fn union_all(sets: impl IntoIterator<Item = Self>) -> Self {
        let mut sets: Vec<Self> = sets.into_iter().filter(|set| !set.is_empty()).collect();
        match sets.len() {
            0 | 1 => sets.pop().unwrap_or_default(),
            _ => Self::of_unsorted(sets.iter().flat_map(|set| set.nodes().iter().cloned()).collect()),
        }
    }

    /// Adds a field; the empty path is none.
    pub fn insert(&mut self, path: &[Element]) {
        if let [element, rest @ ..] = path {
            let node = self.entry(element);
            match rest {
                [] => node.member = true,
                _ => node.below.insert(rest),
            }
        }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_none()
    }

    /// Whether this field itself is in it.
    #[must_use]
    pub fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [element] => self.has_member(element),
            [element, rest @ ..] => self.get(element).is_some_and(|n| n.below.has(rest)),
        }
    }

    /// All fields in it: first those of a level, then those below, as upstream lists them.
    #[must_use]
    pub fn paths(&self) -> Vec<Path> {
        let mut all = Vec::new();
        self.collect(&mut Vec::new(), &mut all);
        all
    }

    fn collect(&self, at: &mut Vec<Element>, into: &mut Vec<Path>) {
        for node in self.nodes().iter().filter(|n| n.member) {
            let path = at.iter().chain([&node.element]).cloned().collect();
            into.push(Path(path));
        }
        for node in self.nodes() {
            at.push(node.element.clone());
            node.below.collect(at, into);
            at.pop();
        }
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        self.nodes.as_ref().map_or(&[], |nodes| nodes.as_slice())
    }

    /// To be changed; where others share them, these become their own. Whoever asks puts something in.
    fn nodes_mut(&mut self) -> &mut Vec<Node> {
        Arc::make_mut(self.nodes.get_or_insert_default())
    }

    pub(crate) fn get(&self, element: &Element) -> Option<&Node> {
        let nodes = self.nodes();
        nodes.binary_search_by(|n| n.element.cmp(element)).ok().and_then(|i| nodes.get(i))
    }

    /// What there is below a field of this name, and whether it is a member itself.
    pub(crate) fn get_field(&self, name: &str) -> Option<&Node> {
        let nodes = self.nodes();
        let found = nodes.binary_search_by(|n| match &n.element {
            Element::Field(field) => field.as_ref().cmp(name),
            _ => std::cmp::Ordering::Greater,
        });
        found.ok().and_then(|i| nodes.get(i))
    }

    pub(crate) fn has_member(&self, element: &Element) -> bool {
        self.get(element).is_some_and(|n| n.member)
    }

    /// Adds an element and what is below it; nothing at all leaves no trace.
    pub(crate) fn put(&mut self, element: Element, member: bool, below: Self) {
        if !member && below.is_empty() {
            return;
        }
        let (nodes, node) = (self.nodes_mut(), Node { element, member, below });
        // Mostly they come in their order.
        if nodes.last().is_none_or(|last| last.element < node.element) {
            nodes.push(node);
            return;
        }
        match nodes.binary_search_by(|n| n.element.cmp(&node.element)) {
            Ok(place) => {
                let found = &mut nodes[place];
                found.member |= node.member;
                found.below = found.below.union(&node.below);
            }
            Err(place) => nodes.insert(place, node),
        }
    }

    fn entry(&mut self, element: &Element) -> &mut Node {
        let nodes = self.nodes_mut();
        let place = match nodes.binary_search_by(|n| n.element.cmp(element)) {
            Ok(place) => place,
            Err(place) => {
                nodes.insert(place, Node { element: element.clone(), member: false, below: Self::default() });
                place
            }
        };
        &mut nodes[place]
    }
}
