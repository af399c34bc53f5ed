//! The Services of the cluster itself: `kubernetes` and `kube-dns`.

use crate::{
    ApiServer,
    ip_allocator::service_ranges::{API_IP, DNS_IP},
};
use auth::stored_object;
use http::Method;
use serde_json::{Value, json};
use std::net::{SocketAddr, SocketAddrV4};
use store::Key;

impl ApiServer {
    /// Creates the `kubernetes` Service if it is absent, and sets its endpoint to the API server's address. A loopback
    /// address has no endpoint, since Pods cannot reach it.
    pub async fn bootstrap_service(&self, address: SocketAddr) {
        let (name, port) = ("kubernetes", address.port());
        let body = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "labels": {"component": "apiserver", "provider": name}},
            "spec": {"clusterIP": API_IP, "ports": [{"name": "https", "port": 443, "targetPort": port}]}});
        self.loopback().ensure_created("/api/v1/namespaces/default/services", &body).await;
        let (ip, is_reached) = (address.ip().to_string(), !address.ip().is_loopback());
        let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
        let labels = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
        let subsets = json!([{"addresses": [{"ip": ip}], "ports": ports}]);
        let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": name, "labels": labels},
            "subsets": if is_reached { subsets } else { json!([]) }});
        self.reconcile("/api/v1/namespaces/default/endpoints", "endpoints", "default", &endpoints).await;
        let endpoint = json!([{"addresses": [ip], "conditions": {"ready": true}}]);
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
            "endpoints": if is_reached { endpoint } else { json!([]) }, "ports": ports});
        self.reconcile_slice("default", &slice).await;
        self.system_objects.set_address(address);
    }

    /// Creates the `kube-dns` Service if it is absent, and sets its endpoint. A Service with a selector belongs to another
    /// DNS server, and is not changed.
    pub async fn bootstrap_name_server(&self, address: SocketAddrV4) {
        let (namespace, name) = ("kube-system", "kube-dns");
        let labels = json!({"k8s-app": name, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"});
        let port =
            |name: &str, protocol: &str, number: u16| json!({"name": name, "port": number, "protocol": protocol});
        let body = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels},
            "spec": {"clusterIP": DNS_IP, "ports": [port("dns", "UDP", 53), port("dns-tcp", "TCP", 53)]}});
        self.loopback().ensure_created(&format!("/api/v1/namespaces/{namespace}/services"), &body).await;
        let current = stored_object::get(&self.registry.store, "services", namespace, name).unwrap_or_default();
        if current["spec"]["selector"].as_object().is_some_and(|selector| !selector.is_empty()) {
            return;
        }
        let ports = json!([port("dns", "UDP", address.port()), port("dns-tcp", "TCP", address.port())]);
        let labels = json!({"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "podium"});
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "kube-dns-of-podium", "labels": labels}, "addressType": "IPv4",
            "endpoints": [{"addresses": [address.ip()], "conditions": {"ready": true}}], "ports": ports});
        self.reconcile_slice(namespace, &slice).await;
    }

    async fn reconcile_slice(&self, namespace: &str, slice: &Value) {
        let all = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
        self.reconcile(&all, "endpointslices", namespace, slice).await;
    }

    /// Creates an object, or replaces it if a client has changed it.
    async fn reconcile(&self, all: &str, storage: &'static str, namespace: &str, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let Some(stored) = self.registry.store.get(&Key::new(storage, namespace, name)) else {
            return self.loopback().ensure_created(all, object).await;
        };
        let current: Value = serde_json::from_slice(&stored.data).unwrap_or_default();
        let same =
            |field: &str| current[field] == object[field] || (current[field].is_null() && object[field] == json!([]));
        if !["subsets", "endpoints", "ports", "addressType"].into_iter().all(same) {
            self.loopback().request(Method::DELETE, &format!("{all}/{name}"), &Value::Null).await;
            self.loopback().ensure_created(all, object).await;
        }
    }
}
