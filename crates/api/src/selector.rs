//! Label and field selectors, as query parameters write them (`k8s.io/apimachinery/pkg/{labels,fields}`).

mod labels;

pub use labels::text;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Why a selector cannot be used; upstream answers 400 with these words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// A requirement that is not of the documented form.
    #[error("unable to parse requirement: {0}")]
    Parse(String),
    /// Something else than a requirement, or than a comma between two.
    #[error("{0}")]
    Syntax(String),
    /// A field selector without an operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term {
        /// The whole selector.
        selector: String,
        /// The part that makes no sense.
        term: String,
    },
    /// A backslash before something that needs none.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
}

/// How a requirement compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// One of these values.
    In(Vec<String>),
    /// None of these values, or not set.
    NotIn(Vec<String>),
    /// Set.
    Exists,
    /// Not set.
    DoesNotExist,
    /// An integer above this one.
    GreaterThan(i64),
    /// An integer below this one.
    LessThan(i64),
}

/// A key and how it compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// The comparison.
    pub op: Op,
}

/// Requirements that must all hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

impl Selector {
    /// Reads `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`. An empty string selects everything.
    ///
    /// # Errors
    /// When it is not of that form, or a key or value is no label's.
    pub fn parse(s: &str) -> Result<Self, SelectorError> {
        Ok(Self { requirements: labels::parse(s)? })
    }

    /// Turns a `LabelSelector` object into a selector. An unknown operator selects nothing upstream; here it is an error.
    ///
    /// # Errors
    /// For an unknown operator.
    pub fn from_object(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let mut requirements: Vec<Requirement> = selector
            .match_labels
            .iter()
            .flatten()
            .map(|(k, v)| Requirement { key: k.clone(), op: Op::In(vec![v.clone()]) })
            .collect();
        for e in selector.match_expressions.iter().flatten() {
            let values = e.values.clone().unwrap_or_default();
            let op = match e.operator.as_str() {
                "In" => Op::In(values),
                "NotIn" => Op::NotIn(values),
                "Exists" => Op::Exists,
                "DoesNotExist" => Op::DoesNotExist,
                other => {
                    return Err(SelectorError::Parse(format!("{other:?} is not a valid label selector operator")));
                }
            };
            requirements.push(Requirement { key: e.key.clone(), op });
        }
        Ok(Self { requirements })
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object with these labels is selected.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|r| {
            let value = label(&r.key);
            match &r.op {
                Op::In(values) => value.is_some_and(|v| values.iter().any(|x| x == v)),
                Op::NotIn(values) => !value.is_some_and(|v| values.iter().any(|x| x == v)),
                Op::Exists => value.is_some(),
                Op::DoesNotExist => value.is_none(),
                Op::GreaterThan(n) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v > *n),
                Op::LessThan(n) => value.and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v < *n),
            }
        })
    }
}

/// A field selector: fields that must equal a value or must not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    /// Field, value, and whether they must be equal.
    pub terms: Vec<(String, String, bool)>,
}

impl FieldSelector {
    /// Reads `a=b,c==d,e!=f`; `\,`, `\=` and `\\` in values stand for themselves.
    ///
    /// # Errors
    /// When a part has no operator, or an escape sequence is unknown.
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

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value that a field must have, if it must have one.
    #[must_use]
    pub fn required(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|(f, _, equal)| *equal && f == field).map(|(_, v, _)| v.as_str())
    }

    /// Whether an object with these field values is selected; an unset field is the empty string.
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
            // An operator sign inside a value must be escaped.
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
        let s = Selector::parse(selector).unwrap();
        let got = s.matches(|k| labels.iter().find(|(key, _)| *key == k).map(|(_, v)| *v));
        assert_eq!(got, expected, "{selector} on {labels:?}");
    }

    #[test]
    fn label_selectors_match_as_documented() {
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
    fn broken_label_selectors_are_refused() {
        for bad in
            ["=", "a=b,", ",a", "a in b", "a in (b", "a ~ b", "a=b c", "a b", "-a=b", "a=-b", "a>x", "!", "a=b=c"]
        {
            assert!(Selector::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn field_selectors_match_as_documented() {
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
        fn no_selector_panics(s in "\\PC{0,40}") {
            let _ = Selector::parse(&s);
            let _ = FieldSelector::parse(&s);
        }
    }
}
