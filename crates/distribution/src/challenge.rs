//! Challenges of `WWW-Authenticate` (RFC 9110, section 11.6.1), as containerd parses them.

use http::{HeaderMap, header};
use std::collections::HashMap;

/// Maximum number of challenges of a response, and of parameters of a challenge.
const MAX_COUNT: usize = 16;

/// Scheme of a challenge, in the order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AuthScheme {
    Bearer,
    Basic,
}

/// Challenge of a registry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) scheme: AuthScheme,
    /// Parameters by their lower-case names.
    pub(crate) parameters: HashMap<String, String>,
}

/// Returns the supported challenges of a response, the best first.
pub(crate) fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let values = headers.get_all(header::WWW_AUTHENTICATE).iter().take(MAX_COUNT);
    let mut found: Vec<Challenge> = values.filter_map(|value| parse(value.to_str().ok()?)).collect();
    found.sort_by_key(|challenge| challenge.scheme);
    found
}

fn parse(header: &str) -> Option<Challenge> {
    let (scheme, mut rest) = token(header.trim_start());
    let scheme = match scheme.to_lowercase().as_str() {
        "bearer" => AuthScheme::Bearer,
        "basic" => AuthScheme::Basic,
        _ => return None,
    };
    let mut parameters = HashMap::new();
    while parameters.len() < MAX_COUNT {
        let (name, after) = token(rest.trim_start());
        let Some(after) = after.strip_prefix('=').filter(|_| !name.is_empty()) else { break };
        let Some((value, after)) = token_or_quoted(after) else { break };
        parameters.insert(name.to_lowercase(), value);
        let Some(after) = after.trim_start().strip_prefix(',') else { break };
        rest = after;
    }
    Some(Challenge { scheme, parameters })
}

fn token(text: &str) -> (&str, &str) {
    let is_token = |c: char| c.is_ascii_graphic() && !"\"(),/:;<=>?@[]\\{}".contains(c);
    text.split_at(text.find(|c| !is_token(c)).unwrap_or(text.len()))
}

/// Returns a token or a quoted string, and the text after it; `None` without a closing quote.
fn token_or_quoted(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = token(text);
        return Some((value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            _ => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, scheme: AuthScheme, parameters: &[(&str, &str)]) {
        let parameters = parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(parse(header), Some(Challenge { scheme, parameters }), "{header}");
    }

    #[test]
    fn challenges_are_parsed() {
        check(
            r#"Bearer realm="https://auth.test/token",service="registry.test",scope="repository:a/b:pull,push""#,
            AuthScheme::Bearer,
            &[
                ("realm", "https://auth.test/token"),
                ("service", "registry.test"),
                ("scope", "repository:a/b:pull,push"),
            ],
        );
        check(r#"BASIC Realm = "x""#, AuthScheme::Basic, &[]);
        check(
            r#"basic Realm="a \"b\" \\", charset=UTF-8"#,
            AuthScheme::Basic,
            &[("realm", r#"a "b" \"#), ("charset", "UTF-8")],
        );
        check("Basic", AuthScheme::Basic, &[]);
        for malformed in [r#"Bearer realm="https"#, r#"Bearer realm="a\"#, "Bearer =", "Bearer é=1"] {
            check(malformed, AuthScheme::Bearer, &[]);
        }
        for unsupported in ["", "Digest realm=\"a\"", "Negotiate", "\"Basic\""] {
            assert_eq!(parse(unsupported), None, "{unsupported}");
        }
    }

    #[test]
    fn bearer_is_preferred() {
        let mut headers = HeaderMap::new();
        for value in ["Basic realm=\"a\"", "Digest", "Bearer realm=\"b\""] {
            headers.append(header::WWW_AUTHENTICATE, value.parse().unwrap());
        }
        let schemes: Vec<AuthScheme> = challenges(&headers).iter().map(|challenge| challenge.scheme).collect();
        assert_eq!(schemes, [AuthScheme::Bearer, AuthScheme::Basic]);
    }
}
