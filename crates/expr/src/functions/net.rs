//! URLs, addresses and networks.

use crate::{EvalError, Value, eval::Outcome, value::Key};
use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

pub(super) fn make(name: &str, args: &[Value]) -> Option<Outcome> {
    let [Value::String(text)] = args else { return None };
    Some(match name {
        "url" => match Url::parse(text) {
            Some(_) => Ok(Value::Url(Arc::clone(text))),
            None => Err(EvalError::new(format!(
                "URL parse error during conversion from string: parse {text:?}: invalid URI for request"
            ))),
        },
        "isURL" => Ok(Value::Bool(Url::parse(text).is_some())),
        "ip" => ip(text).map(Value::Ip),
        "isIP" => Ok(Value::Bool(ip(text).is_ok())),
        "cidr" => cidr(text),
        "isCIDR" => Ok(Value::Bool(cidr(text).is_ok())),
        _ => return None,
    })
}

/// An address that is no IPv4 address within IPv6, and of no zone.
fn ip(text: &str) -> Result<IpAddr, EvalError> {
    let wrong =
        |why: &str| EvalError::new(format!("IP Address {text:?} parse error during conversion from string: {why}"));
    match text.parse() {
        Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => Err(wrong("IPv4-mapped IPv6 address is not allowed")),
        Ok(ip) => Ok(ip),
        Err(_) => Err(wrong(&format!("ParseAddr({text:?}): unable to parse IP"))),
    }
}

fn cidr(text: &str) -> Outcome {
    let wrong = || EvalError::new(format!("network address parse error during conversion from string: {text:?}"));
    let (address, length) = text.split_once('/').ok_or_else(wrong)?;
    let address = ip(address)?;
    let digits = length.bytes().all(|b| b.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
    let length: u8 = length.parse().ok().filter(|l| digits && *l <= bits(address)).ok_or_else(wrong)?;
    Ok(Value::Cidr(address, length))
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address with nothing but its first bits.
fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    }
}

pub(super) fn is_canonical(args: &[Value]) -> Outcome {
    let [Value::String(text)] = args else { return Err(EvalError::overload()) };
    Ok(Value::Bool(ip(text)?.to_string() == **text))
}

pub(super) fn on(name: &str, target: &Value, args: &[Value]) -> Outcome {
    match (target, args) {
        (Value::Url(url), []) => of_url(name, url),
        (Value::Ip(address), []) => of_ip(name, *address),
        (Value::Cidr(address, length), args) => of_cidr(name, *address, *length, args),
        _ => Err(EvalError::overload()),
    }
}

fn of_ip(name: &str, address: IpAddr) -> Outcome {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let link_multicast = match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.octets()[0] == 0xff && v6.octets()[1] & 0x0f == 2,
    };
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    Ok(match name {
        "family" => Value::Int(if address.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Value::Bool(address.is_unspecified()),
        "isLoopback" => Value::Bool(address.is_loopback()),
        "isLinkLocalMulticast" => Value::Bool(link_multicast),
        "isLinkLocalUnicast" => Value::Bool(link_local),
        "isGlobalUnicast" => {
            let other = address.is_unspecified() || address.is_loopback() || address.is_multicast() || broadcast;
            Value::Bool(!other && !link_local)
        }
        _ => return Err(EvalError::overload()),
    })
}

fn of_cidr(name: &str, address: IpAddr, length: u8, args: &[Value]) -> Outcome {
    let contains =
        |other: IpAddr| other.is_ipv4() == address.is_ipv4() && masked(other, length) == masked(address, length);
    Ok(match (name, args) {
        ("ip", []) => Value::Ip(address),
        ("masked", []) => Value::Cidr(masked(address, length), length),
        ("prefixLength", []) => Value::Int(i64::from(length)),
        ("containsIP", [Value::Ip(other)]) => Value::Bool(contains(*other)),
        ("containsIP", [Value::String(text)]) => Value::Bool(contains(ip(text)?)),
        ("containsCIDR", [Value::Cidr(other, inner)]) => Value::Bool(*inner >= length && contains(*other)),
        ("containsCIDR", [Value::String(text)]) => {
            let Value::Cidr(other, inner) = cidr(text)? else { return Err(EvalError::overload()) };
            Value::Bool(inner >= length && contains(other))
        }
        _ => return Err(EvalError::overload()),
    })
}

/// The parts of a URL that is absolute, or an absolute path.
struct Url<'a> {
    scheme: &'a str,
    host: &'a str,
    path: &'a str,
    query: &'a str,
}

impl<'a> Url<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        if text.is_empty() || text.bytes().any(|b| b.is_ascii_control() || b == b' ') {
            return None;
        }
        let (rest, query) = text.split_once('?').unwrap_or((text, ""));
        if rest.starts_with('/') {
            return Some(Self { scheme: "", host: "", path: rest, query });
        }
        let (scheme, rest) = rest.split_once(':')?;
        let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
        if !named || !scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) {
            return None;
        }
        let Some(rest) = rest.strip_prefix("//") else {
            return rest.starts_with('/').then_some(Self { scheme, host: "", path: rest, query });
        };
        let (host, path) = rest.find('/').map_or((rest, ""), |i| rest.split_at(i));
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let closed = host.starts_with('[') == host.contains(']');
        let port = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
        let port = port.split_once(':').map_or("", |(_, port)| port);
        (closed && port.bytes().all(|b| b.is_ascii_digit())).then_some(Self { scheme, host, path, query })
    }

    fn host_and_port(&self) -> (&'a str, &'a str) {
        match self.host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.trim_start_matches(':')),
            None => self.host.split_once(':').unwrap_or((self.host, "")),
        }
    }
}

fn of_url(name: &str, text: &str) -> Outcome {
    let url = Url::parse(text).ok_or_else(EvalError::overload)?;
    Ok(match name {
        "getScheme" => Value::text(url.scheme),
        "getHost" => Value::text(url.host),
        "getHostname" => Value::text(url.host_and_port().0),
        "getPort" => Value::text(url.host_and_port().1),
        "getEscapedPath" => Value::text(url.path),
        "getQuery" => {
            let mut all: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
            for pair in url.query.split('&').filter(|p| !p.is_empty()) {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                all.entry(Key::String(decoded(key).into())).or_default().push(Value::text(&decoded(value)));
            }
            Value::Map(Arc::new(all.into_iter().map(|(k, v)| (k, Value::list(v))).collect()))
        }
        _ => return Err(EvalError::overload()),
    })
}

/// Without `%20` and `+`.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|h| std::str::from_utf8(h).ok()).and_then(|h| u8::from_str_radix(h, 16).ok());
        rest = match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                &tail[2..]
            }
            (b'+', _) => {
                bytes.push(b' ');
                tail
            }
            (byte, _) => {
                bytes.push(*byte);
                tail
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
