//! Validation of ServiceCIDRs: one CIDR, or one for each IP family (`pkg/apis/networking/validation`).

use crate::{FieldErrors, field_cursor::FieldCursor, field_validation};
use serde_json::Value;
use std::{collections::BTreeSet, net::IpAddr};

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    let cidrs = spec.at("cidrs");
    // Upstream shows the spec.
    let shown = cidrs.with_value(spec.value());
    match cidrs.count() {
        0 => return cidrs.required("at least one CIDR required", errors),
        1 => {}
        2 => {
            let family =
                |cidr: FieldCursor<'_, '_>| field_validation::parse_cidr(cidr.value()).map(|(ip, _)| ip.is_ipv4());
            let both = cidrs.items().map(family).collect::<Option<BTreeSet<bool>>>().is_some_and(|all| all.len() == 2);
            if !both {
                let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
                return shown.invalid(detail, errors);
            }
        }
        _ => return shown.invalid("may only hold up to 2 values", errors),
    }
    cidrs.items().for_each(|cidr| validate_cidr(&cidr, errors));
}

/// Validates a CIDR in canonical form without host bits (`IsValidCIDR`).
fn validate_cidr(cidr: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    field_validation::validate_cidr(cidr, errors);
    let Some((ip, bits)) = field_validation::parse_cidr(cidr.value()) else { return };
    if matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some()) {
        return cidr.invalid("must not have an IPv4-mapped IPv6 address", errors);
    }
    let network = api::address::network((ip, bits));
    let canonical = format!("{network}/{bits}");
    if network != ip {
        cidr.invalid("must not have bits set beyond the prefix length", errors);
    } else if cidr.text() != canonical {
        cidr.invalid(&format!("must be in canonical form ({canonical:?})"), errors);
    }
}

/// Validates an update, which may only add a second IP family.
pub(super) fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (object, old) = (FieldCursor::object(object), FieldCursor::object(old));
    let (spec, old_spec) = (object.at("spec"), old.at("spec"));
    let (cidrs, old_cidrs) = (spec.at("cidrs"), old_spec.at("cidrs"));
    if cidrs.count() != old_cidrs.count() && (old_cidrs.count(), cidrs.count()) != (1, 2) {
        return cidrs.invalid("field is immutable", errors);
    }
    for (cidr, old) in cidrs.items().zip(old_cidrs.items()) {
        cidr.validate_immutable(&old, errors);
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
