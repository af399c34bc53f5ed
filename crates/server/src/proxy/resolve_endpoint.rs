//! Resolution of Services to a ready endpoint (`ResolveEndpoint` of `k8s.io/apiserver/pkg/util/proxy`): the API server does
//! not depend on the Service proxy for cluster IPs.

use auth::stored_object;
use rand::seq::SliceRandom;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use store::{Scope, Store};

const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Destination of a Service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ServiceDestination {
    /// Address of a ready endpoint.
    Endpoint(SocketAddr),
    /// DNS name of an `ExternalName` Service.
    ExternalName(String),
}

/// Failed resolution of a Service, with upstream's message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResolveEndpointError {
    #[error("service {0:?} not found")]
    ServiceNotFound(String),
    #[error("no service port {port} found for service {service:?}")]
    NoPort { port: i64, service: String },
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
}

/// Resolves a port of a Service (`ResolveEndpoint`).
///
/// # Errors
/// If the Service, its port or a ready endpoint is missing.
pub(crate) fn resolve(
    store: &Store,
    namespace: &str,
    name: &str,
    port: i64,
) -> Result<ServiceDestination, ResolveEndpointError> {
    let service =
        service(store, namespace, name).ok_or_else(|| ResolveEndpointError::ServiceNotFound(name.to_owned()))?;
    if service["spec"]["type"] == "ExternalName" {
        return Ok(ServiceDestination::ExternalName(
            service["spec"]["externalName"].as_str().unwrap_or_default().to_owned(),
        ));
    }
    let port = port_name(&service, port)?;
    let found = random_endpoint(&slices(store, namespace, name), &port, |_| true);
    found.map(ServiceDestination::Endpoint).ok_or_else(|| ResolveEndpointError::NoEndpoints(name.to_owned()))
}

/// Returns a stored Service.
pub(crate) fn service(store: &Store, namespace: &str, name: &str) -> Option<Value> {
    stored_object::get(store, "services", namespace, name)
}

/// Returns the name of the Service port with this number, empty for an unnamed port.
pub(crate) fn port_name(service: &Value, port: i64) -> Result<String, ResolveEndpointError> {
    let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let found = ports.find(|p| p["port"] == port).map(|p| p["name"].as_str().unwrap_or_default().to_owned());
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    found.ok_or_else(|| ResolveEndpointError::NoPort { port, service: name.to_owned() })
}

/// Returns the EndpointSlices of a Service, or without any its Endpoints, converted to slices.
pub(crate) fn slices(store: &Store, namespace: &str, service: &str) -> Vec<Value> {
    let all = stored_object::list(store, &Scope::resource("endpointslices").in_namespace(namespace));
    let all: Vec<Value> = all.filter(|s: &Value| s["metadata"]["labels"][SERVICE_NAME] == service).collect();
    if !all.is_empty() {
        return all;
    }
    let endpoints = stored_object::get(store, "endpoints", namespace, service).unwrap_or_default();
    let subsets = endpoints["subsets"].as_array().into_iter().flatten();
    let to_endpoint = |a: &Value| json!({"addresses": [a["ip"]], "targetRef": a["targetRef"]});
    let endpoints = |s: &Value| s["addresses"].as_array().into_iter().flatten().map(to_endpoint).collect::<Vec<_>>();
    subsets.map(|s| json!({"endpoints": endpoints(s), "ports": s["ports"]})).collect()
}

/// Returns a random ready endpoint of the port of this name that satisfies the predicate (`RandomEndpoint` of
/// `k8s.io/apiserver/pkg/util/proxy`).
pub(crate) fn random_endpoint(slices: &[Value], port: &str, predicate: impl Fn(&Value) -> bool) -> Option<SocketAddr> {
    let mut all = Vec::new();
    for slice in slices {
        let mut ports = slice["ports"].as_array().into_iter().flatten();
        let number = ports.find(|p| p["name"].as_str().unwrap_or_default() == port).and_then(|p| p["port"].as_u64());
        let Some(number) = number.and_then(|n| u16::try_from(n).ok()) else { continue };
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        let ready = endpoints.filter(|e| e["conditions"]["ready"] != false);
        all.extend(ready.map(|endpoint| (endpoint, number)));
    }
    all.shuffle(&mut rand::rng());
    all.into_iter().filter(|(endpoint, _)| predicate(endpoint)).find_map(|(endpoint, number)| {
        let ip: IpAddr = endpoint["addresses"][0].as_str()?.parse().ok()?;
        Some(SocketAddr::new(ip, number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Key, MemoryEngine, Options, Precondition, Write};

    #[track_caller]
    fn check(slices: Value, port: &str, expected: &[&str]) {
        let slices = slices.as_array().unwrap().clone();
        let found: std::collections::BTreeSet<String> = (0..100)
            .filter_map(|_| random_endpoint(&slices, port, |e| e["skip"].is_null()))
            .map(|a| a.to_string())
            .collect();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn any_ready_endpoint_of_port_is_returned() {
        let ports = json!([{"name": "web", "port": 80}, {"name": "metrics", "port": 90}]);
        let endpoints = json!([
            {"addresses": ["10.0.0.1"], "conditions": {"ready": true}}, {"addresses": ["10.0.0.2"]},
            {"addresses": ["10.0.0.3"], "conditions": {"ready": false}}, {"addresses": ["10.0.0.4"], "skip": true},
        ]);
        let slices = json!([{"ports": ports, "endpoints": endpoints}, {"ports": [{"port": 8080}], "endpoints": [{"addresses": ["fd00::1"]}]}]);
        check(slices.clone(), "web", &["10.0.0.1:80", "10.0.0.2:80"]);
        check(slices.clone(), "", &["[fd00::1]:8080"]);
        check(slices, "none", &[]);
    }

    async fn put(store: &Store, resource: &str, name: &str, value: Value) {
        let write = Write::put(Key::new(resource, "n", name), Precondition::Any, value.to_string());
        store.write(write).await.unwrap();
    }

    #[tokio::test]
    async fn service_resolves_to_ready_endpoint() {
        let store = Store::open(MemoryEngine::new(), Options::default()).unwrap();
        let to = |port| resolve(&store, "n", "s", port);
        assert_eq!(to(443).unwrap_err().to_string(), "service \"s\" not found");
        let ports = json!([{"name": "https", "port": 443, "targetPort": "web"}, {"name": "other", "port": 80}]);
        put(&store, "services", "s", json!({"metadata": {"name": "s"}, "spec": {"type": "ClusterIP", "ports": ports}}))
            .await;
        assert_eq!(to(444).unwrap_err().to_string(), "no service port 444 found for service \"s\"");
        assert_eq!(to(443).unwrap_err().to_string(), "no endpoints available for service \"s\"");
        let subsets = json!([{"addresses": [{"ip": "10.0.0.9"}], "ports": [{"name": "https", "port": 9}]}]);
        put(&store, "endpoints", "s", json!({"subsets": subsets})).await;
        assert_eq!(to(443).unwrap(), ServiceDestination::Endpoint(([10, 0, 0, 9], 9).into()));
        let slice = json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "s"}},
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": false}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": true}},
            ],
            "ports": [{"name": "other", "port": 1}, {"name": "https", "port": 9443}],
        });
        put(&store, "endpointslices", "s-1", slice).await;
        assert_eq!(to(443).unwrap(), ServiceDestination::Endpoint(([10, 0, 0, 2], 9443).into()));
        put(&store, "services", "s", json!({"spec": {"type": "ExternalName", "externalName": "example.com"}})).await;
        assert_eq!(to(443).unwrap(), ServiceDestination::ExternalName("example.com".to_owned()));
    }
}
