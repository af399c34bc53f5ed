//! The `proxy` subresource of Pods, Services and nodes (`ResourceLocation` in upstream's
//! `pkg/registry/core/{pod,service,node}`).

mod links;

use crate::{
    admission::{AdmissionControl, dynamic},
    http::upgrade,
    objects::{call::Call, request_scope::RequestScope, write::with_warnings},
    proxy::{
        backend_connections::{self, unavailable},
        resolve_endpoint,
        reverse_proxy::{self, Outgoing},
    },
    registry::kubelet_client::KubeletClient,
};
use audit::Peer;
use auth::stored_object;
use errors::ApiError;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use kinds::KindInfo;
use links::LinkRewriter;
use percent_encoding::percent_decode_str;
use response::{Body, HandlerResult};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// The port of a kubelet whose Node does not report one (upstream's `--kubelet-port`).
const KUBELET_PORT: u64 = 10250;
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Backend of a proxy request.
enum Target {
    /// A node's kubelet.
    Kubelet(String),
    Address {
        to: SocketAddr,
        https: bool,
    },
}

/// Whether a request is for a `proxy` subresource.
pub(crate) fn is_proxy_request(resource: &RequestScope) -> bool {
    let info = resource.kind.info();
    resource.subresource.as_deref() == Some("proxy")
        && info.group.is_empty()
        && matches!(info.plural, "pods" | "services" | "nodes")
}

/// Forwards a request with a streamed body. The path of the URI behind `proxy`, from the given byte on, is the backend's
/// path.
pub(crate) async fn proxy_request(
    kubelets: &KubeletClient,
    control: &AdmissionControl,
    resource: &RequestScope,
    call: Call,
    body: Body,
    (uri, backend_path_start): (&Uri, usize),
    peer: Option<&Peer>,
) -> HandlerResult {
    if !matches!(call.method.as_str(), "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") {
        return Err(ApiError::method_not_allowed());
    }
    let path = uri.path();
    let (prefix, rest) = path.split_at(backend_path_start);
    let options = || if rest.is_empty() { json!({}) } else { json!({"path": backend_path(rest)}) };
    dynamic::admit_connect(control, resource, &call, options_of(resource), options).await?;
    let target = target(kubelets, resource)?;
    let query = uri.query().map(|q| format!("?{q}")).unwrap_or_default();
    let is_reading = matches!(call.method, Method::GET | Method::HEAD);
    if rest.is_empty() && is_reading && !upgrade::is_upgrade(&call.headers) {
        return redirect(&format!("{path}/{query}"));
    }
    let to = format!("{}{query}", if rest.is_empty() { "/" } else { rest });
    let Call { method, mut headers, upgrade, audit, warnings, .. } = call;
    let host = set_forwarding_headers(&mut headers, uri, peer);
    let outgoing = Outgoing { method, to, headers, body, upgrade, audit };
    let failed = |e: &dyn std::fmt::Display| unavailable(format!("error trying to reach service: {e}"));
    let stream = match &target {
        Target::Kubelet(node) => kubelets.dialer.dial(node).await,
        Target::Address { to, https } => {
            backend_connections::connect(*to, if *https { Some(any_certificate(*to)?) } else { None }).await
        }
    };
    let response = reverse_proxy::forward(stream.map_err(|e| failed(&e))?, outgoing).await.map_err(|e| failed(&e))?;
    let backend_host = match target {
        Target::Kubelet(node) => node,
        Target::Address { to, .. } => to.to_string(),
    };
    let rewriter = LinkRewriter { prefix: prefix.to_owned(), hosts: [backend_host, host] };
    Ok(with_warnings(rewriter.rewrite_response(response), &warnings.into_inner()))
}

/// Returns the backend's path for admission: decoded, with its leading and trailing slashes.
fn backend_path(rest: &str) -> Cow<'_, str> {
    percent_decode_str(rest).decode_utf8_lossy()
}

