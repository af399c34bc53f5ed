//! Which fields a request cannot change, and so does not own (upstream's `resetFields`).

use crate::{element::Element, path::Path, set::Set};

/// What of a set of fields counts.
#[derive(Debug, Clone, Default)]
pub enum Filter {
    /// All of it.
    #[default]
    Everything,
    /// Everything but these, and what is below them.
    Without(Set),
    /// Only what this describes.
    Only(Pattern),
}

/// A description of fields.
#[derive(Debug, Clone)]
pub enum Pattern {
    /// Whatever there is.
    Any,
    /// These, each with what of the fields below it counts.
    Fields(Vec<(Step, Pattern)>),
}

/// A step of a [`Pattern`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The field of this name.
    Field(&'static str),
    /// Every item.
    Every,
}

impl Filter {
    /// Everything but these fields and what is below them.
    #[must_use]
    pub fn without(paths: &[&[&str]]) -> Self {
        Self::Without(Set::of(&paths.iter().map(|p| Path::of_fields(p)).collect::<Vec<_>>()))
    }

    /// Only these fields and what is below them; `*` stands for every item.
    #[must_use]
    pub fn only(paths: &[&[&'static str]]) -> Self {
        Self::Only(Pattern::of(paths))
    }

    /// What counts of this set.
    #[must_use]
    pub fn of(&self, set: Set) -> Set {
        match self {
            Self::Everything => set,
            Self::Without(gone) => set.recursive_difference(gone),
            Self::Only(pattern) => pattern.of_set(&set),
        }
    }
}

impl Pattern {
    fn of(paths: &[&[&'static str]]) -> Self {
        if paths.iter().any(|p| p.is_empty()) {
            return Self::Any;
        }
        let mut firsts: Vec<&'static str> = paths.iter().filter_map(|p| p.first().copied()).collect();
        firsts.dedup();
        let below = |first: &str| {
            let rests: Vec<&[&'static str]> = paths.iter().filter(|p| p[0] == first).map(|p| &p[1..]).collect();
            Self::of(&rests)
        };
        let step = |first: &'static str| if first == "*" { Step::Every } else { Step::Field(first) };
        Self::Fields(firsts.into_iter().map(|f| (step(f), below(f))).collect())
    }

    fn of_set(&self, set: &Set) -> Set {
        let Self::Fields(fields) = self else { return set.clone() };
        let mut kept = Set::default();
        for node in set.nodes() {
            let matches = |step: &Step| match (step, &node.element) {
                (Step::Every, _) => true,
                (Step::Field(name), Element::Field(field)) => *name == field.as_ref(),
                (Step::Field(_), _) => false,
            };
            if let Some((_, below)) = fields.iter().find(|(step, _)| matches(step)) {
                kept.put(node.element.clone(), node.member, below.of_set(&node.below));
            }
        }
        kept
    }
}
