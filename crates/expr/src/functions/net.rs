//! IP, CIDR and URL libraries (`apiserver/pkg/cel/library`).

use super::url;
use crate::{EvalError, Value, eval::Outcome};
use std::net::IpAddr;

/// Calls a function that creates or validates an IP address, CIDR block or URL.
pub(super) fn create(name: &str, args: &[Value]) -> Option<Outcome> {
    let [Value::String(text)] = args else { return None };
    Some(match name {
        "url" => url::create(text),
        "isURL" => Ok(Value::Bool(url::is_url(text))),
        "ip" => parse_ip(text).map(Value::Ip),
        "isIP" => Ok(Value::Bool(parse_ip(text).is_ok())),
        "cidr" => parse_cidr(text),
        "isCIDR" => Ok(Value::Bool(parse_cidr(text).is_ok())),
        _ => return None,
    })
}

/// Parses an IP address. IPv4-mapped IPv6 addresses and zones are rejected.
fn parse_ip(text: &str) -> Result<IpAddr, EvalError> {
    let wrong = |message: &str| {
        EvalError::new(format!("IP Address {text:?} parse error during conversion from string: {message}"))
    };
    match text.parse() {
        Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => Err(wrong("IPv4-mapped IPv6 address is not allowed")),
        Ok(ip) => Ok(ip),
        Err(_) => Err(wrong(&format!("ParseAddr({text:?}): unable to parse IP"))),
    }
}

fn parse_cidr(text: &str) -> Outcome {
    let wrong = || EvalError::new(format!("network address parse error during conversion from string: {text:?}"));
    let (address, length) = text.split_once('/').ok_or_else(wrong)?;
    let address = parse_ip(address)?;
    let digits = length.bytes().all(|b| b.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
    let length: u8 = length.parse().ok().filter(|l| digits && *l <= bits(address)).ok_or_else(wrong)?;
    Ok(Value::Cidr(address, length))
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Returns the network address: the address with its host bits cleared.
fn mask(address: IpAddr, length: u8) -> IpAddr {
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
    Ok(Value::Bool(parse_ip(text)?.to_string() == **text))
}

/// Calls a method of an IP address, CIDR block or URL.
pub(super) fn call_method(name: &str, target: &Value, args: &[Value]) -> Outcome {
    match (target, args) {
        (Value::Url(text), []) => url::call_method(name, text),
        (Value::Ip(address), []) => call_ip_method(name, *address),
        (Value::Cidr(address, length), args) => call_cidr_method(name, *address, *length, args),
        _ => Err(EvalError::overload()),
    }
}

fn call_ip_method(name: &str, address: IpAddr) -> Outcome {
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

fn call_cidr_method(name: &str, address: IpAddr, length: u8, args: &[Value]) -> Outcome {
    let contains = |other: IpAddr| other.is_ipv4() == address.is_ipv4() && mask(other, length) == mask(address, length);
    Ok(match (name, args) {
        ("ip", []) => Value::Ip(address),
        ("masked", []) => Value::Cidr(mask(address, length), length),
        ("prefixLength", []) => Value::Int(i64::from(length)),
        ("containsIP", [Value::Ip(other)]) => Value::Bool(contains(*other)),
        ("containsIP", [Value::String(text)]) => Value::Bool(contains(parse_ip(text)?)),
        ("containsCIDR", [Value::Cidr(other, inner)]) => Value::Bool(*inner >= length && contains(*other)),
        ("containsCIDR", [Value::String(text)]) => {
            let Value::Cidr(other, inner) = parse_cidr(text)? else { return Err(EvalError::overload()) };
            Value::Bool(inner >= length && contains(other))
        }
        _ => return Err(EvalError::overload()),
    })
}
