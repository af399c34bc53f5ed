//! Service.

mod validate;

use super::{
    AGE, Cell, Column, FieldErrors, Kind, KindInfo, NAME, Subresource, WriteContext, WriteTarget, fill::set, or_none,
    selector, text,
};
use serde_json::{Value, json};

pub(super) struct Service;

static INFO: KindInfo = KindInfo {
    short_names: &["svc"],
    categories: &["all"],
    status: true,
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

/// Fields that the server fills in, and an update may leave out.
const ALLOCATED: [&str; 4] = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];

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
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(port) = port.as_object_mut() else { continue };
            set(port, "protocol", json!("TCP"));
            if port.get("targetPort").is_none_or(|t| t.is_null() || t == &json!(0) || t == "") {
                let same = port.get("port").cloned().unwrap_or_default();
                port.insert("targetPort".to_owned(), same);
            }
        }
        if matches!(spec["type"].as_str(), Some("NodePort" | "LoadBalancer")) {
            set(spec, "externalTrafficPolicy", json!("Cluster"));
        }
        if spec["type"] == "LoadBalancer" {
            set(spec, "allocateLoadBalancerNodePorts", json!(true));
        }
        if spec["type"] != "ExternalName" {
            set(spec, "internalTrafficPolicy", json!("Cluster"));
        }
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &WriteContext) {
        object["status"] = json!({"loadBalancer": {}});
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, ctx: &WriteContext) {
        if ctx.target == WriteTarget::Status {
            object["spec"] = old["spec"].clone();
            return;
        }
        object["status"] = old["status"].clone();
        let external = object["spec"]["type"] == "ExternalName";
        for field in ALLOCATED {
            if external && object["spec"][field] == old["spec"][field] {
                drop(object["spec"].as_object_mut().map(|s| s.remove(field)));
            } else if !external && object["spec"][field].is_null() && !old["spec"][field].is_null() {
                object["spec"][field] = old["spec"][field].clone();
            }
        }
        keep_node_ports(object, old);
    }

    fn validate_create(&self, object: &Value, _ctx: &WriteContext, errors: &mut FieldErrors) {
        validate::spec(&object["spec"], errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        if ctx.target == WriteTarget::Main {
            validate::spec(&object["spec"], errors);
            validate::update(&object["spec"], &old["spec"], errors);
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

/// A port that is there keeps its port of the node (`patchAllocatedValues`).
fn keep_node_ports(object: &mut Value, old: &Value) {
    if !matches!(object["spec"]["type"].as_str(), Some("NodePort" | "LoadBalancer")) {
        return;
    }
    let before = old["spec"]["ports"].as_array().cloned().unwrap_or_default();
    for port in object.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let same = |old: &&Value| old["port"] == port["port"] && old["protocol"] == port["protocol"];
        let known = before.iter().find(same).map(|old| old["nodePort"].clone()).unwrap_or_default();
        if port["nodePort"].is_null() && !known.is_null() {
            port["nodePort"] = known;
        }
    }
}

fn external(object: &Value) -> String {
    let spec = &object["spec"];
    let list = |values: &Value, field: Option<&str>| -> Vec<String> {
        let items = values.as_array().into_iter().flatten();
        let text = |v: &Value| field.map_or(v, |f| &v[f]).as_str().unwrap_or("").to_owned();
        items.map(text).filter(|t| !t.is_empty()).collect()
    };
    let own = list(&spec["externalIPs"], None);
    match spec["type"].as_str() {
        Some("ExternalName") => spec["externalName"].as_str().unwrap_or("").to_owned(),
        Some("LoadBalancer") => {
            let given = list(&object["status"]["loadBalancer"]["ingress"], Some("ip"));
            let all: Vec<String> = given.into_iter().chain(own).collect();
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
