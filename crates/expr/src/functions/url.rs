//! URL parser with the semantics and error messages of Go's `net/url`.

use crate::{EvalError, Value, eval::Outcome, value::Key};
use api::go_quote::quoted;
use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

/// Unescaped characters of a host.
const HOST_CHARS: &[u8] = b"!$&'()*+,;=:[]<>\"-_.~";
/// Unescaped characters of a path.
const PATH_CHARS: &[u8] = b"-_.~$&+,/:;=@";
/// Additional characters of a path that is already escaped.
const ESCAPED_PATH_CHARS: &[u8] = b"!'()*[]%";
/// Characters of userinfo.
const USERINFO_CHARS: &[u8] = b"-._:~!$&'()*+,;=%@";

/// Returns whether a string is a URL (`isURL`).
pub(super) fn is_url(text: &str) -> bool {
    Url::parse(text, true).is_ok()
}

/// Creates a URL (`url`) with its scheme in lower case, because URLs are compared by their spelling.
pub(super) fn create(text: &str) -> Outcome {
    let wrong = |text: &str, error: UrlError| {
        EvalError::new(format!("URL parse error during conversion from string: parse {}: {error}", quoted(text)))
    };
    Url::parse(text, true).map_err(|error| wrong(text, error))?;
    // The fragment is not part of the path or query.
    let (whole, fragment) = text.split_once('#').unwrap_or((text, ""));
    let url = Url::parse(whole, false).map_err(|error| wrong(whole, error))?;
    unescape(fragment, UrlPart::Other).map_err(|error| wrong(text, error))?;
    let rest = &text[url.scheme.len()..];
    Ok(Value::Url(Arc::from([url.scheme.as_str(), rest].concat())))
}

/// Calls a method of a URL.
pub(super) fn call_method(name: &str, text: &str) -> Outcome {
    let whole = text.split_once('#').map_or(text, |(whole, _)| whole);
    let url = Url::parse(whole, false).map_err(|_| EvalError::overload())?;
    Ok(match name {
        "getScheme" => Value::string(&url.scheme),
        "getHost" => Value::string(&url.host),
        "getHostname" => Value::string(url.host_and_port().0),
        "getPort" => Value::string(url.host_and_port().1),
        "getEscapedPath" => Value::string(&url.escaped_path()),
        "getQuery" => url.query(),
        _ => return Err(EvalError::overload()),
    })
}

/// Error for an invalid URL, with Go's message.
#[derive(Debug, thiserror::Error)]
enum UrlError {
    #[error("net/url: invalid control character in URL")]
    ControlCharacter,
    #[error("empty url")]
    Empty,
    #[error("invalid URI for request")]
    NotAbsolute,
    #[error("first path segment in URL cannot contain colon")]
    ColonInFirstSegment,
    #[error("missing protocol scheme")]
    MissingScheme,
    #[error("net/url: invalid userinfo")]
    Userinfo,
    #[error("missing ']' in host")]
    MissingBracket,
    #[error("invalid port {} after host", quoted(.0))]
    Port(String),
    #[error("invalid IP-literal")]
    IpLiteral,
    #[error("invalid host: ParseAddr({}): unable to parse IP", quoted(.0))]
    IpAddress(String),
    #[error("invalid character {} in host name", quoted(.0.encode_utf8(&mut [0; 4])))]
    HostCharacter(char),
    #[error("invalid URL escape {}", quoted(.0))]
    Escape(String),
}

#[derive(Debug, Default)]
struct Url<'a> {
    scheme: String,
    host: String,
    /// The path as written.
    path: &'a str,
    query: &'a str,
}

