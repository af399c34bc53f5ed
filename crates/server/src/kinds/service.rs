//! Service.

mod change;
mod status;
mod traffic;
mod validate;
mod warnings;

use super::{
    AGE, Cell, Column, FieldErrors, Kind, KindInfo, NAME, Subresource, WriteContext, WriteTarget,
    checks::{items, text as text_of},
    fill::set,
    or_none, selector, text,
};
use serde_json::{Value, json};
pub(super) use status::host_name;
use std::collections::BTreeSet;
pub(crate) use traffic::is_told_by_others;

pub(super) struct Service;

static INFO: KindInfo = KindInfo {
    short_names: &["svc"],
    categories: &["all"],
    status: true,
    created_by_update: true,
    subresources: &[Subresource::proxy("ServiceProxyOptions")],
    ..KindInfo::core("Service", "services", "service")
};

const COLUMNS: &[Column] = &[
    NAME,
    text("Type", Cell::At("/spec/type")),
    text("Cluster-IP", Cell::OrNone("/spec/clusterIP")),
    text("External-IP", Cell::Of(|service, _| json!(external(service)))),
    text("Port(s)", Cell::Of(|service, _| or_none(&ports(&service["spec"])))),
    AGE,
    text("Selector", Cell::Of(|service, _| selector::labels(&service["spec"]["selector"]))).wide(),
];

const FIELDS: &[&str] = &["spec.clusterIP", "spec.type"];

impl Kind for Service {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }

    /// `SetDefaults_Service`.
    fn default(&self, object: &mut Value) {
        if object["spec"].is_null() {
            object["spec"] = json!({});
        }
        let Some(spec) = object["spec"].as_object_mut() else { return };
        set(spec, "sessionAffinity", json!("None"));
        set(spec, "type", json!("ClusterIP"));
        if spec["sessionAffinity"] == "ClientIP" {
            set(spec, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10_800}}));
        } else if spec["sessionAffinity"] == "None" {
            spec.remove("sessionAffinityConfig");
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(port) = port.as_object_mut() else { continue };
            set(port, "protocol", json!("TCP"));
            if port.get("targetPort").is_none_or(|t| t.is_null() || t == &json!(0) || t == "") {
                let same = port.get("port").cloned().unwrap_or_default();
                port.insert("targetPort".to_owned(), same);
            }
        }
        let given = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty());
        if matches!(spec["type"].as_str(), Some("NodePort" | "LoadBalancer")) || spec["type"] == "ClusterIP" && given {
            set(spec, "externalTrafficPolicy", json!("Cluster"));
        }
        let is_balanced = spec["type"] == "LoadBalancer";
        if is_balanced {
            set(spec, "allocateLoadBalancerNodePorts", json!(true));
        }
        if spec["type"] != "ExternalName" {
            set(spec, "internalTrafficPolicy", json!("Cluster"));
        }
        if is_balanced {
            status::default(object);
        }
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>) -> Vec<String> {
        warnings::service(object)
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &WriteContext) {
        object["status"] = json!({"loadBalancer": {}});
        change::first_address(&mut object["spec"], &Value::Null);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, ctx: &WriteContext) {
        if ctx.target == WriteTarget::Status {
            object["spec"] = old["spec"].clone();
            return;
        }
        object["status"] = old["status"].clone();
        change::take_over(object, old);
    }

    fn validate_create(&self, object: &Value, _ctx: &WriteContext, errors: &mut FieldErrors) {
        validate::service(object, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        if ctx.target == WriteTarget::Main {
            validate::service(object, errors);
            traffic::update(&object["spec"], &old["spec"], errors);
        } else {
            status::check(object, errors);
        }
    }

    fn validate_name(&self, name: &str) -> Vec<String> {
        api::names::dns1035_label(name)
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        FIELDS
    }
}

fn needs_cluster_ip(spec: &Value) -> bool {
    matches!(spec["type"].as_str(), Some("ClusterIP" | "NodePort" | "LoadBalancer"))
}

/// Whether each port has one of the node.
pub(crate) fn needs_node_ports(spec: &Value) -> bool {
    match spec["type"].as_str() {
        Some("LoadBalancer") => spec["allocateLoadBalancerNodePorts"] != json!(false),
        kind => kind == Some("NodePort"),
    }
}

/// Whether a load balancer has to ask which nodes have Pods of it.
pub(crate) fn needs_health_check(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

/// `ExternallyAccessible`.
fn can_be_reached_from_outside(spec: &Value) -> bool {
    match spec["type"].as_str() {
        Some("ClusterIP") => spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty()),
        kind => matches!(kind, Some("NodePort" | "LoadBalancer")),
    }
}

fn external(object: &Value) -> String {
    let spec = &object["spec"];
    let own: Vec<&str> = items(spec, "externalIPs").filter_map(Value::as_str).filter(|ip| !ip.is_empty()).collect();
    match spec["type"].as_str() {
        Some("ExternalName") => spec["externalName"].as_str().unwrap_or("").to_owned(),
        Some("LoadBalancer") => {
            // Each by its address, or by its name if it has none (`loadBalancerStatusStringer`).
            let given = items(&object["status"]["loadBalancer"], "ingress");
            let given =
                given.filter_map(|one| ["ip", "hostname"].map(|f| text_of(one, f)).into_iter().find(|t| !t.is_empty()));
            let all: Vec<&str> = given.collect::<BTreeSet<_>>().into_iter().chain(own).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        _ if own.is_empty() => "<none>".to_owned(),
        _ => own.join(","),
    }
}

fn ports(spec: &Value) -> String {
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
    fn the_external_address_is_that_of_the_load_balancer_by_whatever_it_is_called() {
        let check = |ingress: Value, own: Value, expected: &str| {
            let spec = json!({"type": "LoadBalancer", "externalIPs": own});
            assert_eq!(external(&json!({"spec": spec, "status": {"loadBalancer": {"ingress": ingress}}})), expected);
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
