//! Who is behind a Service (`proxy.ResolveEndpoint`): nobody leads traffic to its address yet, so the server goes to a ready
//! endpoint itself.

use super::target::Service;
use serde_json::Value;
use store::{Key, Scope, Store};

/// The address and port of somebody who is ready.
///
/// # Errors
/// In upstream's words, when there is nobody.
pub(super) fn of(store: &Store, wanted: &Service) -> Result<(String, u16), String> {
    let read = |resource: &str| {
        let stored = store.get(&Key::new(resource, wanted.namespace.as_str(), wanted.name.as_str()))?;
        serde_json::from_slice::<Value>(&stored.data).ok()
    };
    let service = read("services").ok_or_else(|| format!("service {:?} not found", wanted.name))?;
    if service["spec"]["type"] == "ExternalName" {
        let name = service["spec"]["externalName"].as_str().unwrap_or("");
        return Ok((name.to_owned(), wanted.port));
    }
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let port = ports.into_iter().find(|p| p["port"].as_u64() == Some(wanted.port.into()));
    let port = port.ok_or_else(|| format!("no service port {} found for service {:?}", wanted.port, wanted.name))?;
    let port_name = port["name"].as_str().unwrap_or("");
    let scope = Scope::resource("endpointslices").in_namespace(wanted.namespace.as_str());
    let slices = store.list(&scope, None, None).objects;
    let slices = slices.iter().filter_map(|stored| serde_json::from_slice::<Value>(&stored.data).ok());
    let own: Vec<Value> =
        slices.filter(|s| s["metadata"]["labels"]["kubernetes.io/service-name"] == wanted.name.as_str()).collect();
    let mut ready: Vec<(String, u16)> = own.iter().flat_map(|slice| in_slice(slice, port_name)).collect();
    if own.is_empty() {
        // Those that somebody keeps by hand.
        ready = read("endpoints").map(|endpoints| in_endpoints(&endpoints, port_name)).unwrap_or_default();
    }
    if ready.is_empty() {
        return Err(format!("no endpoints available for service {:?}", wanted.name));
    }
    Ok(ready.swap_remove(rand::random_range(0..ready.len())))
}

fn number(ports: &Value, name: &str) -> Option<u16> {
    let named = |p: &&Value| p["name"].as_str().unwrap_or("") == name;
    let port = ports.as_array()?.iter().find(named)?["port"].as_u64()?;
    u16::try_from(port).ok()
}

fn in_slice(slice: &Value, port: &str) -> Vec<(String, u16)> {
    let Some(port) = number(&slice["ports"], port) else { return Vec::new() };
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let ready = endpoints.filter(|e| e["conditions"]["ready"].as_bool().unwrap_or(true));
    ready.filter_map(|e| Some((e["addresses"][0].as_str()?.to_owned(), port))).collect()
}

fn in_endpoints(endpoints: &Value, port: &str) -> Vec<(String, u16)> {
    let mut found = Vec::new();
    for subset in endpoints["subsets"].as_array().into_iter().flatten() {
        let Some(port) = number(&subset["ports"], port) else { continue };
        let addresses = subset["addresses"].as_array().into_iter().flatten();
        found.extend(addresses.filter_map(|a| Some((a["ip"].as_str()?.to_owned(), port))));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use store::{Expect, MemoryEngine, Options, Write};

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
        put(&store, "services", "s", json!({"spec": {"type": "ClusterIP", "ports": ports}})).await;
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
