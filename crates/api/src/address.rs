//! Lenient ("sloppy") parsing of IP addresses and CIDR blocks: leading zeros in an IPv4 octet are ignored, although other
//! parsers read them as octal (KEP-4858). Existing fields accept such values forever, with a warning.

use crate::field::FieldPath;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Parses an IP address (`ParseIPSloppy`). An IPv4-mapped IPv6 address is returned as IPv4.
#[must_use]
pub fn ip(text: &str) -> Option<IpAddr> {
    parse_sloppy(text).map(|ip| ip.to_canonical())
}

/// Parses an IPv4 address; an IPv4-mapped IPv6 address counts as one.
#[must_use]
pub fn ipv4(text: &str) -> Option<Ipv4Addr> {
    match ip(text)? {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    }
}

/// Parses a CIDR block into address and prefix length (`ParseCIDRSloppy`). Host bits of the address may be set.
#[must_use]
pub fn cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, bits) = text.split_once('/')?;
    let ip = parse_sloppy(ip)?;
    if bits.is_empty() || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let bits: u8 = bits.parse().ok()?;
    match ip {
        IpAddr::V4(_) => (bits <= 32).then_some((ip, bits)),
        IpAddr::V6(_) => (bits <= 128).then_some((ip, bits)),
    }
}

/// Returns the network address of a CIDR block: the address with its host bits cleared.
#[must_use]
pub fn network((ip, bits): (IpAddr, u8)) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits.into())).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits.into())).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    }
}

/// Returns a warning for a non-canonical IP address (`GetWarningsForIP`).
#[must_use]
pub fn ip_warning(text: &str, path: &FieldPath) -> Option<String> {
    let ip = ip(text)?;
    match text.parse::<IpAddr>() {
        Ok(read) if !is_mapped(read) => (read.is_ipv6() && read.to_string() != text)
            .then(|| format!("{path}: IPv6 address {text:?} should be in RFC 5952 canonical format (\"{read}\")")),
        _ => Some(format!(
            "{path}: non-standard IP address {text:?} will be considered invalid in a future Kubernetes release: use \"{ip}\""
        )),
    }
}

/// Returns warnings for a non-canonical or ambiguous CIDR block (`GetWarningsForCIDR`).
#[must_use]
pub fn cidr_warnings(text: &str, path: &FieldPath) -> Vec<String> {
    let Some((ip, bits)) = cidr(text) else { return Vec::new() };
    let network = network((ip, bits));
    let canonical = canonical(network, bits);
    let mut all = Vec::new();
    if network != ip {
        let host = canonical_host(ip);
        all.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be {canonical:?} or {host:?}?)"
        ));
    }
    let (address, strict) = text.split_once('/').unwrap_or((text, ""));
    // Go's strict parser also rejects leading zeros in the prefix length.
    let is_standard = address.parse().is_ok_and(|read: IpAddr| !is_mapped(read)) && strict == bits.to_string();
    if !is_standard {
        all.push(format!(
            "{path}: non-standard CIDR value {text:?} will be considered invalid in a future Kubernetes release: use {canonical:?}"
        ));
    }
    if all.is_empty() && ip.is_ipv6() && canonical != text {
        all.push(format!("{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({canonical:?})"));
    }
    all
}

/// Formats a CIDR block as Go's `IPNet.String`: an IPv4-mapped network is written as IPv4.
fn canonical(network: IpAddr, bits: u8) -> String {
    if is_mapped(network) && bits >= 96 {
        return format!("{}/{}", network.to_canonical(), bits - 96);
    }
    format!("{network}/{bits}")
}

fn canonical_host(ip: IpAddr) -> String {
    let length = if ip.is_ipv4() { 32 } else { 128 };
    format!("{}/{length}", ip.to_canonical())
}

fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

/// Parses an address and keeps the IP family of its spelling.
fn parse_sloppy(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse() {
        return Some(ip);
    }
    // The last 32 bits of an IPv6 address may be in dotted decimal notation.
    match text.rsplit_once(':') {
        Some((start, end)) => format!("{start}:{}", parse_dotted_decimal(end)?).parse().ok().map(IpAddr::V6),
        None => parse_dotted_decimal(text).map(IpAddr::V4),
    }
}

