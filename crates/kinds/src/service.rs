//! Service.

mod prepare_update;
mod status;
mod traffic;
mod validate;
mod warnings;

use super::{
    AGE, Cell, Column, FieldErrors, Kind, KindInfo, NAME, Subresource, WriteContext, WriteTarget,
    defaulting::set_default,
    field_validation::{items, text as text_of},
    or_none, selector, text,
};
use serde_json::{Value, json};
pub(super) use status::validate_hostname;
use std::collections::BTreeSet;
pub use traffic::is_headless_without_selector;

pub(super) struct Service;

static INFO: KindInfo = KindInfo {
    short_names: &["svc"],
    categories: &["all"],
    status: true,
    allow_create_on_update: true,
    subresources: &[Subresource::proxy("ServiceProxyOptions")],
    ..KindInfo::core("Service", "services", "service")
};

const COLUMNS: &[Column] = &[
    NAME,
    text("Type", Cell::Pointer("/spec/type")),
    text("Cluster-IP", Cell::OrNone("/spec/clusterIP")),
    text("External-IP", Cell::Computed(|service, _| json!(external_ip_cell(service)))),
    text("Port(s)", Cell::Computed(|service, _| or_none(&ports_cell(&service["spec"])))),
    AGE,
    text("Selector", Cell::Computed(|service, _| selector::labels_table_cell(&service["spec"]["selector"]))).wide(),
];

const SELECTABLE_FIELDS: &[&str] = &["spec.clusterIP", "spec.type"];

impl Kind for Service {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }

    /// Sets the defaults of a Service (`SetDefaults_Service`).
    fn set_defaults(&self, object: &mut Value) {
        if object["spec"].is_null() {
            object["spec"] = json!({});
        }
        let Some(spec) = object["spec"].as_object_mut() else { return };
        set_default(spec, "sessionAffinity", json!("None"));
        set_default(spec, "type", json!("ClusterIP"));
        if spec["sessionAffinity"] == "ClientIP" {
            set_default(spec, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10_800}}));
        } else if spec["sessionAffinity"] == "None" {
            spec.remove("sessionAffinityConfig");
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(port) = port.as_object_mut() else { continue };
            set_default(port, "protocol", json!("TCP"));
            if port.get("targetPort").is_none_or(|t| t.is_null() || t == &json!(0) || t == "") {
                let same = port.get("port").cloned().unwrap_or_default();
                port.insert("targetPort".to_owned(), same);
            }
        }
        let has_external_ips = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty());
        if matches!(spec["type"].as_str(), Some("NodePort" | "LoadBalancer"))
            || spec["type"] == "ClusterIP" && has_external_ips
        {
            set_default(spec, "externalTrafficPolicy", json!("Cluster"));
        }
        let is_load_balancer = spec["type"] == "LoadBalancer";
        if is_load_balancer {
            set_default(spec, "allocateLoadBalancerNodePorts", json!(true));
        }
        if spec["type"] != "ExternalName" {
            set_default(spec, "internalTrafficPolicy", json!("Cluster"));
        }
        if is_load_balancer {
            status::set_load_balancer_status_defaults(object);
        }
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>) -> Vec<String> {
        warnings::service_warnings(object)
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &WriteContext) {
        object["status"] = json!({"loadBalancer": {}});
        prepare_update::normalize_cluster_ips(&mut object["spec"], &Value::Null);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, ctx: &WriteContext) {
        if ctx.target == WriteTarget::Status {
            object["spec"] = old["spec"].clone();
            return;
        }
        object["status"] = old["status"].clone();
        prepare_update::prepare_update(object, old);
    }

    fn validate_create(&self, object: &Value, _ctx: &WriteContext, errors: &mut FieldErrors) {
        validate::validate_service(object, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        if ctx.target == WriteTarget::Main {
            validate::validate_service(object, errors);
            traffic::validate_service_update(object, old, errors);
        } else {
            status::validate_load_balancer_status(object, errors);
        }
    }

    fn validate_name(&self, name: &str) -> Vec<String> {
        api::names::dns1035_label(name)
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        SELECTABLE_FIELDS
    }
}

fn needs_cluster_ip(spec: &Value) -> bool {
    matches!(spec["type"].as_str(), Some("ClusterIP" | "NodePort" | "LoadBalancer"))
}

/// Whether each port needs a node port (`NeedsNodePort`).
pub fn needs_node_ports(spec: &Value) -> bool {
    match spec["type"].as_str() {
        Some("LoadBalancer") => spec["allocateLoadBalancerNodePorts"] != json!(false),
        kind => kind == Some("NodePort"),
    }
}

/// Whether load balancers check the health of nodes (`NeedsHealthCheck`).
pub fn needs_health_check(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

/// Whether the Service is reachable from outside the cluster (`ExternallyAccessible`).
fn is_externally_accessible(spec: &Value) -> bool {
    match spec["type"].as_str() {
        Some("ClusterIP") => spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty()),
        kind => matches!(kind, Some("NodePort" | "LoadBalancer")),
    }
}

fn external_ip_cell(object: &Value) -> String {
    let spec = &object["spec"];
    let external_ips: Vec<&str> =
        items(spec, "externalIPs").filter_map(Value::as_str).filter(|ip| !ip.is_empty()).collect();
    match spec["type"].as_str() {
        Some("ExternalName") => spec["externalName"].as_str().unwrap_or("").to_owned(),
        Some("LoadBalancer") => {
            // The IP of each ingress, or its hostname without an IP (`loadBalancerStatusStringer`).
            let has_external_ips = items(&object["status"]["loadBalancer"], "ingress");
            let has_external_ips = has_external_ips
                .filter_map(|one| ["ip", "hostname"].map(|f| text_of(one, f)).into_iter().find(|t| !t.is_empty()));
            let all: Vec<&str> = has_external_ips.collect::<BTreeSet<_>>().into_iter().chain(external_ips).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        _ if external_ips.is_empty() => "<none>".to_owned(),
        _ => external_ips.join(","),
    }
}

fn ports_cell(spec: &Value) -> String {
    let one = |p: &Value| {
        let node = p["nodePort"].as_i64().filter(|n| *n > 0).map_or_else(String::new, |n| format!(":{n}"));
        format!("{}{node}/{}", p["port"], p["protocol"].as_str().unwrap_or("TCP"))
    };
    spec["ports"].as_array().into_iter().flatten().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_ip_cell_shows_load_balancer_ip_or_hostname() {
        let check = |ingress: Value, external_ips: Value, expected: &str| {
            let spec = json!({"type": "LoadBalancer", "externalIPs": external_ips});
            assert_eq!(
                external_ip_cell(&json!({"spec": spec, "status": {"loadBalancer": {"ingress": ingress}}})),
                expected
            );
        };
        check(json!(null), json!(null), "<pending>");
        check(json!([{"ip": "192.0.2.1"}]), json!(null), "192.0.2.1");
        check(json!([{"hostname": "a.example"}]), json!(null), "a.example");
        check(
            json!([{"ip": "192.0.2.9", "hostname": "a"}, {"ip": "192.0.2.1"}]),
            json!(["10.0.0.1"]),
            "192.0.2.1,192.0.2.9,10.0.0.1",
        );
        check(json!([]), json!(["10.0.0.1"]), "10.0.0.1");
    }
}
