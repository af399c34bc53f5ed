//! Availability of the server of an APIService (`pkg/controllers/status/remote`).

use super::{
    Route, ServerDiscovery,
    proxy::{ResolveError, resolve_endpoint, server_name, set_user_headers},
};
use crate::{
    http::request_body::read_body,
    proxy::{
        backend_connections, resolve_endpoint,
        reverse_proxy::{self, Outgoing},
    },
};
use http::{HeaderMap, Method, header};
use http_body_util::{BodyExt, Empty};
use request::UserInfo;
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use store::Store;

/// Timeout of a discovery request.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// The condition `Available`, and the server's discovery.
#[derive(Debug)]
pub(super) struct Availability {
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) discovery: Option<ServerDiscovery>,
}

fn unavailable(reason: &'static str, message: String) -> Availability {
    Availability { status: "False", reason, message, discovery: None }
}

/// Checks whether the server answers discovery.
pub(super) async fn check_availability(store: &Store, route: &Arc<Route>) -> Availability {
    if let Some(unavailable) = check_service(store, route) {
        return unavailable;
    }
    // A Service may have failing endpoints besides healthy ones.
    let mut last_error = String::new();
    for _ in 0..3 {
        match get(store, route, &format!("/apis/{}/{}", route.group, route.version)).await {
            Ok(resources) => {
                let discovery = Some(ServerDiscovery { resources, openapi_url: find_openapi_url(store, route).await });
                let message = "all checks passed".to_owned();
                return Availability { status: "True", reason: "Passed", message, discovery };
            }
            Err(error) => last_error = error.to_string(),
        }
    }
    unavailable("FailedDiscoveryCheck", last_error)
}

/// Checks the Service and its endpoints, before any request.
fn check_service(store: &Store, route: &Route) -> Option<Availability> {
    let Route { namespace, service: name, port, .. } = route;
    let Some(service) = resolve_endpoint::service(store, namespace, name) else {
        return Some(unavailable("ServiceNotFound", format!("service/{name} in {namespace:?} is not present")));
    };
    if service["spec"]["type"].as_str().unwrap_or("ClusterIP") != "ClusterIP" {
        return None;
    }
    let Ok(port_name) = resolve_endpoint::port_name(&service, *port) else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return Some(unavailable("ServicePortError", message));
    };
    let slices = resolve_endpoint::slices(store, namespace, name);
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return Some(unavailable("EndpointsNotFound", message));
    }
    if resolve_endpoint::random_endpoint(&slices, &port_name, |_| true).is_none() {
        let message = format!(
            "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
        );
        return Some(unavailable("MissingEndpoints", message));
    }
    None
}

/// Finds the OpenAPI v3 document in the server's index.
async fn find_openapi_url(store: &Store, route: &Route) -> Option<String> {
    let index = get(store, route, "/openapi/v3").await.ok()?;
    let path = format!("apis/{}/{}", route.group, route.version);
    let url = index["paths"][&path]["serverRelativeURL"].as_str()?;
    // The URL is requested later, so it must not lead to another path.
    url.starts_with(&format!("/openapi/v3/{path}")).then(|| url.to_owned())
}

/// Error of a request to an extension API server.
#[derive(Debug, thiserror::Error)]
enum DiscoveryError {
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error("failing or missing response from {url}: {cause}")]
    Request { url: String, cause: String },
}

/// Sends a GET, and returns the JSON body.
async fn get(store: &Store, route: &Route, path: &str) -> Result<Value, DiscoveryError> {
    let to = resolve_endpoint(store, route)?;
    let url = format!("https://{to}{path}");
    let failed = |e: &dyn std::fmt::Display| DiscoveryError::Request { url: url.clone(), cause: e.to_string() };
    let request = async {
        let tls = route.tls.as_ref().map(Arc::clone).map_err(|e| failed(e))?;
        let stream =
            backend_connections::connect(to, Some((tls, server_name(route, to)))).await.map_err(|e| failed(&e))?;
        let mut headers = HeaderMap::new();
        let groups = vec!["system:masters".to_owned()];
        let user = UserInfo { name: "system:kube-aggregator".to_owned(), groups, ..UserInfo::default() };
        set_user_headers(&mut headers, &user);
        headers.insert(header::HOST, to.to_string().parse().map_err(|e| failed(&e))?);
        headers.insert(header::ACCEPT, http::HeaderValue::from_static("application/json"));
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let (method, audit) = (Method::GET, audit::AuditContext::default());
        let outgoing = Outgoing { method, to: path.to_owned(), headers, body, upgrade: None, audit };
        let response = reverse_proxy::forward(stream, outgoing).await.map_err(|e| failed(&e))?;
        let code = response.status();
        if !code.is_success() && !code.is_redirection() {
            return Err(failed(&format!("bad status from {url}: {}", code.as_u16())));
        }
        let body = read_body(response.into_body()).await.map_err(|e| failed(&e))?;
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    };
    let response = tokio::time::timeout(DISCOVERY_TIMEOUT, request).await;
    response.unwrap_or_else(|_| Err(failed(&"context deadline exceeded")))
}
