//! Validation of single fields, shared by many kinds, with upstream's messages.

use super::{FieldErrors, FieldPath, generic_kind::validate_path_segment_name};
use api::{address, quantity::Amount};
use serde_json::{Value, json};
use std::{collections::HashSet, hash::Hash, net::IpAddr};

pub(crate) fn items<'a>(v: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    v[list].as_array().into_iter().flatten()
}

/// Returns the elements that equal an earlier one, each with its index.
pub(crate) fn duplicates<T: Copy + Eq + Hash>(all: impl IntoIterator<Item = T>) -> impl Iterator<Item = (usize, T)> {
    let mut seen = HashSet::new();
    all.into_iter().enumerate().filter(move |(_, item)| !seen.insert(*item))
}

pub(crate) fn text<'a>(v: &'a Value, key: &str) -> &'a str {
    v[key].as_str().unwrap_or("")
}

/// Validates a required field with an enumeration of values.
pub(crate) fn validate_one_of(v: &Value, key: &str, allowed: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    match text(v, key) {
        "" => errors.required(&path.child(key), ""),
        value if allowed.contains(&value) => {}
        _ => errors.not_supported(&path.child(key), &v[key], allowed),
    }
}

pub(crate) fn validate_required_dns_label(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if v.as_str().unwrap_or("").is_empty() { errors.required(path, "") } else { validate_dns_label(v, path, errors) }
}

pub(crate) fn validate_dns_label(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    api::names::dns1123_label(v.as_str().unwrap_or("")).iter().for_each(|e| errors.invalid(path, v, e));
}

pub(crate) fn validate_dns_subdomain(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    api::names::dns1123_subdomain(v.as_str().unwrap_or("")).iter().for_each(|e| errors.invalid(path, v, e));
}

pub(crate) fn validate_required_dns_subdomain(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if v.as_str().unwrap_or("").is_empty() {
        errors.required(path, "");
    } else {
        validate_dns_subdomain(v, path, errors);
    }
}

pub(crate) fn validate_qualified_name(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    api::names::qualified_name(v.as_str().unwrap_or("")).iter().for_each(|e| errors.invalid(path, v, e));
}

/// Validates the required name of a CSI or DRA driver (`ValidateCSIDriverName`).
pub(crate) fn validate_csi_driver_name(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const MAX_LENGTH: usize = 63;
    let name = v.as_str().unwrap_or("");
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > MAX_LENGTH {
        errors.too_long(path, MAX_LENGTH);
    }
    api::names::dns1123_subdomain(&name.to_lowercase()).iter().for_each(|e| errors.invalid(path, v, e));
}

/// Validates a required API path segment (`IsPathSegmentName`).
pub(crate) fn validate_path_segment(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match v.as_str().unwrap_or("") {
        "" => errors.required(path, ""),
        part => validate_path_segment_name(part).iter().for_each(|e| errors.invalid(path, v, e)),
    }
}

/// Validates an IP address (`IsValidIPForLegacyField`).
pub(crate) fn validate_ip(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if address::ip(v.as_str().unwrap_or("")).is_none() {
        errors.invalid(path, v, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    }
}

/// Whether a value is an IPv6 address.
pub(crate) fn is_ipv6(v: &Value) -> bool {
    v.as_str().and_then(address::ip).is_some_and(|ip| ip.is_ipv6())
}

/// Rejects unspecified, loopback and link-local addresses (`ValidateNonSpecialIP`).
pub(crate) fn validate_non_special_ip(value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
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
    found.iter().filter(|(is, _)| *is).for_each(|(_, detail)| errors.invalid(path, value, detail));
}

/// Adds an "Invalid value" error that shows no value (`field.OmitValueType`).
pub(crate) fn push_invalid_without_value(path: &FieldPath, detail: &str, errors: &mut FieldErrors) {
    errors.push("FieldValueInvalid", path, format!("Invalid value: {detail}"));
}

/// Validates a path such as `example.com/name` (`IsDomainPrefixedPath`).
pub(crate) fn validate_domain_prefixed_path(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let text = v.as_str().unwrap_or("");
    if text.is_empty() {
        return errors.required(path, "");
    }
    let Some((host, rest)) = text.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty()) else {
        return errors.invalid(path, v, "must be a domain-prefixed path (such as \"acme.io/foo\")");
    };
    validate_dns_subdomain(&json!(host), path, errors);
    if !rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        let detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.invalid(path, &json!(rest), detail);
    }
}

pub(crate) fn is_cidr(value: &Value) -> bool {
    parse_cidr(value).is_some()
}

/// Parses a CIDR into its address and prefix length.
pub(crate) fn parse_cidr(value: &Value) -> Option<(IpAddr, u8)> {
    address::cidr(value.as_str()?)
}

/// Validates a CIDR (`IsValidCIDRForLegacyField`).
pub(crate) fn validate_cidr(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !is_cidr(v) {
        errors.invalid(path, v, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
    }
}

/// Validates that an integer field is not negative (`ValidateNonnegativeField`).
pub(crate) fn validate_nonnegative(v: &Value, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if v[key].as_i64().is_some_and(|n| n < 0) {
        errors.invalid(&path.child(key), &v[key], "must be greater than or equal to 0");
    }
}

/// Validates that an optional quantity is not negative (`ValidateNonnegativeQuantity`).
pub(crate) fn validate_nonnegative_quantity(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if v.as_str().and_then(|text| Amount::parse(text).ok()).is_some_and(Amount::is_negative) {
        errors.invalid(path, v, "must be greater than or equal to 0");
    }
}

pub(crate) fn validate_port(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !v.as_i64().is_some_and(|n| (1..=65_535).contains(&n)) {
        errors.invalid(path, v, "must be between 1 and 65535, inclusive");
    }
}

/// Validates a relative path without `..` (`validateLocalDescendingPath`).
pub(crate) fn validate_descending_path(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let target = v.as_str().unwrap_or("");
    if target.starts_with('/') {
        errors.invalid(path, v, "must be a relative path");
    }
    if target.split('/').any(|part| part == "..") {
        errors.invalid(path, v, "must not contain '..'");
    }
}

/// Returns the value, or `zero` if it is null.
fn or_zero(v: &Value, zero: Value) -> Value {
    if v.is_null() { zero } else { v.clone() }
}

/// Validates that a field does not change (`ValidateImmutableField`).
pub(crate) fn validate_immutable(new: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if new != old {
        errors.invalid(path, &or_zero(new, json!(null)), "field is immutable");
    }
}

/// Validates an integer or percentage (`ValidatePositiveIntOrPercent`, `IsNotMoreThan100Percent`).
pub(crate) fn validate_int_or_percent(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match v {
        Value::String(text) => {
            let digits = text.strip_suffix('%').filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()));
            if digits.is_none() {
                let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                errors.invalid(path, v, detail);
            }
        }
        number if number.as_i64().is_some_and(|n| n < 0) => {
            errors.invalid(path, v, "must be greater than or equal to 0");
        }
        _ => {}
    }
}

/// Parses a percentage; `None` for other values.
pub(crate) fn parse_percent(v: &Value) -> Option<u64> {
    v.as_str()?.strip_suffix('%')?.parse().ok()
}
