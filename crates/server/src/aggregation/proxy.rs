//! Proxies requests to extension API servers (`kube-aggregator/pkg/apiserver/handler_proxy.go`).

use super::{Aggregation, Route};
use crate::{
    http::deadline,
    proxy::{
        backend_connections::{self, unavailable},
        resolve_endpoint::{self, ResolveEndpointError, ServiceDestination},
        reverse_proxy::{self, Outgoing},
    },
};
use audit::Peer;
use http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts};
use request::{RequestInfo, UserInfo};
use response::HandlerResult;
use rustls::pki_types::ServerName;
use std::{fmt::Write, net::SocketAddr, sync::Arc};
use store::Store;

/// client-go's text for a 503 without a message.
const UNABLE_TO_HANDLE: &str = "the server is currently unable to handle the request";

/// Route of a request that an extension API server serves.
pub(crate) struct AggregatedRoute(Arc<Route>);

impl Aggregation {
    /// Returns the route of a path that an extension API server serves.
    pub(crate) fn aggregated_route(&self, info: &RequestInfo) -> Option<AggregatedRoute> {
        self.route(info).map(AggregatedRoute)
    }
}

/// Proxies a request to the extension API server.
pub(crate) async fn proxy_request(
    store: &Store,
    AggregatedRoute(route): AggregatedRoute,
    user: &UserInfo,
    mut outgoing: Outgoing,
    head: &Parts,
) -> HandlerResult {
    if !route.available {
        return Err(unavailable(UNABLE_TO_HANDLE));
    }
    let to = resolve_endpoint(store, &route).map_err(|_| unavailable(UNABLE_TO_HANDLE))?;
    outgoing.to = head.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
    set_user_headers(&mut outgoing.headers, user);
    set(&mut outgoing.headers, header::HOST, &to.to_string());
    // The audit ID is the same in both servers' audit logs.
    outgoing.audit.set_audit_id_header(&mut outgoing.headers);
    if let Some(Peer(peer)) = head.extensions.get() {
        set(&mut outgoing.headers, HeaderName::from_static("x-forwarded-for"), &peer.ip().to_string());
    }
    let deadline::RequestTimeout(timeout) = head.extensions.get().copied().unwrap_or_default();
    deadline::with_timeout(timeout, async {
        let failed = |e: &dyn std::fmt::Display| unavailable(format!("error trying to reach service: {e}"));
        let tls = route.tls.as_ref().map(Arc::clone).map_err(|e| failed(e))?;
        let stream =
            backend_connections::connect(to, Some((tls, server_name(&route, to)))).await.map_err(|e| failed(&e))?;
        reverse_proxy::forward(stream, outgoing).await.map_err(|e| failed(&e))
    })
    .await
}

/// Error of the resolution of an endpoint.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResolveError {
    /// The Service has no endpoint for the port.
    #[error(transparent)]
    Service(#[from] ResolveEndpointError),
    #[error("unsupported service type \"ExternalName\"")]
    ExternalName,
}

/// Resolves the address of one of the server's endpoints (`ResolveEndpoint`).
pub(super) fn resolve_endpoint(store: &Store, route: &Route) -> Result<SocketAddr, ResolveError> {
    match resolve_endpoint::resolve(store, &route.namespace, &route.service, route.port)? {
        ServiceDestination::Endpoint(to) => Ok(to),
        ServiceDestination::ExternalName(_) => Err(ResolveError::ExternalName),
    }
}

/// Returns the name that the server's certificate must be valid for.
pub(super) fn server_name(route: &Route, to: SocketAddr) -> ServerName<'static> {
    let name = ServerName::try_from(format!("{}.{}.svc", route.service, route.namespace));
    name.unwrap_or_else(|_| ServerName::IpAddress(to.ip().into()))
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Sets the `X-Remote-*` headers to the user; those that the client sent are removed (`SetAuthProxyHeaders`).
pub(super) fn set_user_headers(headers: &mut HeaderMap, user: &UserInfo) {
    let sent_by_client: Vec<HeaderName> =
        headers.keys().filter(|n| n.as_str().starts_with("x-remote-")).cloned().collect();
    sent_by_client.iter().for_each(|name| drop(headers.remove(name)));
    let mut add = |name: &str, value: &str| {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    };
    add("x-remote-user", &user.name);
    if !user.uid.is_empty() {
        add("x-remote-uid", &user.uid);
    }
    user.groups.iter().for_each(|group| add("x-remote-group", group));
    for (key, values) in &user.extra {
        let name = format!("x-remote-extra-{}", escape_header_key(key));
        values.iter().for_each(|value| add(&name, value));
    }
}

/// Percent-encodes the bytes of a key that a header's name cannot have (`headerKeyEscape`).
fn escape_header_key(key: &str) -> String {
    let mut name = String::new();
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "%{byte:02X}");
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_user_headers_from_client_are_replaced() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-remote-user", "root"), ("x-remote-extra-a", "b"), ("accept", "c")] {
            headers.insert(HeaderName::from_static(name), value.parse().unwrap());
        }
        let user = UserInfo {
            name: "ann".to_owned(),
            groups: vec!["a".to_owned(), "b".to_owned()],
            extra: [("example.com/K y".to_owned(), vec!["v".to_owned()])].into(),
            ..UserInfo::default()
        };
        set_user_headers(&mut headers, &user);
        let got: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
        let mut expected = [
            ("accept", "c"),
            ("x-remote-user", "ann"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.com%2fk%20y", "v"),
        ];
        let mut got = got;
        got.sort_unstable();
        expected.sort_unstable();
        assert_eq!(got, expected);
    }
}
