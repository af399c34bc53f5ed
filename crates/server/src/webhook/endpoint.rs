//! Who is behind the Service of a webhook.

use super::target::Service;
use crate::endpoints;
use store::Store;

/// The address and port of somebody who is ready; of a Service of somebody else's the name.
///
/// # Errors
/// In upstream's words, when there is nobody.
pub(super) fn of(store: &Store, wanted: &Service) -> Result<(String, u16), String> {
    let Service { namespace, name, port } = wanted;
    let service = endpoints::service(store, namespace, name).ok_or_else(|| format!("service {name:?} not found"))?;
    if service["spec"]["type"] == "ExternalName" {
        let elsewhere = service["spec"]["externalName"].as_str().unwrap_or("");
        return Ok((elsewhere.to_owned(), *port));
    }
    let port = endpoints::port_name(&service, i64::from(*port))?;
    let found = endpoints::endpoint(&endpoints::slices(store, namespace, name), &port, |_| true);
    let found = found.ok_or_else(|| format!("no endpoints available for service {name:?}"))?;
    Ok((found.ip().to_string(), found.port()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use store::{Expect, Key, MemoryEngine, Options, Write};

    async fn put(store: &Store, resource: &str, name: &str, value: Value) {
        let write = Write::put(Key::new(resource, "n", name), Expect::Any, move |_| value.to_string().into());
        store.write(write).await.unwrap();
    }

    #[tokio::test]
    async fn a_service_leads_to_somebody_who_is_ready() {
        let store = Store::open(MemoryEngine::new(), Options::default()).unwrap();
        let to = |port| Service { namespace: "n".to_owned(), name: "s".to_owned(), port };
        assert_eq!(of(&store, &to(443)).unwrap_err(), "service \"s\" not found");
        let ports = json!([{"name": "https", "port": 443, "targetPort": "web"}, {"name": "other", "port": 80}]);
        put(&store, "services", "s", json!({"metadata": {"name": "s"}, "spec": {"type": "ClusterIP", "ports": ports}}))
            .await;
        assert_eq!(of(&store, &to(444)).unwrap_err(), "no service port 444 found for service \"s\"");
        assert_eq!(of(&store, &to(443)).unwrap_err(), "no endpoints available for service \"s\"");
        let subsets = json!([{"addresses": [{"ip": "10.0.0.9"}], "ports": [{"name": "https", "port": 9}]}]);
        put(&store, "endpoints", "s", json!({"subsets": subsets})).await;
        assert_eq!(of(&store, &to(443)).unwrap(), ("10.0.0.9".to_owned(), 9));
        let slice = json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "s"}},
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": false}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": true}},
            ],
            "ports": [{"name": "other", "port": 1}, {"name": "https", "port": 9443}],
        });
        put(&store, "endpointslices", "s-1", slice).await;
        assert_eq!(of(&store, &to(443)).unwrap(), ("10.0.0.2".to_owned(), 9443));
        put(&store, "services", "s", json!({"spec": {"type": "ExternalName", "externalName": "example.com"}})).await;
        assert_eq!(of(&store, &to(443)).unwrap(), ("example.com".to_owned(), 443));
    }
}
