//! URLs as Go's `net/url` reads them, with its words for what is none.

use crate::{EvalError, Value, eval::Outcome, value::Key};
use api::quote::quoted;
use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

/// Characters that stand as they are in a host.
const IN_HOST: &[u8] = b"!$&'()*+,;=:[]<>\"-_.~";
/// Characters that stand as they are in a path.
const IN_PATH: &[u8] = b"-_.~$&+,/:;=@";
/// What a path that is escaped already may have beside those.
const IN_ESCAPED_PATH: &[u8] = b"!'()*[]%";
/// What a user may be called.
const IN_USER: &[u8] = b"-._:~!$&'()*+,;=%@";

/// `isURL`.
pub(super) fn is_one(text: &str) -> bool {
    Url::parse(text, true).is_ok()
}

/// `url`. The scheme is in small letters, as URLs are compared so.
pub(super) fn make(text: &str) -> Outcome {
    let wrong = |text: &str, why: &str| {
        EvalError::new(format!("URL parse error during conversion from string: parse {}: {why}", quoted(text)))
    };
    Url::parse(text, true).map_err(|why| wrong(text, &why))?;
    // Only so a fragment is no part of the path or the query.
    let (whole, fragment) = text.split_once('#').unwrap_or((text, ""));
    let url = Url::parse(whole, false).map_err(|why| wrong(whole, &why))?;
    unescape(fragment, Part::Other).map_err(|why| wrong(text, &why))?;
    let rest = &text[url.scheme.len()..];
    Ok(Value::Url(Arc::from([url.scheme.as_str(), rest].concat())))
}

pub(super) fn on(name: &str, text: &str) -> Outcome {
    let whole = text.split_once('#').map_or(text, |(whole, _)| whole);
    let url = Url::parse(whole, false).map_err(|_| EvalError::overload())?;
    Ok(match name {
        "getScheme" => Value::text(&url.scheme),
        "getHost" => Value::text(&url.host),
        "getHostname" => Value::text(url.host_and_port().0),
        "getPort" => Value::text(url.host_and_port().1),
        "getEscapedPath" => Value::text(&url.escaped_path()),
        "getQuery" => url.query(),
        _ => return Err(EvalError::overload()),
    })
}

#[derive(Debug, Default)]
struct Url<'a> {
    scheme: String,
    host: String,
    /// As it is written.
    path: &'a str,
    query: &'a str,
}

impl<'a> Url<'a> {
    /// `parse`; of a request it is absolute, or an absolute path.
    fn parse(text: &'a str, of_request: bool) -> Result<Self, String> {
        if text.bytes().any(|b| b.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        match text {
            "" if of_request => return Err("empty url".to_owned()),
            "*" => return Ok(Self { path: text, ..Self::default() }),
            _ => {}
        }
        let (scheme, rest) = scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self { scheme: scheme.to_ascii_lowercase(), query, ..Self::default() };
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                // Without a slash it is whatever its scheme makes of it.
                return Ok(url);
            }
            if of_request {
                return Err("invalid URI for request".to_owned());
            }
            if rest.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        url.path = rest;
        let may_have_host = !scheme.is_empty() || !of_request && !rest.starts_with("///");
        if let Some(authority) = rest.strip_prefix("//").filter(|_| may_have_host) {
            let (authority, path) = authority.find('/').map_or((authority, ""), |i| authority.split_at(i));
            (url.host, url.path) = (host_of(authority)?, path);
        }
        unescape(url.path, Part::Other)?;
        Ok(url)
    }

    /// `splitHostPort`.
    fn host_and_port(&self) -> (&str, &str) {
        let port = self.host.rfind(':').filter(|i| is_port(&self.host[*i..]));
        let (host, port) = port.map_or((self.host.as_str(), ""), |i| (&self.host[..i], &self.host[i + 1..]));
        (host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port)
    }

    /// The path as it is written, if that is an escaped one.
    fn escaped_path(&self) -> String {
        let is_escaped = |b: u8| b.is_ascii_alphanumeric() || IN_PATH.contains(&b) || IN_ESCAPED_PATH.contains(&b);
        if self.path == "*" || self.path.bytes().all(is_escaped) {
            return self.path.to_owned();
        }
        let plain = unescape(self.path, Part::Other).unwrap_or_default();
        let digit = |n: u8| char::from_digit(n.into(), 16).unwrap_or_default().to_ascii_uppercase();
        let mut escaped = String::new();
        for b in plain {
            if b.is_ascii_alphanumeric() || IN_PATH.contains(&b) {
                escaped.push(char::from(b));
            } else {
                escaped.extend(['%', digit(b >> 4), digit(b & 15)]);
            }
        }
        escaped
    }

