//! URLs from user input, encoded as Go's `net/url` encodes them.

use super::join_host_port;
use fluent_uri::{ParseError, Uri, UriRef, resolve::ResolveError};
use std::fmt::Write;

/// Invalid URL.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UrlError {
    /// The host is invalid.
    #[error("parse {url:?}: {source}")]
    Parse { url: String, source: ParseError },
    #[error("failed to parse Location header {location:?}: {source}")]
    Location { location: String, source: ParseError },
    #[error("failed to parse Location header {location:?}: {source}")]
    Resolve { location: String, source: ResolveError },
}

/// Builds the URL of an `httpGet`. The path may have a query, and may lack the leading slash.
pub(super) fn build(scheme: &str, host: &str, port: u16, path: &str) -> Result<Uri<String>, UrlError> {
    let path = path.split('#').next().unwrap_or_default();
    let path = percent_encode(path.strip_prefix('/').unwrap_or(path), |c| matches!(c, '[' | ']'));
    let text = format!("{scheme}://{}/{path}", join_host_port(host, port));
    Uri::parse(text).map_err(|(source, url)| UrlError::Parse { url, source })
}

/// Resolves a `Location` header against the request's URL.
pub(super) fn resolve(here: &Uri<String>, location: &str) -> Result<Uri<String>, UrlError> {
    let location = percent_encode(location, |_| false);
    let reference =
        UriRef::parse(location.as_str()).map_err(|source| UrlError::Location { location: location.clone(), source })?;
    reference.resolve_against(here).map_err(|source| UrlError::Resolve { location: location.clone(), source })
}

/// Returns the host in lower case, an IPv6 address without brackets.
pub(super) fn host(uri: &Uri<String>) -> String {
    let host = uri.authority().map(|a| a.host()).unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']').to_lowercase()
}

/// Returns the port, or the default port of the scheme.
pub(super) fn port(uri: &Uri<String>) -> u16 {
    let port = uri.authority().and_then(|a| a.port_to_u16().ok().flatten());
    port.unwrap_or(if uri.scheme().as_str() == "https" { 443 } else { 80 })
}

/// Returns path and query, as in a request line.
pub(super) fn path(uri: &Uri<String>) -> String {
    let path = Some(uri.path().as_str()).filter(|p| !p.is_empty()).unwrap_or("/");
    uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"))
}

/// Percent-encodes characters that are invalid in URLs, and those that `also` matches.
fn percent_encode(text: &str, also: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let hex = |i: usize| text.as_bytes().get(at + i).is_some_and(u8::is_ascii_hexdigit);
        let valid = match c {
            '%' => hex(1) && hex(2),
            '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}' => false,
            c => c.is_ascii_graphic() && !also(c),
        };
        if valid {
            out.push(c);
        } else {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_encoded_as_go_encodes_it() {
        for (path, expected) in [
            ("", "/"),
            ("/", "/"),
            ("healthz", "/healthz"),
            ("/healthz?verbose=1&x=a?b", "/healthz?verbose=1&x=a?b"),
            ("/a b/ä#part", "/a%20b/%C3%A4"),
            ("/100%/%41[0]", "/100%25/%41%5B0%5D"),
            ("/a/../b", "/a/../b"),
        ] {
            let uri = build("http", "::1", 80, path).expect("a URL");
            assert_eq!(
                (uri.as_str(), super::path(&uri).as_str()),
                (format!("http://[::1]:80{expected}").as_str(), expected)
            );
        }
        assert!(build("http", "no host", 80, "/").is_err());
    }

    #[test]
    fn location_is_resolved_against_the_request_url() {
        let here = build("http", "10.0.0.7", 8080, "/a/b?x").expect("a URL");
        for (location, expected) in [
            ("/c", "http://10.0.0.7:8080/c"),
            ("c", "http://10.0.0.7:8080/a/c"),
            ("../c d", "http://10.0.0.7:8080/c%20d"),
            ("?y", "http://10.0.0.7:8080/a/b?y"),
            ("//EXAMPLE.com/c", "http://EXAMPLE.com/c"),
            ("https://10.0.0.7/", "https://10.0.0.7/"),
        ] {
            assert_eq!(resolve(&here, location).expect("a URL").as_str(), expected, "{location}");
        }
        let there = resolve(&here, "https://[::1]").expect("a URL");
        assert_eq!((host(&there).as_str(), port(&there), super::path(&there).as_str()), ("::1", 443, "/"));
        assert!(resolve(&here, "http://[").is_err());
    }
}