/// Returns the kind of a proxy request's options.
fn options_of(resource: &RequestScope) -> &'static str {
    match resource.kind.info().plural {
        "pods" => "PodProxyOptions",
        "services" => "ServiceProxyOptions",
        _ => "NodeProxyOptions",
    }
}

/// Returns a redirect.
fn redirect(to: &str) -> HandlerResult {
    let mut response = response::full(StatusCode::MOVED_PERMANENTLY.as_u16(), "text/plain; charset=utf-8", "");
    let to = HeaderValue::from_str(to).map_err(ApiError::internal)?;
    response.headers_mut().insert(header::LOCATION, to);
    Ok(response)
}

/// Sets the forwarding headers, and returns the requested host.
fn set_forwarding_headers(headers: &mut HeaderMap, uri: &Uri, peer: Option<&Peer>) -> String {
    let requested = headers.get(header::HOST).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let host = requested.or_else(|| uri.authority().map(ToString::to_string)).unwrap_or_else(|| "localhost".to_owned());
    let existing = headers.get_all(FORWARDED_FOR).iter().filter_map(|v| v.to_str().ok()).map(str::to_owned);
    let all: Vec<String> = existing.chain(peer.map(|peer| peer.0.ip().to_string())).collect();
    let mut set = |name, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(header::HOST, &host);
    set(FORWARDED_URI, uri.path());
    if !all.is_empty() {
        set(FORWARDED_FOR, &all.join(", "));
    }
    host
}

/// Returns a TLS configuration that accepts any certificate, as upstream for Pods and Services.
fn any_certificate(to: SocketAddr) -> Result<(Arc<rustls::ClientConfig>, ServerName<'static>), ApiError> {
    let config = backend_connections::tls_config(None, None).map_err(ApiError::internal)?;
    Ok((config, ServerName::IpAddress(to.ip().into())))
}

/// `[SCHEME:]NAME[:PORT]` (`SplitSchemeNamePort`).
struct SchemeNamePort<'a> {
    https: bool,
    name: &'a str,
    port: &'a str,
}

impl<'a> SchemeNamePort<'a> {
    fn parse(id: &'a str) -> Option<Self> {
        let parts: Vec<&str> = id.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => return None,
        };
        let known = matches!(scheme, "" | "http" | "https");
        (known && !name.is_empty()).then_some(Self { https: scheme == "https", name, port })
    }
}

fn target(kubelets: &KubeletClient, resource: &RequestScope) -> Result<Target, ApiError> {
    let (info, id) = (resource.kind.info(), resource.name.as_deref().unwrap_or_default());
    let resource_name = info.singular;
    let parsed = SchemeNamePort::parse(id)
        .ok_or_else(|| ApiError::bad_request(format!("invalid {resource_name} request {id:?}")))?;
    match info.plural {
        "pods" => pod_target(kubelets, info, &resource.namespace, &parsed),
        "services" => service_target(kubelets, info, &resource.namespace, &parsed, id),
        _ => node_target(kubelets, info, &parsed),
    }
}

fn read_object(kubelets: &KubeletClient, info: &KindInfo, namespace: &str, name: &str) -> Result<Value, ApiError> {
    let object = stored_object::try_get(&kubelets.store, info.storage, namespace, name);
    object.map_err(ApiError::internal)?.ok_or_else(|| ApiError::not_found(info, name))
}

fn pod_target(
    kubelets: &KubeletClient,
    info: &KindInfo,
    namespace: &str,
    parsed: &SchemeNamePort<'_>,
) -> Result<Target, ApiError> {
    let pod = read_object(kubelets, info, namespace, parsed.name)?;
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let first = containers.flat_map(|c| c["ports"].as_array().into_iter().flatten()).next();
    let first = first.and_then(|p| p["containerPort"].as_u64()).map(|p| p.to_string());
    let port = if parsed.port.is_empty() { first.unwrap_or_default() } else { parsed.port.to_owned() };
    let ip = pod["status"]["podIP"].as_str().and_then(|ip| ip.parse().ok());
    address_target(ip, &port, parsed.https)
}

