//! Validation of ServiceCIDRs: one CIDR, or one for each IP family (`pkg/apis/networking/validation`).

use crate::{FieldErrors, FieldPath, field_validation};
use serde_json::Value;
use std::net::IpAddr;

fn cidrs_path() -> FieldPath {
    FieldPath::new("spec").child("cidrs")
}

fn cidrs(object: &Value) -> &[Value] {
    object["spec"]["cidrs"].as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let all = cidrs(object);
    let families = || all.iter().map(|cidr| field_validation::parse_cidr(cidr).map(|(ip, _)| ip.is_ipv4()));
    match all {
        [] => return errors.required(&cidrs_path(), "at least one CIDR required"),
        [_] => {}
        [_, _] => {
            let both = families().collect::<Option<Vec<bool>>>().is_some_and(|all| all[0] != all[1]);
            if !both {
                let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
                return errors.invalid(&cidrs_path(), &object["spec"], detail);
            }
        }
        _ => return errors.invalid(&cidrs_path(), &object["spec"], "may only hold up to 2 values"),
    }
    for (i, cidr) in all.iter().enumerate() {
        validate_cidr(cidr, &cidrs_path().index(i), errors);
    }
}

/// Validates a CIDR in canonical form without host bits (`IsValidCIDR`).
fn validate_cidr(value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    field_validation::validate_cidr(value, path, errors);
    let Some((ip, bits)) = field_validation::parse_cidr(value) else { return };
    if matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some()) {
        return errors.invalid(path, value, "must not have an IPv4-mapped IPv6 address");
    }
    let network = api::address::network((ip, bits));
    let canonical = format!("{network}/{bits}");
    if network != ip {
        errors.invalid(path, value, "must not have bits set beyond the prefix length");
    } else if *value != canonical.as_str() {
        errors.invalid(path, value, &format!("must be in canonical form ({canonical:?})"));
    }
}

/// Validates an update, which may only add a second IP family.
pub(super) fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    const IMMUTABLE: &str = "field is immutable";
    let (new_cidrs, old_cidrs) = (cidrs(object), cidrs(old));
    if new_cidrs.len() != old_cidrs.len() && (old_cidrs.len(), new_cidrs.len()) != (1, 2) {
        return errors.invalid(&cidrs_path(), &object["spec"]["cidrs"], IMMUTABLE);
    }
    for (i, (new_cidrs, old_cidrs)) in new_cidrs.iter().zip(old_cidrs).enumerate() {
        if new_cidrs != old_cidrs {
            errors.invalid(&cidrs_path().index(i), new_cidrs, IMMUTABLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(cidrs: Value, old: Option<Value>, expected: &[&str]) {
        let object = |cidrs: Value| json!({"spec": {"cidrs": cidrs}});
        let mut errors = FieldErrors::default();
        match old {
            Some(old) => validate_change(&object(cidrs), &object(old), &mut errors),
            None => validate(&object(cidrs), &mut errors),
        }
        assert_eq!(errors.0.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn service_cidr_has_one_cidr_per_ip_family() {
        check(json!([]), None, &["spec.cidrs: Required value: at least one CIDR required"]);
        check(json!(["10.0.0.0/24"]), None, &[]);
        check(json!(["2001:db8::/64", "10.0.0.0/24"]), None, &[]);
        let wrong = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        check(json!(["10.0.0.0"]), None, &[&format!("spec.cidrs[0]: Invalid value: \"10.0.0.0\": {wrong}")]);
        let at = "spec.cidrs[0]: Invalid value";
        let beyond = "must not have bits set beyond the prefix length";
        check(json!(["10.0.0.1/24"]), None, &[&format!("{at}: \"10.0.0.1/24\": {beyond}")]);
        check(json!(["2001:db8::1/64"]), None, &[&format!("{at}: \"2001:db8::1/64\": {beyond}")]);
        let canonical = "must be in canonical form (\"2001:db8::/64\")";
        check(json!(["2001:DB8:0::/64"]), None, &[&format!("{at}: \"2001:DB8:0::/64\": {canonical}")]);
        let mapped = "must not have an IPv4-mapped IPv6 address";
        check(json!(["::ffff:10.0.0.0/120"]), None, &[&format!("{at}: \"::ffff:10.0.0.0/120\": {mapped}")]);
        let one_each = "spec.cidrs: Invalid value: {\"cidrs\":[\"10.0.0.0/24\",\"10.1.0.0/24\"]}: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        check(json!(["10.0.0.0/24", "10.1.0.0/24"]), None, &[one_each]);
        check(
            json!(["a", "b", "c"]),
            None,
            &["spec.cidrs: Invalid value: {\"cidrs\":[\"a\",\"b\",\"c\"]}: may only hold up to 2 values"],
        );
    }

    #[test]
    fn service_cidr_update_may_only_add_second_family() {
        let one = || Some(json!(["10.0.0.0/24"]));
        check(json!(["10.0.0.0/24"]), one(), &[]);
        check(json!(["10.0.0.0/24", "2001:db8::/64"]), one(), &[]);
        check(json!(["10.1.0.0/24"]), one(), &["spec.cidrs[0]: Invalid value: \"10.1.0.0/24\": field is immutable"]);
        check(
            json!(["2001:db8::/64", "10.0.0.0/24"]),
            one(),
            &["spec.cidrs[0]: Invalid value: \"2001:db8::/64\": field is immutable"],
        );
        let two = Some(json!(["10.0.0.0/24", "2001:db8::/64"]));
        check(json!(["10.0.0.0/24"]), two, &["spec.cidrs: Invalid value: [\"10.0.0.0/24\"]: field is immutable"]);
    }
}