/// Parses a dotted decimal IPv4 address, ignoring leading zeros.
fn parse_dotted_decimal(text: &str) -> Option<Ipv4Addr> {
    let mut numbers = [0; 4];
    let mut parts = text.split('.');
    for number in &mut numbers {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let part = part.trim_start_matches('0');
        *number = if part.is_empty() { 0 } else { part.parse().ok()? };
    }
    parts.next().is_none().then(|| numbers.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(ip(text).map(|ip| ip.to_string()).as_deref(), expected, "{text}");
    }

    #[test]
    fn ipv4_leading_zeros_are_ignored() {
        check("10.0.0.1", Some("10.0.0.1"));
        check("010.00.000.0001", Some("10.0.0.1"));
        check("::1", Some("::1"));
        check("::ffff:10.0.0.1", Some("10.0.0.1"));
        check("::ffff:010.0.0.1", Some("10.0.0.1"));
        for wrong in
            ["", "1.2.3", "1.2.3.4.5", "1.2.3.256", "1.2.3.-4", "1.2.3.+4", "1..2.3", " 1.2.3.4", "::g", "a:1.2"]
        {
            check(wrong, None);
        }
    }

    #[track_caller]
    fn check_cidr(text: &str, expected: Option<(&str, u8)>) {
        let expected = expected.map(|(ip, bits)| (ip.parse::<IpAddr>().unwrap(), bits));
        assert_eq!(cidr(text), expected, "{text}");
    }

    #[test]
    fn cidr_prefix_length_is_limited_by_its_family() {
        check_cidr("10.0.0.0/8", Some(("10.0.0.0", 8)));
        check_cidr("010.0.0.1/08", Some(("10.0.0.1", 8)));
        check_cidr("2001:db8::/128", Some(("2001:db8::", 128)));
        for wrong in ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "::/129", "/8", "a/8"] {
            check_cidr(wrong, None);
        }
        assert_eq!(network(("10.9.8.7".parse().unwrap(), 12)), "10.0.0.0".parse::<IpAddr>().unwrap());
        assert_eq!(network(("10.9.8.7".parse().unwrap(), 0)), "0.0.0.0".parse::<IpAddr>().unwrap());
        assert_eq!(network(("2001:db8::7".parse().unwrap(), 64)), "2001:db8::".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn ip_in_non_canonical_form_gets_a_warning() {
        let warning = |text| ip_warning(text, &FieldPath::new("at"));
        for canonical in ["10.0.0.1", "2001:db8::1", "no address"] {
            assert_eq!(warning(canonical), None, "{canonical}");
        }
        let future = "will be considered invalid in a future Kubernetes release";
        for text in ["010.0.0.1", "::ffff:10.0.0.1"] {
            let expected = format!("at: non-standard IP address {text:?} {future}: use \"10.0.0.1\"");
            assert_eq!(warning(text), Some(expected));
        }
        let canonical = "at: IPv6 address \"2001:DB8:0::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")";
        assert_eq!(warning("2001:DB8:0::1").as_deref(), Some(canonical));
    }

    #[test]
    fn cidr_in_non_canonical_form_gets_warnings() {
        let warnings = |text| cidr_warnings(text, &FieldPath::new("at"));
        for canonical in ["10.0.0.0/8", "2001:db8::/64", "no network"] {
            assert_eq!(warnings(canonical), Vec::<String>::new(), "{canonical}");
        }
        let ambiguous = |text: &str, net: &str, one: &str| {
            format!("at: CIDR value {text:?} is ambiguous in this context (should be {net:?} or {one:?}?)")
        };
        let future = |text: &str, canonical: &str| {
            format!(
                "at: non-standard CIDR value {text:?} will be considered invalid in a future Kubernetes release: use {canonical:?}"
            )
        };
        assert_eq!(warnings("10.0.0.1/8"), [ambiguous("10.0.0.1/8", "10.0.0.0/8", "10.0.0.1/32")]);
        assert_eq!(warnings("010.0.0.0/8"), [future("010.0.0.0/8", "10.0.0.0/8")]);
        let both = [ambiguous("010.0.0.1/8", "10.0.0.0/8", "10.0.0.1/32"), future("010.0.0.1/8", "10.0.0.0/8")];
        assert_eq!(warnings("010.0.0.1/8"), both);
        let canonical =
            "at: IPv6 CIDR value \"2001:DB8::/64\" should be in RFC 5952 canonical format (\"2001:db8::/64\")";
        assert_eq!(warnings("2001:DB8::/64"), [canonical]);
    }
}
