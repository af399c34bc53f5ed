//! Union, intersection and difference of sets.

use super::{Node, Set};
use std::{cmp::Ordering, iter::Peekable, sync::Arc};

/// Size ratio from which the nodes of the smaller set are looked up in the larger one.
const LOOKUP_RATIO: usize = 16;

/// Iterator over the nodes of two sets, paired by element.
struct Zip<'a, L: Iterator<Item = &'a Node>, R: Iterator<Item = &'a Node>>(Peekable<L>, Peekable<R>);

impl<'a, L: Iterator<Item = &'a Node>, R: Iterator<Item = &'a Node>> Iterator for Zip<'a, L, R> {
    type Item = (Option<&'a Node>, Option<&'a Node>);

    fn next(&mut self) -> Option<Self::Item> {
        let order = match (self.0.peek(), self.1.peek()) {
            (Some(l), Some(r)) => l.element.cmp(&r.element),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return None,
        };
        Some(match order {
            Ordering::Less => (self.0.next(), None),
            Ordering::Greater => (None, self.1.next()),
            Ordering::Equal => (self.0.next(), self.1.next()),
        })
    }
}

fn zip<'a>(left: &'a Set, right: &'a Set) -> impl Iterator<Item = (Option<&'a Node>, Option<&'a Node>)> {
    Zip(left.nodes().iter().peekable(), right.nodes().iter().peekable())
}

impl Set {
    /// Returns whether both share their nodes, as most sets in an apply do.
    fn is_shared_with(&self, other: &Self) -> bool {
        matches!((&self.nodes, &other.nodes), (Some(l), Some(r)) if Arc::ptr_eq(l, r))
    }

    /// Returns whether looking up each node in the other set is cheaper than iterating over both. An object may have many
    /// managers, and each of them is compared with all changes.
    fn is_much_smaller_than(&self, other: &Self) -> bool {
        self.nodes().len().saturating_mul(LOOKUP_RATIO) < other.nodes().len()
    }

    /// Returns the members of either set (`Set.Union`).
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        if self.is_empty() {
            return other.clone();
        }
        if other.is_empty() || self.is_shared_with(other) {
            return self.clone();
        }
        let union = zip(self, other).filter_map(|pair| match pair {
            (Some(l), Some(r)) => Some(Node {
                element: l.element.clone(),
                member: l.member || r.member,
                nested: l.nested.union(&r.nested),
            }),
            (one, other) => one.or(other).cloned(),
        });
        Self::of_nodes(union.collect())
    }

    /// Returns the members of both sets (`Set.Intersection`).
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        if self.is_shared_with(other) {
            return self.clone();
        }
        let mut common = Self::default();
        let mut put = |l: &Node, r: &Node| {
            common.put(l.element.clone(), l.member && r.member, l.nested.intersection(&r.nested));
        };
        match (self.is_much_smaller_than(other), other.is_much_smaller_than(self)) {
            (true, _) => {
                self.nodes().iter().filter_map(|l| Some((l, other.get(&l.element)?))).for_each(|(l, r)| put(l, r));
            }
            (_, true) => {
                other.nodes().iter().filter_map(|r| Some((self.get(&r.element)?, r))).for_each(|(l, r)| put(l, r));
            }
            _ => zip(self, other).filter_map(|(l, r)| Some((l?, r?))).for_each(|(l, r)| put(l, r)),
        }
        common
    }

    /// Returns the members that are not in the other set (`Set.Difference`). Nested fields of members of the other set stay.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.without(other, false)
    }

    /// Returns the members that are neither in the other set nor nested in one of its members (`Set.RecursiveDifference`).
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.without(other, true)
    }

    fn without(&self, other: &Self, recursive: bool) -> Self {
        if other.is_empty() {
            return self.clone();
        }
        if self.is_shared_with(other) {
            return Self::default();
        }
        let mut difference = Self::default();
        let mut put = |l: &Node, r: Option<&Node>| match r {
            None => difference.put(l.element.clone(), l.member, l.nested.clone()),
            Some(r) if recursive && r.member => {}
            Some(r) => difference.put(l.element.clone(), l.member && !r.member, l.nested.without(&r.nested, recursive)),
        };
        if self.is_much_smaller_than(other) {
            self.nodes().iter().for_each(|l| put(l, other.get(&l.element)));
        } else {
            zip(self, other).filter_map(|(l, r)| Some((l?, r))).for_each(|(l, r)| put(l, r));
        }
        difference
    }
}