    /// `ParseQuery`: what cannot be read is left out.
    fn query(&self) -> Value {
        let mut all: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let plain = |text: &str| {
                let bytes = unescape(&text.replace('+', " "), Part::Other).ok()?;
                Some(String::from_utf8_lossy(&bytes).into_owned())
            };
            if let (Some(key), Some(value)) = (plain(key), plain(value)) {
                all.entry(Key::String(key.into())).or_default().push(Value::text(&value));
            }
        }
        Value::Map(Arc::new(all.into_iter().map(|(key, values)| (key, Value::list(values))).collect()))
    }
}

/// `getScheme`: what stands before the first colon, if it is a name.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
    match text.bytes().position(|b| !is_part(b)) {
        Some(0) if text.starts_with(':') => Err("missing protocol scheme".to_owned()),
        Some(end) if text[end..].starts_with(':') && text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Ok((&text[..end], &text[end + 1..]))
        }
        _ => Ok(("", text)),
    }
}

/// `parseAuthority`, of which only the host is kept.
fn host_of(authority: &str) -> Result<String, String> {
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let host = parse_host(host)?;
    if let Some(user) = user {
        if !user.bytes().all(|b| b.is_ascii_alphanumeric() || IN_USER.contains(&b)) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        unescape(user, Part::Other)?;
    }
    Ok(host)
}

fn parse_host(host: &str) -> Result<String, String> {
    let bad_port = |port: &str| format!("invalid port {} after host", quoted(port));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let Some(open) = host.rfind('[') else {
        let port = host.rfind(':').map_or("", |i| &host[i..]);
        return if is_port(port) { unescape(host, Part::Host).map(text) } else { Err(bad_port(port)) };
    };
    let close = host.rfind(']').filter(|close| *close > open).ok_or("missing ']' in host")?;
    let port = &host[close + 1..];
    if !is_port(port) {
        return Err(bad_port(port));
    }
    let name = &host[open + 1..close];
    let (before, zone) = name.split_at(name.find("%25").unwrap_or(name.len()));
    let plain = [text(unescape(before, Part::Host)?), text(unescape(zone, Part::Zone)?)].concat();
    let address = plain.split_once('%').map_or(plain.as_str(), |(address, _)| address);
    match address.parse() {
        Ok(IpAddr::V6(_)) => Ok(format!("[{plain}]{port}")),
        Ok(IpAddr::V4(_)) => Err("invalid IP-literal".to_owned()),
        Err(_) => Err(format!("invalid host: ParseAddr({}): unable to parse IP", quoted(&plain))),
    }
}

/// Nothing, or a colon and digits.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
}

/// Of what a text is part; in hosts less is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Host,
    Zone,
    Other,
}

/// The bytes that a text stands for.
fn unescape(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    let in_host = |b: u8| b.is_ascii_alphanumeric() || IN_HOST.contains(&b);
    while let Some((first, tail)) = rest.split_first() {
        if *first != b'%' {
            if part != Part::Other && first.is_ascii() && !in_host(*first) {
                let shown = quoted(&char::from(*first).to_string());
                return Err(format!("invalid character {shown} in host name"));
            }
            bytes.push(*first);
            rest = tail;
            continue;
        }
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.filter(|hex| !hex.starts_with('+')).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let allowed = byte.filter(|byte| match part {
            // An escaped byte of a host is no ASCII, but for the percent sign before a zone.
            Part::Host => !byte.is_ascii() || hex == Some("25"),
            Part::Zone => hex == Some("25") || *byte == b' ' || in_host(*byte),
            Part::Other => true,
        });
        let Some(byte) = allowed else {
            let shown = String::from_utf8_lossy(rest.get(..3).unwrap_or(rest));
            return Err(format!("invalid URL escape {}", quoted(&shown)));
        };
        bytes.push(byte);
        rest = tail.get(2..).unwrap_or_default();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{Url, is_one, make};
    use crate::Value;

    #[test]
    fn urls_are_read_as_go_reads_them() {
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
            assert!(is_one(text), "{text}");
            let url = Url::parse(text, false).unwrap();
            let (got_name, got_port) = url.host_and_port();
            let got = (url.scheme.as_str(), url.host.as_str(), got_name, got_port);
            assert_eq!((got, url.escaped_path().as_str()), ((scheme, host, name, port), path), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_told_in_gos_words() {
        for (text, why) in [
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
            assert!(!is_one(text), "{text}");
            let told = make(text).unwrap_err().to_string();
            assert_eq!(told, format!("URL parse error during conversion from string: {why}"));
        }
        // A fragment is looked at when it is asked for.
        assert!(is_one("mailto:a#%zz"));
        let told = make("mailto:a#%zz").unwrap_err().to_string();
        assert!(told.ends_with("parse \"mailto:a#%zz\": invalid URL escape \"%zz\""), "{told}");
        assert!(matches!(make("HTTPS://a/B#C"), Ok(Value::Url(url)) if &*url == "https://a/B#C"));
    }
}
