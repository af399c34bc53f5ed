//! Results of authorization, and the matching of URLs in its rules.

/// The decision of an authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Allowed, with a reason that may be empty.
    Allowed(String),
    /// Not allowed by any rule, with a reason that may be empty.
    NoOpinion(String),
}

/// Whether the URL of a rule, which may end in `*`, matches a path (`NonResourceURLMatches`).
#[must_use]
pub fn non_resource_url_matches(rule: &str, path: &str) -> bool {
    rule == "*" || rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}
