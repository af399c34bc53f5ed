//! Unions, intersections and differences of sets.

use super::{Node, Set};
use std::{cmp::Ordering, iter::Peekable, sync::Arc};

/// How many times larger than another set one must be for it to be small beside it.
const SMALL: usize = 16;

/// Two sorted lists of nodes side by side, by element.
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
    /// Whether these are one set, shared by two: most of what an apply compares is.
    fn is_shared_with(&self, other: &Self) -> bool {
        matches!((&self.nodes, &other.nodes), (Some(l), Some(r)) if Arc::ptr_eq(l, r))
    }

    /// Whether looking up each of these nodes in the other set is cheaper than walking through both: an object may have
    /// many managers, and each of them is compared with everything that changes.
    fn is_small_beside(&self, other: &Self) -> bool {
        self.nodes().len().saturating_mul(SMALL) < other.nodes().len()
    }

    /// What is in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        if self.is_empty() {
            return other.clone();
        }
        if other.is_empty() || self.is_shared_with(other) {
            return self.clone();
        }
        let joined = zip(self, other).filter_map(|pair| match pair {
            (Some(l), Some(r)) => {
                Some(Node { element: l.element.clone(), member: l.member || r.member, below: l.below.union(&r.below) })
            }
            (one, other) => one.or(other).cloned(),
        });
        Self::of_nodes(joined.collect())
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        if self.is_shared_with(other) {
            return self.clone();
        }
        let mut common = Self::default();
        let mut put = |l: &Node, r: &Node| {
            common.put(l.element.clone(), l.member && r.member, l.below.intersection(&r.below));
        };
        match (self.is_small_beside(other), other.is_small_beside(self)) {
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

    /// What is in this and not in the other. That a field is in the other says nothing about those below it.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.without(other, false)
    }

    /// What is in this, and neither itself in the other nor below a field that is.
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
        let mut rest = Self::default();
        let mut put = |l: &Node, r: Option<&Node>| match r {
            None => rest.put(l.element.clone(), l.member, l.below.clone()),
            Some(r) if recursive && r.member => {}
            Some(r) => rest.put(l.element.clone(), l.member && !r.member, l.below.without(&r.below, recursive)),
        };
        if self.is_small_beside(other) {
            self.nodes().iter().for_each(|l| put(l, other.get(&l.element)));
        } else {
            zip(self, other).filter_map(|(l, r)| Some((l?, r))).for_each(|(l, r)| put(l, r));
        }
        rest
    }
}
