//! Environment variables of Services: those of the Pod's namespace, and the API's own (upstream's `pkg/kubelet/envvars`).

use crate::{Shared, deadline::within_deadline, pods::spec};
use k8s_openapi::api::core::v1::{Service, ServicePort};
use kube::{Api, api::ListParams};
use lifecycle::Pod;
use std::collections::BTreeMap;

/// Namespace and name of the API's Service.
const KUBERNETES_SERVICE: (&str, &str) = ("default", "kubernetes");

/// Returns the Service variables of a Pod's containers.
///
/// # Errors
/// Fails if the API is unavailable: a container must not start without its variables.
pub(super) async fn service_env_vars(shared: &Shared, pod: &Pod) -> Result<Vec<(String, String)>, kube::Error> {
    let api = |namespace: &str| -> Api<Service> { Api::namespaced(shared.client.clone(), namespace) };
    let mut services: BTreeMap<String, Service> = BTreeMap::new();
    let mut add = |service: Service| {
        if let Some(name) = service.metadata.name.clone() {
            services.entry(name).or_insert(service);
        }
    };
    if spec(pod).enable_service_links != Some(false) {
        let (namespaced, params) = (api(pod.namespace()), ListParams::default());
        let list = within_deadline(namespaced.list(&params)).await?;
        list.items.into_iter().for_each(&mut add);
    }
    let kubernetes = api(KUBERNETES_SERVICE.0);
    within_deadline(kubernetes.get_opt(KUBERNETES_SERVICE.1)).await?.into_iter().for_each(&mut add);
    Ok(services.iter().flat_map(|(name, service)| variables_of(name, service)).collect())
}

/// Converts `a-name` to `A_NAME`.
fn env_var_name(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

fn variables_of(name: &str, service: &Service) -> Vec<(String, String)> {
    let spec = service.spec.clone().unwrap_or_default();
    let (ip, ports) = (spec.cluster_ip.unwrap_or_default(), spec.ports.unwrap_or_default());
    // Headless and ExternalName Services have no address.
    let (Some(first), false) = (ports.first(), matches!(ip.as_str(), "" | "None")) else { return Vec::new() };
    let prefix = env_var_name(name);
    let mut all = vec![
        (format!("{prefix}_SERVICE_HOST"), ip.clone()),
        (format!("{prefix}_SERVICE_PORT"), first.port.to_string()),
    ];
    for port in &ports {
        if let Some(port_name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            all.push((format!("{prefix}_SERVICE_PORT_{}", env_var_name(port_name)), port.port.to_string()));
        }
    }
    all.push((format!("{prefix}_PORT"), url(&ip, first)));
    for port in &ports {
        let protocol = protocol(port);
        let port_prefix = format!("{prefix}_PORT_{}_{}", port.port, protocol.to_uppercase());
        let parts = [("PROTO", protocol), ("PORT", port.port.to_string()), ("ADDR", ip.clone())];
        all.push((port_prefix.clone(), url(&ip, port)));
        all.extend(parts.map(|(part, value)| (format!("{port_prefix}_{part}"), value)));
    }
    all
}

fn protocol(port: &ServicePort) -> String {
    port.protocol.as_deref().unwrap_or("TCP").to_lowercase()
}

fn url(ip: &str, port: &ServicePort) -> String {
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    format!("{}://{host}:{}", protocol(port), port.port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(name: &str, spec: Value, expected: &[&str]) {
        let service: Service = serde_json::from_value(json!({"spec": spec})).unwrap();
        let found: Vec<String> = variables_of(name, &service).into_iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn service_gets_both_forms_of_variables() {
        check(
            "redis-primary",
            json!({"clusterIP": "10.96.0.11", "ports": [{"name": "main-p", "port": 6379}, {"name": "u", "port": 53, "protocol": "UDP"}]}),
            &[
                "REDIS_PRIMARY_SERVICE_HOST=10.96.0.11",
                "REDIS_PRIMARY_SERVICE_PORT=6379",
                "REDIS_PRIMARY_SERVICE_PORT_MAIN_P=6379",
                "REDIS_PRIMARY_SERVICE_PORT_U=53",
                "REDIS_PRIMARY_PORT=tcp://10.96.0.11:6379",
                "REDIS_PRIMARY_PORT_6379_TCP=tcp://10.96.0.11:6379",
                "REDIS_PRIMARY_PORT_6379_TCP_PROTO=tcp",
                "REDIS_PRIMARY_PORT_6379_TCP_PORT=6379",
                "REDIS_PRIMARY_PORT_6379_TCP_ADDR=10.96.0.11",
                "REDIS_PRIMARY_PORT_53_UDP=udp://10.96.0.11:53",
                "REDIS_PRIMARY_PORT_53_UDP_PROTO=udp",
                "REDIS_PRIMARY_PORT_53_UDP_PORT=53",
                "REDIS_PRIMARY_PORT_53_UDP_ADDR=10.96.0.11",
            ],
        );
    }

    #[test]
    fn service_without_address_gets_no_variables() {
        check("a", json!({"clusterIP": "None", "ports": [{"port": 1}]}), &[]);
        check("a", json!({"type": "ExternalName", "externalName": "x"}), &[]);
    }
}