impl<'a> Url<'a> {
    /// Parses a URL (`url.parse`); with `via_request`, it must be absolute or an absolute path.
    fn parse(text: &'a str, via_request: bool) -> Result<Self, UrlError> {
        if text.bytes().any(|b| b.is_ascii_control()) {
            return Err(UrlError::ControlCharacter);
        }
        match text {
            "" if via_request => return Err(UrlError::Empty),
            "*" => return Ok(Self { path: text, ..Self::default() }),
            _ => {}
        }
        let (scheme, rest) = split_scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self { scheme: scheme.to_ascii_lowercase(), query, ..Self::default() };
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                // An opaque URL.
                return Ok(url);
            }
            if via_request {
                return Err(UrlError::NotAbsolute);
            }
            if rest.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err(UrlError::ColonInFirstSegment);
            }
        }
        url.path = rest;
        let may_have_host = !scheme.is_empty() || !via_request && !rest.starts_with("///");
        if let Some(authority) = rest.strip_prefix("//").filter(|_| may_have_host) {
            let (authority, path) = authority.find('/').map_or((authority, ""), |i| authority.split_at(i));
            (url.host, url.path) = (parse_authority(authority)?, path);
        }
        unescape(url.path, UrlPart::Other)?;
        Ok(url)
    }

    /// Splits the host into name and port (`splitHostPort`).
    fn host_and_port(&self) -> (&str, &str) {
        let port = self.host.rfind(':').filter(|i| is_optional_port(&self.host[*i..]));
        let (host, port) = port.map_or((self.host.as_str(), ""), |i| (&self.host[..i], &self.host[i + 1..]));
        (host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port)
    }

    /// Returns the escaped path (`EscapedPath`): the path as written if it is validly escaped.
    fn escaped_path(&self) -> String {
        let is_escaped =
            |b: u8| b.is_ascii_alphanumeric() || PATH_CHARS.contains(&b) || ESCAPED_PATH_CHARS.contains(&b);
        if self.path == "*" || self.path.bytes().all(is_escaped) {
            return self.path.to_owned();
        }
        let plain = unescape(self.path, UrlPart::Other).unwrap_or_default();
        let digit = |n: u8| char::from_digit(n.into(), 16).unwrap_or_default().to_ascii_uppercase();
        let mut escaped = String::new();
        for b in plain {
            if b.is_ascii_alphanumeric() || PATH_CHARS.contains(&b) {
                escaped.push(char::from(b));
            } else {
                escaped.extend(['%', digit(b >> 4), digit(b & 15)]);
            }
        }
        escaped
    }

    /// Parses the query (`ParseQuery`); invalid pairs are skipped.
    fn query(&self) -> Value {
        let mut all: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let plain = |text: &str| {
                let bytes = unescape(&text.replace('+', " "), UrlPart::Other).ok()?;
                Some(String::from_utf8_lossy(&bytes).into_owned())
            };
            if let (Some(key), Some(value)) = (plain(key), plain(value)) {
                all.entry(Key::String(key.into())).or_default().push(Value::string(&value));
            }
        }
        Value::Map(Arc::new(all.into_iter().map(|(key, values)| (key, Value::list(values))).collect()))
    }
}

/// Splits off the scheme (`getScheme`).
fn split_scheme(text: &str) -> Result<(&str, &str), UrlError> {
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
    match text.bytes().position(|b| !is_part(b)) {
        Some(0) if text.starts_with(':') => Err(UrlError::MissingScheme),
        Some(end) if text[end..].starts_with(':') && text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Ok((&text[..end], &text[end + 1..]))
        }
        _ => Ok(("", text)),
    }
}

/// Parses the authority and returns its host (`parseAuthority`).
fn parse_authority(authority: &str) -> Result<String, UrlError> {
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let host = parse_host(host)?;
    if let Some(user) = user {
        if !user.bytes().all(|b| b.is_ascii_alphanumeric() || USERINFO_CHARS.contains(&b)) {
            return Err(UrlError::Userinfo);
        }
        unescape(user, UrlPart::Other)?;
    }
    Ok(host)
}

fn parse_host(host: &str) -> Result<String, UrlError> {
    let bad_port = |port: &str| UrlError::Port(port.to_owned());
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let Some(open) = host.rfind('[') else {
        let port = host.rfind(':').map_or("", |i| &host[i..]);
        return if is_optional_port(port) { unescape(host, UrlPart::Host).map(text) } else { Err(bad_port(port)) };
    };
    let close = host.rfind(']').filter(|close| *close > open).ok_or(UrlError::MissingBracket)?;
    let port = &host[close + 1..];
    if !is_optional_port(port) {
        return Err(bad_port(port));
    }
    let name = &host[open + 1..close];
    let (before, zone) = name.split_at(name.find("%25").unwrap_or(name.len()));
    let plain = [text(unescape(before, UrlPart::Host)?), text(unescape(zone, UrlPart::Zone)?)].concat();
    let address = plain.split_once('%').map_or(plain.as_str(), |(address, _)| address);
    match address.parse() {
        Ok(IpAddr::V6(_)) => Ok(format!("[{plain}]{port}")),
        Ok(IpAddr::V4(_)) => Err(UrlError::IpLiteral),
        Err(_) => Err(UrlError::IpAddress(plain)),
    }
}

/// Returns whether a string is an optional port: empty, or a colon and digits.
fn is_optional_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
}

/// Component of a URL, which determines the allowed escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UrlPart {
    Host,
    Zone,
    Other,
}

