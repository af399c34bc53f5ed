//! IP addresses and networks as Kubernetes has always read them: with zeros before the numbers of an IPv4 address, which
//! others take for octal (KEP-4858). Fields that were there before it hold such addresses for good; users are told.

use crate::field::FieldPath;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reads an address (`ParseIPSloppy`). One of IPv4 that is written as one of IPv6 is of IPv4.
#[must_use]
pub fn ip(text: &str) -> Option<IpAddr> {
    written(text).map(|ip| ip.to_canonical())
}

/// Reads an address of IPv4, however it is written.
#[must_use]
pub fn ipv4(text: &str) -> Option<Ipv4Addr> {
    match ip(text)? {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    }
}

/// Reads a network and how many bits of an address name it (`ParseCIDRSloppy`). The address may have more bits.
#[must_use]
pub fn cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, bits) = text.split_once('/')?;
    let ip = written(ip)?;
    if bits.is_empty() || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let bits: u8 = bits.parse().ok()?;
    match ip {
        IpAddr::V4(_) => (bits <= 32).then_some((ip, bits)),
        IpAddr::V6(_) => (bits <= 128).then_some((ip, bits)),
    }
}

/// The network without the bits that are beyond its prefix.
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

/// What users are told of an address that is not written as it should be (`GetWarningsForIP`).
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

/// What users are told of a network that is not written as it should be (`GetWarningsForCIDR`).
#[must_use]
pub fn cidr_warnings(text: &str, path: &FieldPath) -> Vec<String> {
    let Some((ip, bits)) = cidr(text) else { return Vec::new() };
    let network = network((ip, bits));
    let usual = usual(network, bits);
    let mut all = Vec::new();
    if network != ip {
        let alone = usual_of_one(ip);
        all.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be {usual:?} or {alone:?}?)"
        ));
    }
    let (address, strict) = text.split_once('/').unwrap_or((text, ""));
    // Go's strict parser takes no zeros before the number of bits either.
    let is_standard = address.parse().is_ok_and(|read: IpAddr| !is_mapped(read)) && strict == bits.to_string();
    if !is_standard {
        all.push(format!(
            "{path}: non-standard CIDR value {text:?} will be considered invalid in a future Kubernetes release: use {usual:?}"
        ));
    }
    if all.is_empty() && ip.is_ipv6() && usual != text {
        all.push(format!("{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({usual:?})"));
    }
    all
}

/// As Go writes a network: one of IPv4 as such, whatever its text was.
fn usual(network: IpAddr, bits: u8) -> String {
    if is_mapped(network) && bits >= 96 {
        return format!("{}/{}", network.to_canonical(), bits - 96);
    }
    format!("{network}/{bits}")
}

fn usual_of_one(ip: IpAddr) -> String {
    let length = if ip.is_ipv4() { 32 } else { 128 };
    format!("{}/{length}", ip.to_canonical())
}

fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

/// An address of the family in which it is written.
fn written(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse() {
        return Some(ip);
    }
    // An address of IPv6 can end as one of IPv4.
    match text.rsplit_once(':') {
        Some((start, end)) => format!("{start}:{}", dotted(end)?).parse().ok().map(IpAddr::V6),
        None => dotted(text).map(IpAddr::V4),
    }
}

/// Four numbers up to 255, with any zeros before them.
fn dotted(text: &str) -> Option<Ipv4Addr> {
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
    fn addresses_are_read_with_zeros_before_their_numbers() {
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
    fn networks_have_as_many_bits_as_their_family() {
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
    fn users_are_told_of_addresses_that_others_read_otherwise() {
        let warning = |text| ip_warning(text, &FieldPath::new("at"));
        for usual in ["10.0.0.1", "2001:db8::1", "no address"] {
            assert_eq!(warning(usual), None, "{usual}");
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
    fn users_are_told_of_networks_that_others_read_otherwise() {
        let warnings = |text| cidr_warnings(text, &FieldPath::new("at"));
        for usual in ["10.0.0.0/8", "2001:db8::/64", "no network"] {
            assert_eq!(warnings(usual), Vec::<String>::new(), "{usual}");
        }
        let ambiguous = |text: &str, net: &str, one: &str| {
            format!("at: CIDR value {text:?} is ambiguous in this context (should be {net:?} or {one:?}?)")
        };
        let future = |text: &str, usual: &str| {
            format!(
                "at: non-standard CIDR value {text:?} will be considered invalid in a future Kubernetes release: use {usual:?}"
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
