//! Checks of single fields that many kinds share, in upstream's words.

use super::{FieldErrors, FieldPath, plain::path_segment};
use api::{address, quantity::Amount};
use serde_json::{Value, json};
use std::{collections::HashSet, hash::Hash, net::IpAddr};

pub(in crate::kinds) fn items<'a>(v: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    v[list].as_array().into_iter().flatten()
}

/// The elements that are equal to an earlier one, each with its index.
pub(in crate::kinds) fn repeated<T: Copy + Eq + Hash>(
    all: impl IntoIterator<Item = T>,
) -> impl Iterator<Item = (usize, T)> {
    let mut seen = HashSet::new();
    all.into_iter().enumerate().filter(move |(_, item)| !seen.insert(*item))
}

pub(in crate::kinds) fn text<'a>(v: &'a Value, key: &str) -> &'a str {
    v[key].as_str().unwrap_or("")
}

/// A field that must be set, to one of these.
pub(in crate::kinds) fn one_of(v: &Value, key: &str, allowed: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    match text(v, key) {
        "" => errors.required(&path.child(key), ""),
        value if allowed.contains(&value) => {}
        _ => errors.not_supported(&path.child(key), &v[key], allowed),
    }
}

pub(in crate::kinds) fn required_label(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if v.as_str().unwrap_or("").is_empty() { errors.required(path, "") } else { dns_label(v, path, errors) }
}

pub(in crate::kinds) fn dns_label(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    api::names::dns1123_label(v.as_str().unwrap_or("")).iter().for_each(|e| errors.invalid(path, v, e));
}

pub(in crate::kinds) fn subdomain(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    api::names::dns1123_subdomain(v.as_str().unwrap_or("")).iter().for_each(|e| errors.invalid(path, v, e));
}

pub(in crate::kinds) fn required_subdomain(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if v.as_str().unwrap_or("").is_empty() { errors.required(path, "") } else { subdomain(v, path, errors) }
}

pub(in crate::kinds) fn qualified(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    api::names::qualified_name(v.as_str().unwrap_or("")).iter().for_each(|e| errors.invalid(path, v, e));
}

/// The name of a driver of storage or devices, which must be set (`ValidateCSIDriverName`).
pub(in crate::kinds) fn csi_driver_name(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const LONGEST: usize = 63;
    let name = v.as_str().unwrap_or("");
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > LONGEST {
        errors.too_long(path, LONGEST);
    }
    api::names::dns1123_subdomain(&name.to_lowercase()).iter().for_each(|e| errors.invalid(path, v, e));
}

/// A part of a path of the API, which must be set (`IsPathSegmentName`).
pub(in crate::kinds) fn path_part(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match v.as_str().unwrap_or("") {
        "" => errors.required(path, ""),
        part => path_segment(part).iter().for_each(|e| errors.invalid(path, v, e)),
    }
}

/// Refuses what is no address (`IsValidIPForLegacyField`).
pub(in crate::kinds) fn ip(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if address::ip(v.as_str().unwrap_or("")).is_none() {
        errors.invalid(path, v, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    }
}

/// Whether it is an address of that family.
pub(in crate::kinds) fn is_ipv6(v: &Value) -> bool {
    v.as_str().and_then(address::ip).is_some_and(|ip| ip.is_ipv6())
}

/// Addresses that would lead back to whoever asks, or nowhere (`ValidateNonSpecialIP`).
pub(in crate::kinds) fn special_ip(value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(address) = value.as_str().and_then(address::ip) else { return };
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] == 0xff02),
    };
    let found = [
        (address.is_unspecified(), format!("may not be unspecified ({})", value.as_str().unwrap_or(""))),
        (address.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()),
        (link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()),
        (link_local_multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()),
    ];
    found.iter().filter(|(is, _)| *is).for_each(|(_, why)| errors.invalid(path, value, why));
}

/// Something is wrong that no single value shows (`field.OmitValueType`).
pub(in crate::kinds) fn invalid_whole(path: &FieldPath, why: &str, errors: &mut FieldErrors) {
    errors.push("FieldValueInvalid", path, format!("Invalid value: {why}"));
}

/// `example.com/name` (`IsDomainPrefixedPath`).
pub(in crate::kinds) fn domain_prefixed_path(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let text = v.as_str().unwrap_or("");
    if text.is_empty() {
        return errors.required(path, "");
    }
    let Some((host, rest)) = text.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty()) else {
        return errors.invalid(path, v, "must be a domain-prefixed path (such as \"acme.io/foo\")");
    };
    subdomain(&json!(host), path, errors);
    if !rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.invalid(path, &json!(rest), why);
    }
}

pub(in crate::kinds) fn is_cidr(value: &Value) -> bool {
    cidr(value).is_some()
}

/// A network, and how many bits of an address name it.
pub(in crate::kinds) fn cidr(value: &Value) -> Option<(IpAddr, u8)> {
    address::cidr(value.as_str()?)
}

/// Refuses what is no network (`IsValidCIDRForLegacyField`).
pub(in crate::kinds) fn must_be_cidr(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !is_cidr(v) {
        errors.invalid(path, v, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
    }
}

/// A number that may not be below zero.
pub(in crate::kinds) fn not_negative(v: &Value, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if v[key].as_i64().is_some_and(|n| n < 0) {
        errors.invalid(&path.child(key), &v[key], "must be greater than or equal to 0");
    }
}

/// An amount that may not be below zero, if it is there (`ValidateNonnegativeQuantity`).
pub(in crate::kinds) fn not_negative_quantity(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if v.as_str().and_then(|text| Amount::parse(text).ok()).is_some_and(Amount::is_negative) {
        errors.invalid(path, v, "must be greater than or equal to 0");
    }
}

pub(in crate::kinds) fn port(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !v.as_i64().is_some_and(|n| (1..=65_535).contains(&n)) {
        errors.invalid(path, v, "must be between 1 and 65535, inclusive");
    }
}

/// A relative path that leads nowhere above (`validateLocalDescendingPath`).
pub(in crate::kinds) fn descending_path(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let target = v.as_str().unwrap_or("");
    if target.starts_with('/') {
        errors.invalid(path, v, "must be a relative path");
    }
    if target.split('/').any(|part| part == "..") {
        errors.invalid(path, v, "must not contain '..'");
    }
}

/// What is there, or the zero of its type.
fn or_zero(v: &Value, zero: Value) -> Value {
    if v.is_null() { zero } else { v.clone() }
}

/// A value that stays as it was made (`ValidateImmutableField`).
pub(in crate::kinds) fn immutable(new: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if new != old {
        errors.invalid(path, &or_zero(new, json!(null)), "field is immutable");
    }
}

/// A number of things, or a part of them in percent (`ValidatePositiveIntOrPercent`, `IsNotMoreThan100Percent`).
pub(in crate::kinds) fn int_or_percent(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match v {
        Value::String(text) => {
            let digits = text.strip_suffix('%').filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()));
            if digits.is_none() {
                let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                errors.invalid(path, v, why);
            }
        }
        number if number.as_i64().is_some_and(|n| n < 0) => {
            errors.invalid(path, v, "must be greater than or equal to 0");
        }
        _ => {}
    }
}

/// The part in percent that the value is, if it is one.
pub(in crate::kinds) fn percent(v: &Value) -> Option<u64> {
    v.as_str()?.strip_suffix('%')?.parse().ok()
}
