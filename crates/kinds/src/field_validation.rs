//! Validation of single fields, shared by many kinds, with upstream's messages.

use super::{FieldErrors, field_cursor::FieldCursor};
use api::{address, quantity::Amount};
use serde_json::{Value, json};
use std::net::IpAddr;

pub(crate) fn items<'a>(v: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    v[list].as_array().into_iter().flatten()
}

pub(crate) fn text<'a>(v: &'a Value, key: &str) -> &'a str {
    v[key].as_str().unwrap_or("")
}

/// Validates the required name of a CSI or DRA driver (`ValidateCSIDriverName`).
pub(crate) fn validate_csi_driver_name(name: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    const MAX_LENGTH: usize = 63;
    if name.text().is_empty() {
        return name.required("", errors);
    }
    if name.text().len() > MAX_LENGTH {
        name.too_long(MAX_LENGTH, errors);
    }
    name.validate_text(|text| api::names::dns1123_subdomain(&text.to_lowercase()), errors);
}

/// Validates an IP address (`IsValidIPForLegacyField`).
pub(crate) fn validate_ip(field: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if address::ip(field.text()).is_none() {
        field.invalid("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)", errors);
    }
}

/// Whether a value is an IPv6 address.
pub(crate) fn is_ipv6(v: &Value) -> bool {
    v.as_str().and_then(address::ip).is_some_and(|ip| ip.is_ipv6())
}

/// Rejects unspecified, loopback and link-local addresses (`ValidateNonSpecialIP`).
pub(crate) fn validate_non_special_ip(field: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let Some(address) = address::ip(field.text()) else { return };
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] == 0xff02),
    };
    if address.is_unspecified() {
        field.invalid(&format!("may not be unspecified ({})", field.text()), errors);
    }
    if address.is_loopback() {
        field.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)", errors);
    }
    if link_local {
        field.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)", errors);
    }
    if link_local_multicast {
        field.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)", errors);
    }
}

/// Validates a path such as `example.com/name` (`IsDomainPrefixedPath`).
pub(crate) fn validate_domain_prefixed_path(field: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let text = field.text();
    if text.is_empty() {
        return field.required("", errors);
    }
    let Some((host, rest)) = text.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty()) else {
        return field.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")", errors);
    };
    let wrong = api::names::dns1123_subdomain(host);
    wrong.iter().for_each(|detail| errors.invalid(&field.path(), &json!(host), detail));
    if !rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        let detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.invalid(&field.path(), &json!(rest), detail);
    }
}

/// Parses a CIDR into its address and prefix length.
pub(crate) fn parse_cidr(value: &Value) -> Option<(IpAddr, u8)> {
    address::cidr(value.as_str()?)
}

/// Validates a CIDR (`IsValidCIDRForLegacyField`).
pub(crate) fn validate_cidr(field: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if parse_cidr(field.value()).is_none() {
        field.invalid("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)", errors);
    }
}

/// Validates that an optional quantity is not negative (`ValidateNonnegativeQuantity`).
pub(crate) fn validate_nonnegative_quantity(quantity: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if Amount::parse(quantity.text()).is_ok_and(Amount::is_negative) {
        quantity.invalid("must be greater than or equal to 0", errors);
    }
}

/// Validates a relative path without `..` (`validateLocalDescendingPath`).
pub(crate) fn validate_descending_path(path: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if path.text().starts_with('/') {
        path.invalid("must be a relative path", errors);
    }
    if path.text().split('/').any(|part| part == "..") {
        path.invalid("must not contain '..'", errors);
    }
}

/// Validates an integer or percentage (`ValidatePositiveIntOrPercent`, `IsNotMoreThan100Percent`).
pub(crate) fn validate_int_or_percent(field: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    match field.value() {
        Value::String(text) => {
            let digits = text.strip_suffix('%').filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()));
            if digits.is_none() {
                let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                field.invalid(detail, errors);
            }
        }
        _ => field.nonnegative(errors),
    }
}

/// Parses a percentage; `None` for other values.
pub(crate) fn parse_percent(v: &Value) -> Option<u64> {
    v.as_str()?.strip_suffix('%')?.parse().ok()
}
