//! Validation of Services (`ValidateService`).

use super::traffic;
use crate::{FieldErrors, enums, field_cursor::FieldCursor, object_meta};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn validate_service(object: &Value, errors: &mut FieldErrors) {
    let root = FieldCursor::object(object);
    let spec = root.at("spec");
    let (ports, service_type, affinity) = (spec.at("ports"), spec.at("type"), spec.at("sessionAffinity"));
    let kind = service_type.text();
    let headless = spec.at("clusterIP").text() == "None";
    if ports.count() == 0 && !headless && kind != "ExternalName" {
        ports.required("", errors);
    }
    if headless && matches!(kind, "NodePort" | "LoadBalancer") {
        let detail = format!("may not be set to 'None' for {kind} services");
        errors.invalid(&spec.at("clusterIPs").path().index(0), &json!("None"), &detail);
    }
    if kind == "ExternalName" {
        validate_external_name(&spec, errors);
    }
    validate_ports(&ports, errors);
    if kind == "ClusterIP" {
        for port in ports.items().filter(|port| port.at("nodePort").integer().is_some_and(|n| n != 0)) {
            port.at("nodePort").forbidden("may not be used when `type` is 'ClusterIP'", errors);
        }
    }
    object_meta::labels(&spec.at("selector"), errors);
    affinity.supported(enums::SESSION_AFFINITIES, errors);
    traffic::validate_session_affinity(&spec, errors);
    if kind != "ExternalName" {
        traffic::validate_cluster_ips(&spec, errors);
    }
    traffic::validate_external_ips(&spec, errors);
    service_type.supported(enums::SERVICE_TYPES, errors);
    traffic::validate_load_balancer_fields(object, &spec, errors);
    traffic::validate_traffic_policies(&spec, errors);
}

fn validate_external_name(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for field in [spec.at("clusterIPs"), spec.at("ipFamilies"), spec.at("ipFamilyPolicy")] {
        if field.is_set() && *field.value() != json!([]) {
            field.forbidden("may not be set for ExternalName services", errors);
        }
    }
    let external_name = spec.at("externalName");
    // A trailing dot is allowed.
    let name = external_name.text().strip_suffix('.').unwrap_or(external_name.text());
    if name.is_empty() {
        return external_name.required("", errors);
    }
    let wrong = api::names::dns1123_subdomain(name);
    wrong.iter().for_each(|e| errors.invalid(&external_name.path(), &json!(name), e));
}

fn validate_ports(ports: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (mut names, mut numbers, mut node_ports) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for service_port in ports.items() {
        let (name, port, protocol) = (service_port.at("name"), service_port.at("port"), service_port.at("protocol"));
        match name.text() {
            "" if ports.count() > 1 => name.required("", errors),
            "" => {}
            text => {
                name.validate_text(api::names::dns1123_label, errors);
                if !names.insert(text) {
                    name.duplicate(errors);
                }
            }
        }
        port.validate_port(errors);
        protocol.supported(enums::PROTOCOLS, errors);
        let target = service_port.at("targetPort");
        if target.value().is_string() {
            target.validate_text(api::names::port_name, errors);
        } else {
            target.validate_port(errors);
        }
        let application_protocol = service_port.at("appProtocol");
        if application_protocol.is_set() {
            application_protocol.validate_text(api::names::qualified_name, errors);
        }
        let node_port = service_port.at("nodePort");
        let number = node_port.integer().filter(|n| *n != 0);
        if number.is_some() && !node_ports.insert((protocol.text(), number)) {
            node_port.duplicate(errors);
        }
        if !numbers.insert((protocol.text(), port.integer())) {
            let shown = json!({"port": port.value(), "protocol": protocol.value()});
            errors.duplicate(&service_port.path(), &shown);
        }
    }
}
