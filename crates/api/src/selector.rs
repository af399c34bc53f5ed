//! Label and field selectors (`k8s.io/apimachinery/pkg/{labels,fields}`).

mod labels;

pub use labels::{
    RequirementError, RequirementValueError, UnexpectedToken, UnknownOperatorError, format_label_selector,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Error for an invalid selector, with the message of upstream's 400 response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// Invalid requirement.
    #[error("unable to parse requirement: {0}")]
    Requirement(#[from] RequirementError),
    /// Unexpected token between requirements.
    #[error(transparent)]
    UnexpectedToken(#[from] UnexpectedToken),
    /// Field selector without an operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term {
        /// The whole selector.
        selector: String,
        /// The invalid term.
        term: String,
    },
    /// Invalid escape sequence in a field selector.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
}

/// Operator of a requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operator {
    /// The value is one of these.
    In(Vec<String>),
    /// The value is none of these, or the label is not set.
    NotIn(Vec<String>),
    /// The label is set.
    Exists,
    /// The label is not set.
    DoesNotExist,
    /// The value is an integer greater than this one.
    GreaterThan(i64),
    /// The value is an integer less than this one.
    LessThan(i64),
}

/// A requirement of a label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// The operator.
    pub op: Operator,
}

/// A label selector: requirements that must all match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelRequirements {
    requirements: Vec<Requirement>,
}

impl LabelRequirements {
    /// Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`. An empty string selects everything.
    ///
    /// # Errors
    /// For a syntax error, or an invalid label key or value.
    pub fn parse(s: &str) -> Result<Self, SelectorError> {
        Ok(Self { requirements: labels::parse(s)? })
    }

    /// Converts a `LabelSelector` (`LabelSelectorAsSelector`). An unknown operator selects nothing upstream; here it is an
    /// error.
    ///
    /// # Errors
    /// For an unknown operator.
    pub fn from_object(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let mut requirements: Vec<Requirement> = selector
            .match_labels
            .iter()
            .flatten()
            .map(|(k, v)| Requirement { key: k.clone(), op: Operator::In(vec![v.clone()]) })
            .collect();
        for e in selector.match_expressions.iter().flatten() {
            let values = e.values.clone().unwrap_or_default();
            let op = match e.operator.as_str() {
                "In" => Operator::In(values),
                "NotIn" => Operator::NotIn(values),
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(RequirementError::UnknownOperator(other.to_owned()).into()),
            };
            requirements.push(Requirement { key: e.key.clone(), op });
        }
        Ok(Self { requirements })
    }

    /// Returns whether the selector has no requirements and selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns whether an object with these labels is selected.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|r| {
            let value = label(&r.key);
            match &r.op {
                Operator::In(values) => value.is_some_and(|v| values.iter().any(|x| x == v)),
                Operator::NotIn(values) => !value.is_some_and(|v| values.iter().any(|x| x == v)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
                Operator::GreaterThan(n) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v > *n),
                Operator::LessThan(n) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v < *n),
            }
        })
    }
}

/// A field selector.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    /// Field, value, and whether they must be equal or unequal.
    pub terms: Vec<(String, String, bool)>,
}

impl FieldSelector {
    /// Parses `a=b,c==d,e!=f`; `\,`, `\=` and `\\` are escape sequences in values.
    ///
    /// # Errors
    /// When a term has no operator, or for an unknown escape sequence.
    pub fn parse(s: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for term in split_unescaped(s) {
            if term.is_empty() {
                continue;
            }
            let error = || SelectorError::Term { selector: s.to_owned(), term: term.to_owned() };
            let at = term.find(['=', '!']).ok_or_else(error)?;
            let (field, rest) = term.split_at(at);
            let (value, equal) = if let Some(v) = rest.strip_prefix("!=") {
                (v, false)
            } else if let Some(v) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
                (v, true)
            } else {
                return Err(error());
            };
            terms.push((field.to_owned(), unescape(value)?, equal));
        }
        Ok(Self { terms })
    }

    /// Returns whether the selector has no terms and selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the value that a field must have (`RequiresExactMatch`).
    #[must_use]
    pub fn required(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|(f, _, equal)| *equal && f == field).map(|(_, v, _)| v.as_str())
    }

    /// Returns whether an object with these field values is selected; an unset field is the empty string.
    pub fn matches(&self, field: impl Fn(&str) -> String) -> bool {
        self.terms.iter().all(|(f, v, equal)| (field(f) == *v) == *equal)
    }
}

fn split_unescaped(s: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (i, c) in s.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&s[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&s[start..]);
    parts
}

fn unescape(s: &str) -> Result<String, SelectorError> {
    let (mut out, mut chars) = (String::with_capacity(s.len()), s.chars());
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some(e @ ('\\' | ',' | '=')) => out.push(e),
                other => {
                    return Err(SelectorError::Escape(format!("\\{}", other.map(String::from).unwrap_or_default())));
                }
            },
            // `=` and `,` in values must be escaped.
            ('=' | ',', _) => return Err(SelectorError::Escape(c.to_string())),
            _ => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(selector: &str, labels: &[(&str, &str)], expected: bool) {
        let s = LabelRequirements::parse(selector).unwrap();
        let got = s.matches(|k| labels.iter().find(|(key, _)| *key == k).map(|(_, v)| *v));
        assert_eq!(got, expected, "{selector} on {labels:?}");
    }

    #[test]
    fn label_selector_matches_as_documented() {
        let labels = [("app", "web"), ("tier", "1"), ("x.io/y", "")];
        for (selector, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier=1", true),
            ("app = web , tier = 1", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (db, web)", true),
            ("app notin (db,web)", false),
            ("other notin (a)", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("tier>0", true),
            ("tier<1", false),
            ("x.io/y=", true),
            ("x.io/y in ()", true),
        ] {
            check(selector, &labels, expected);
        }
    }

    #[test]
    fn invalid_label_selector_is_refused() {
        for bad in
            ["=", "a=b,", ",a", "a in b", "a in (b", "a ~ b", "a=b c", "a b", "-a=b", "a=-b", "a>x", "!", "a=b=c"]
        {
            assert!(LabelRequirements::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn field_selector_matches_as_documented() {
        let field = |f: &str| {
            if f == "status.phase" { "Running".to_owned() } else { String::new() }
        };
        for (selector, expected) in [
            ("", true),
            ("status.phase=Running", true),
            ("status.phase==Running,spec.nodeName!=n1", true),
            ("status.phase!=Running", false),
            ("spec.nodeName=", true),
        ] {
            assert_eq!(FieldSelector::parse(selector).unwrap().matches(field), expected, "{selector}");
        }
        assert_eq!(FieldSelector::parse(r"a=b\,c\=d").unwrap().required("a"), Some("b,c=d"));
        for bad in ["a", "a=b,c", r"a=\x", "a!b", "a=b=c"] {
            assert!(FieldSelector::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn selector_parsers_never_panic(s in "\\PC{0,40}") {
            let _ = LabelRequirements::parse(&s);
            let _ = FieldSelector::parse(&s);
        }
    }
}