/// Decodes percent-escapes.
fn unescape(text: &str, part: UrlPart) -> Result<Vec<u8>, UrlError> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    let in_host = |b: u8| b.is_ascii_alphanumeric() || HOST_CHARS.contains(&b);
    while let Some((first, tail)) = rest.split_first() {
        if *first != b'%' {
            if part != UrlPart::Other && first.is_ascii() && !in_host(*first) {
                return Err(UrlError::HostCharacter(char::from(*first)));
            }
            bytes.push(*first);
            rest = tail;
            continue;
        }
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.filter(|hex| !hex.starts_with('+')).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let allowed = byte.filter(|byte| match part {
            // Escaped bytes of a host must not be ASCII, except the percent sign before a zone.
            UrlPart::Host => !byte.is_ascii() || hex == Some("25"),
            UrlPart::Zone => hex == Some("25") || *byte == b' ' || in_host(*byte),
            UrlPart::Other => true,
        });
        let Some(byte) = allowed else {
            let invalid = String::from_utf8_lossy(rest.get(..3).unwrap_or(rest));
            return Err(UrlError::Escape(invalid.into_owned()));
        };
        bytes.push(byte);
        rest = tail.get(2..).unwrap_or_default();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{Url, create, is_url};
    use crate::Value;

    #[test]
    fn url_is_parsed_as_go() {
        for (text, scheme, host, name, port, path) in [
            ("HTTPS://Example.com/a", "https", "Example.com", "Example.com", "", "/a"),
            ("https://u:p@example.com:80/a b?x=y", "https", "example.com:80", "example.com", "80", "/a%20b"),
            ("https://[::1]:80", "https", "[::1]:80", "::1", "80", ""),
            ("https://[fe80::1%25en0]/", "https", "[fe80::1%en0]", "fe80::1%en0", "", "/"),
            ("https://example.com:/", "https", "example.com:", "example.com", "", "/"),
            ("registry:5000/a:v1", "registry", "", "", "", ""),
            ("mailto:a@b.c", "mailto", "", "", "", ""),
            ("file:///etc/passwd", "file", "", "", "", "/etc/passwd"),
            ("/a%2Fb/[x]", "", "", "", "", "/a%2Fb/[x]"),
            ("//host/path", "", "host", "host", "", "/path"),
            ("https://a/ä", "https", "a", "a", "", "/%C3%A4"),
            ("https://%C3%A4.de/", "https", "ä.de", "ä.de", "", "/"),
            ("*", "", "", "", "", "*"),
        ] {
            assert!(is_url(text), "{text}");
            let url = Url::parse(text, false).unwrap();
            let (got_name, got_port) = url.host_and_port();
            let got = (url.scheme.as_str(), url.host.as_str(), got_name, got_port);
            assert_eq!((got, url.escaped_path().as_str()), ((scheme, host, name, port), path), "{text}");
        }
    }

    #[test]
    fn invalid_url_has_gos_message() {
        for (text, expected) in [
            ("", "parse \"\": empty url"),
            ("example.com/a:b", "parse \"example.com/a:b\": invalid URI for request"),
            ("../a", "parse \"../a\": invalid URI for request"),
            (":foo", "parse \":foo\": missing protocol scheme"),
            ("1a:b", "parse \"1a:b\": invalid URI for request"),
            ("https://a:b/", "parse \"https://a:b/\": invalid port \":b\" after host"),
            ("https://a b/", "parse \"https://a b/\": invalid character \" \" in host name"),
            ("https://a#b", "parse \"https://a#b\": invalid character \"#\" in host name"),
            ("https://[::1/", "parse \"https://[::1/\": missing ']' in host"),
            ("https://[1.2.3.4]/", "parse \"https://[1.2.3.4]/\": invalid IP-literal"),
            ("https://a/%zz", "parse \"https://a/%zz\": invalid URL escape \"%zz\""),
            ("https://a/%2", "parse \"https://a/%2\": invalid URL escape \"%2\""),
            ("https://%41/", "parse \"https://%41/\": invalid URL escape \"%41\""),
            ("https://u^@a/", "parse \"https://u^@a/\": net/url: invalid userinfo"),
            ("a\n", "parse \"a\\n\": net/url: invalid control character in URL"),
        ] {
            assert!(!is_url(text), "{text}");
            let message = create(text).unwrap_err().to_string();
            assert_eq!(message, format!("URL parse error during conversion from string: {expected}"));
        }
        // `isURL` does not validate fragments.
        assert!(is_url("mailto:a#%zz"));
        let message = create("mailto:a#%zz").unwrap_err().to_string();
        assert!(message.ends_with("parse \"mailto:a#%zz\": invalid URL escape \"%zz\""), "{message}");
        assert!(matches!(create("HTTPS://a/B#C"), Ok(Value::Url(url)) if &*url == "https://a/B#C"));
    }
}
