//! Passing requests on to the server that serves them, with who asks (`kube-aggregator/pkg/apiserver/handler_proxy.go`).

use super::Route;
use crate::{
    UserInfo,
    audit::Peer,
    backend_connections::{self, unavailable},
    deadline,
    endpoints::{self, Place},
    response::Reply,
    reverse_proxy::{self, Outgoing},
    service::ApiServer,
};
use http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts};
use rustls::pki_types::ServerName;
use std::{fmt::Write, net::SocketAddr};

/// What clients without words for it make of a 503 (client-go).
const UNABLE: &str = "the server is currently unable to handle the request";

/// Whom a request goes on to, if it is not for this server.
pub(crate) struct Elsewhere(std::sync::Arc<Route>);

impl ApiServer {
    /// Whether another server serves this path.
    pub(crate) fn elsewhere(&self, path: &str) -> Option<Elsewhere> {
        self.aggregation.route(path).map(Elsewhere)
    }
}

/// Passes a request on.
pub(crate) async fn answer(
    server: &ApiServer,
    Elsewhere(route): Elsewhere,
    user: &UserInfo,
    mut outgoing: Outgoing,
    head: &Parts,
) -> Reply {
    if !route.available {
        return Err(unavailable(UNABLE));
    }
    let to = endpoint(server, &route).map_err(|_| unavailable(UNABLE))?;
    outgoing.to = head.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
    tell(&mut outgoing.headers, user);
    set(&mut outgoing.headers, header::HOST, &to.to_string());
    // In both logs it is the same request.
    outgoing.trail.name(&mut outgoing.headers);
    if let Some(Peer(peer)) = head.extensions.get() {
        set(&mut outgoing.headers, HeaderName::from_static("x-forwarded-for"), &peer.ip().to_string());
    }
    let deadline::Limit(limit) = head.extensions.get().copied().unwrap_or_default();
    deadline::within(limit, async {
        let failed = |e: &dyn std::fmt::Display| unavailable(format!("error trying to reach service: {e}"));
        let tls = route.tls.clone().map_err(|e| failed(&e))?;
        let stream = backend_connections::connect(to, Some((tls, name(&route, to)))).await.map_err(|e| failed(&e))?;
        reverse_proxy::forward(stream, outgoing).await.map_err(|e| failed(&e))
    })
    .await
}

/// Where one of the server's Pods answers (`ResolveEndpoint`).
pub(super) fn endpoint(server: &ApiServer, route: &Route) -> Result<SocketAddr, String> {
    match endpoints::resolve(&server.store, &route.namespace, &route.service, route.port)? {
        Place::Endpoint(to) => Ok(to),
        Place::Elsewhere(_) => Err("unsupported service type \"ExternalName\"".to_owned()),
    }
}

/// For whom its certificate must be.
pub(super) fn name(route: &Route, to: SocketAddr) -> ServerName<'static> {
    let name = ServerName::try_from(format!("{}.{}.svc", route.service, route.namespace));
    name.unwrap_or_else(|_| ServerName::IpAddress(to.ip().into()))
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Says who asks; what the client says of that is left out (`SetAuthProxyHeaders`).
pub(super) fn tell(headers: &mut HeaderMap, user: &UserInfo) {
    let told: Vec<HeaderName> = headers.keys().filter(|n| n.as_str().starts_with("x-remote-")).cloned().collect();
    told.iter().for_each(|name| drop(headers.remove(name)));
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
        let name = format!("x-remote-extra-{}", escaped(key));
        values.iter().for_each(|value| add(&name, value));
    }
}

/// A key as part of a header's name: what cannot stand there is written as in URLs.
fn escaped(key: &str) -> String {
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
    fn who_asks_is_told_by_us_and_nobody_else() {
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
        tell(&mut headers, &user);
        let told: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
        let mut expected = [
            ("accept", "c"),
            ("x-remote-user", "ann"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.com%2fk%20y", "v"),
        ];
        let mut told = told;
        told.sort_unstable();
        expected.sort_unstable();
        assert_eq!(told, expected);
    }
}
