//! Reset fields: fields that a request cannot change and therefore does not own (`ResetFieldsStrategy`).

use crate::{path::Path, path_element::PathElement, set::Set};

/// Filter of field sets (`fieldpath.Filter`).
#[derive(Debug, Clone, Default)]
pub enum Filter {
    /// Keeps all fields.
    #[default]
    Everything,
    /// Removes these fields and their nested fields (`NewExcludeSetFilter`).
    Without(Set),
    /// Keeps only the fields that match the pattern (`NewIncludeMatcherFilter`).
    Only(FieldPattern),
}

/// Pattern of fields (`fieldpath.SetMatcher`).
#[derive(Debug, Clone)]
pub enum FieldPattern {
    /// Matches all fields.
    Any,
    /// Matches these fields, each with a pattern for its nested fields.
    Fields(Vec<(PatternStep, FieldPattern)>),
}

/// Step of a [`FieldPattern`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatternStep {
    /// Matches a field by name.
    Field(&'static str),
    /// Matches every field or item.
    Wildcard,
}

impl Filter {
    /// Creates a filter that removes these fields and their nested fields.
    #[must_use]
    pub fn without(paths: &[&[&str]]) -> Self {
        Self::Without(Set::of(&paths.iter().map(|p| Path::of_fields(p)).collect::<Vec<_>>()))
    }

    /// Creates a filter that keeps only these fields and their nested fields; `*` matches every item.
    #[must_use]
    pub fn only(paths: &[&[&'static str]]) -> Self {
        Self::Only(FieldPattern::of(paths))
    }

    /// Returns the filtered set (`Filter.Filter`).
    #[must_use]
    pub fn of(&self, set: Set) -> Set {
        match self {
            Self::Everything => set,
            Self::Without(excluded) => set.recursive_difference(excluded),
            Self::Only(pattern) => pattern.filter_set(&set),
        }
    }
}

impl FieldPattern {
    fn of(paths: &[&[&'static str]]) -> Self {
        if paths.iter().any(|p| p.is_empty()) {
            return Self::Any;
        }
        let mut first_steps: Vec<&'static str> = paths.iter().filter_map(|p| p.first().copied()).collect();
        first_steps.dedup();
        let nested = |first: &str| {
            let rests: Vec<&[&'static str]> = paths.iter().filter(|p| p[0] == first).map(|p| &p[1..]).collect();
            Self::of(&rests)
        };
        let step = |first: &'static str| if first == "*" { PatternStep::Wildcard } else { PatternStep::Field(first) };
        Self::Fields(first_steps.into_iter().map(|f| (step(f), nested(f))).collect())
    }

    fn filter_set(&self, set: &Set) -> Set {
        let Self::Fields(fields) = self else { return set.clone() };
        let mut retained = Set::default();
        for node in set.nodes() {
            let matches = |step: &PatternStep| match (step, &node.element) {
                (PatternStep::Wildcard, _) => true,
                (PatternStep::Field(name), PathElement::Field(field)) => *name == field.as_ref(),
                (PatternStep::Field(_), _) => false,
            };
            if let Some((_, nested)) = fields.iter().find(|(step, _)| matches(step)) {
                retained.put(node.element.clone(), node.member, nested.filter_set(&node.nested));
            }
        }
        retained
    }
}
