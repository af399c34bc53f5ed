//! Whether the server of an APIService answers (`pkg/controllers/status/remote`).

use super::{
    Route, Said,
    pass::{endpoint, name, tell},
};
use crate::{
    UserInfo, backend_connections, endpoints,
    handler_chain::read_body,
    reverse_proxy::{self, Outgoing},
    service::ApiServer,
};
use http::{HeaderMap, Method, header};
use http_body_util::{BodyExt, Empty};
use serde_json::Value;
use std::{sync::Arc, time::Duration};

const ANSWER: Duration = Duration::from_secs(5);

/// The condition `Available`, and what the server says.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) said: Option<Said>,
}

fn missing(reason: &'static str, message: String) -> Found {
    Found { status: "False", reason, message, said: None }
}

/// Looks whether it answers.
pub(super) async fn look(server: &ApiServer, route: &Arc<Route>) -> Found {
    if let Some(found) = without_asking(server, route) {
        return found;
    }
    // A Service may have endpoints that do not answer beside some that do.
    let mut last = String::new();
    for _ in 0..3 {
        match ask(server, route, &format!("/apis/{}/{}", route.group, route.version)).await {
            Ok(resources) => {
                let said = Some(Said { resources, document: document(server, route).await });
                let message = "all checks passed".to_owned();
                return Found { status: "True", reason: "Passed", message, said };
            }
            Err(error) => last = error,
        }
    }
    missing("FailedDiscoveryCheck", last)
}

/// What is wrong before anybody is asked.
fn without_asking(server: &ApiServer, route: &Route) -> Option<Found> {
    let Route { namespace, service: name, port, .. } = route;
    let Some(service) = endpoints::service(&server.store, namespace, name) else {
        return Some(missing("ServiceNotFound", format!("service/{name} in {namespace:?} is not present")));
    };
    if service["spec"]["type"].as_str().unwrap_or("ClusterIP") != "ClusterIP" {
        return None;
    }
    let Ok(port_name) = endpoints::port_name(&service, *port) else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return Some(missing("ServicePortError", message));
    };
    let slices = endpoints::slices(&server.store, namespace, name);
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return Some(missing("EndpointsNotFound", message));
    }
    if endpoints::endpoint(&slices, &port_name, |_| true).is_none() {
        let message = format!(
            "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
        );
        return Some(missing("MissingEndpoints", message));
    }
    None
}

/// Where the server says that its OpenAPI document is.
async fn document(server: &ApiServer, route: &Route) -> Option<String> {
    let index = ask(server, route, "/openapi/v3").await.ok()?;
    let path = format!("apis/{}/{}", route.group, route.version);
    let url = index["paths"][&path]["serverRelativeURL"].as_str()?;
    // Others are asked for nothing else.
    url.starts_with(&format!("/openapi/v3/{path}")).then(|| url.to_owned())
}

/// What the server answers.
async fn ask(server: &ApiServer, route: &Route, path: &str) -> Result<Value, String> {
    let to = endpoint(server, route)?;
    let url = format!("https://{to}{path}");
    let failed = |e: &dyn std::fmt::Display| format!("failing or missing response from {url}: {e}");
    let work = async {
        let tls = route.tls.clone().map_err(|e| failed(&e))?;
        let stream = backend_connections::connect(to, Some((tls, name(route, to)))).await.map_err(|e| failed(&e))?;
        let mut headers = HeaderMap::new();
        let groups = vec!["system:masters".to_owned()];
        let user = UserInfo { name: "system:kube-aggregator".to_owned(), groups, ..UserInfo::default() };
        tell(&mut headers, &user);
        headers.insert(header::HOST, to.to_string().parse().map_err(|e| failed(&e))?);
        headers.insert(header::ACCEPT, http::HeaderValue::from_static("application/json"));
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let (method, trail) = (Method::GET, crate::audit::Trail::default());
        let outgoing = Outgoing { method, to: path.to_owned(), headers, body, upgrade: None, trail };
        let response = reverse_proxy::forward(stream, outgoing).await.map_err(|e| failed(&e))?;
        let code = response.status();
        if !code.is_success() && !code.is_redirection() {
            return Err(failed(&format!("bad status from {url}: {}", code.as_u16())));
        }
        let body = read_body(response.into_body()).await.map_err(|e| failed(&e))?;
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    };
    let late = || format!("failing or missing response from {url}: context deadline exceeded");
    tokio::time::timeout(ANSWER, work).await.unwrap_or_else(|_| Err(late()))
}
