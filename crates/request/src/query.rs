//! Query parameters of a request.

use api::text::parse_query_bool;
use errors::ApiError;
use std::collections::BTreeMap;

/// Query parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    /// Parses a query string.
    #[must_use]
    pub fn parse(query: &str) -> Self {
        let mut all = BTreeMap::new();
        for (key, value) in form_urlencoded::parse(query.as_bytes()).into_owned() {
            // Of duplicate parameters, the first one is used.
            all.entry(key).or_insert(value);
        }
        Self(all)
    }

    /// Returns a parameter; `None` if it is empty.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// Whether the query contains a parameter, also without a value.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Returns a boolean parameter, which is false by default.
    #[must_use]
    pub fn flag(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|v| parse_query_bool(v))
    }

    /// Parses a numeric parameter.
    ///
    /// # Errors
    /// A 400 when it is not a number of the type.
    pub fn number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, ApiError> {
        let error = |v: &str| match v.parse::<i64>() {
            Ok(_) => ApiError::bad_request(format!("{key}: Invalid value: {v:?}: must be a non-negative integer")),
            Err(_) => ApiError::bad_request(format!("strconv.ParseInt: parsing {v:?}: invalid syntax")),
        };
        self.get(key).map(|v| v.parse().map_err(|_| error(v))).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_percent_decoded() {
        let q = Query::parse("labelSelector=a%3Db%2Cc&watch&x=%zz&y=1+2");
        assert_eq!(
            (q.get("labelSelector"), q.flag("watch"), q.get("x"), q.get("y")),
            (Some("a=b,c"), true, Some("%zz"), Some("1 2"))
        );
    }
}