fn service_target(
    kubelets: &KubeletClient,
    info: &KindInfo,
    namespace: &str,
    parsed: &SchemeNamePort<'_>,
    id: &str,
) -> Result<Target, ApiError> {
    let service = read_object(kubelets, info, namespace, parsed.name)?;
    let port = match parsed.port.parse() {
        Ok(number) => resolve_endpoint::port_name(&service, number).map_err(|error| unavailable(error.to_string()))?,
        Err(_) => parsed.port.to_owned(),
    };
    let slices = resolve_endpoint::slices(&kubelets.store, namespace, parsed.name);
    // Only addresses of Pods are allowed: otherwise a user who can write endpoints could reach any address.
    let is_pod = |endpoint: &Value| {
        let target = &endpoint["targetRef"];
        let name = target["name"].as_str().filter(|_| target["kind"] == "Pod").unwrap_or_default();
        let pod = stored_object::get(&kubelets.store, "pods", namespace, name).unwrap_or_default();
        let mut ips = pod["status"]["podIPs"].as_array().into_iter().flatten();
        pod["status"]["podIP"] == endpoint["addresses"][0] || ips.any(|ip| ip["ip"] == endpoint["addresses"][0])
    };
    let id = if slices.is_empty() { parsed.name } else { id };
    let found = resolve_endpoint::random_endpoint(&slices, &port, is_pod);
    let to = found.ok_or_else(|| unavailable(format!("no endpoints available for service {id:?}")))?;
    Ok(Target::Address { to, https: parsed.https })
}

fn node_target(kubelets: &KubeletClient, info: &KindInfo, parsed: &SchemeNamePort<'_>) -> Result<Target, ApiError> {
    let node = read_object(kubelets, info, "", parsed.name)?;
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().filter(|port| *port != 0);
    if parsed.port.is_empty() || parsed.port == port.unwrap_or(KUBELET_PORT).to_string() {
        return Ok(Target::Kubelet(parsed.name.to_owned()));
    }
    let mut addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    let internal = addresses.find(|a| a["type"] == "InternalIP").and_then(|a| a["address"].as_str());
    address_target(internal.and_then(|ip| ip.parse().ok()), parsed.port, parsed.https)
}

/// Returns a target, unless its address is loopback, link-local, multicast, broadcast or unspecified.
fn address_target(ip: Option<IpAddr>, port: &str, https: bool) -> Result<Target, ApiError> {
    let is_global = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => {
            !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && !ip.is_link_local() && !ip.is_broadcast()
        }
        IpAddr::V6(ip) => {
            !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && !ip.is_unicast_link_local()
        }
    };
    let ip = ip.filter(is_global).ok_or_else(|| ApiError::bad_request("address not allowed"))?;
    let default = if https { 443 } else { 80 };
    let number = if port.is_empty() { Ok(default) } else { port.parse() };
    let unknown = || unavailable(format!("error trying to reach service: dial tcp: lookup tcp/{port}: unknown port"));
    let port = number.map_err(|_| unknown())?;
    Ok(Target::Address { to: SocketAddr::new(ip, port), https })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_name_can_have_scheme_and_port() {
        for (id, expected) in [
            ("a", Some((false, "a", ""))),
            ("a:80", Some((false, "a", "80"))),
            ("https:a:web", Some((true, "a", "web"))),
            ("http:a:", Some((false, "a", ""))),
            (":a:80", Some((false, "a", "80"))),
            ("ftp:a:80", None),
            ("https::80", None),
            ("a:b:c:d", None),
        ] {
            assert_eq!(SchemeNamePort::parse(id).map(|n| (n.https, n.name, n.port)), expected, "{id}");
        }
    }
}
