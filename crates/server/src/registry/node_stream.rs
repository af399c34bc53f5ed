//! Exec, attach and port-forward: the client's connection is spliced with the kubelet's.
//!
//! The server checks that Pod and container exist; client and kubelet negotiate the protocol (WebSocket channels,
//! SPDY).

use crate::{
    admission::{AdmissionControl, connect_options, dynamic},
    http::upgrade,
    objects::{call::Call, request_scope::RequestScope},
    proxy::reverse_proxy,
    registry::{
        kubelet_client::KubeletClient,
        node_proxy::{container, error_of_response, pod, send},
    },
};
use api::text::parse_query_bool;
use errors::ApiError;
use form_urlencoded::Serializer;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, header};
use http_body_util::Empty;
use response::HandlerResult;
use serde_json::Value;

/// Headers of an upgrade, which are forwarded.
const UPGRADE_HEADERS: [HeaderName; 7] = [
    header::CONNECTION,
    header::UPGRADE,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::SEC_WEBSOCKET_ACCEPT,
    HeaderName::from_static("x-stream-protocol-version"),
];

/// Handles `pods/exec`, `pods/attach` and `pods/portforward`.
pub(crate) async fn open(
    kubelets: &KubeletClient,
    control: &AdmissionControl,
    resource: &RequestScope,
    call: &mut Call,
) -> HandlerResult {
    let (kind, fields) = options(resource);
    dynamic::admit_connect(control, resource, call, kind, || connect_options(call, fields)).await?;
    let pod = pod(kubelets, resource)?;
    let name = resource.name.as_deref().unwrap_or_default();
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
    let path = path(resource, &pod, name, call)?;
    if node.is_empty() {
        return Err(ApiError::bad_request(format!("pod {name} does not have a host assigned")));
    }
    forward_upgrade(kubelets, &node, &path, call).await
}

/// Returns the kind of a request's options, and their fields.
fn options(resource: &RequestScope) -> (&'static str, &'static [&'static str]) {
    const STREAMS: [&str; 6] = ["stdin", "stdout", "stderr", "tty", "container", "command"];
    match resource.subresource.as_deref() {
        Some("portforward") => ("PodPortForwardOptions", &["ports"]),
        Some("attach") => ("PodAttachOptions", &STREAMS[..5]),
        _ => ("PodExecOptions", &STREAMS),
    }
}

fn path(resource: &RequestScope, pod: &Value, name: &str, call: &Call) -> Result<String, ApiError> {
    let namespace = &resource.namespace;
    let parameters = form_urlencoded::parse(call.raw_query.as_bytes());
    let mut query = Serializer::new(String::new());
    if resource.subresource.as_deref() == Some("portforward") {
        query.extend_pairs(parameters.filter(|(n, _)| n == "ports").map(|(_, v)| ("port", v)));
        return Ok(format!("/portForward/{namespace}/{name}?{}", query.finish()));
    }
    let container = container(pod, name, call.query.get("container"))?;
    // The kubelet's names for the API's parameters.
    let kubelet_parameters = parameters.filter_map(|(n, v)| match n.as_ref() {
        "stdin" => parse_query_bool(&v).then_some(("input", "1".into())),
        "stdout" => parse_query_bool(&v).then_some(("output", "1".into())),
        "stderr" => parse_query_bool(&v).then_some(("error", "1".into())),
        "tty" => parse_query_bool(&v).then_some(("tty", "1".into())),
        "command" => Some(("command", v)),
        _ => None,
    });
    query.extend_pairs(kubelet_parameters);
    let verb = resource.subresource.as_deref().unwrap_or_default();
    Ok(format!("/{verb}/{namespace}/{name}/{container}?{}", query.finish()))
}

/// Forwards the upgrade, and splices the connections until one side ends.
async fn forward_upgrade(kubelets: &KubeletClient, node: &str, path: &str, call: &mut Call) -> HandlerResult {
    let connection = call.headers.get(header::CONNECTION).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if !connection.to_ascii_lowercase().contains("upgrade") {
        return Err(ApiError::bad_request("Upgrade request required"));
    }
    let client = call.upgrade.take().ok_or_else(|| ApiError::bad_request("Upgrade request required: use HTTP/1.1"))?;
    let mut request = Request::builder().method(call.method.clone()).uri(path).header(header::HOST, node);
    if let Some(headers) = request.headers_mut() {
        copy_upgrade_headers(&call.headers, headers);
    }
    let response = send(kubelets, node, request.body(Empty::new())).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return forward_error(response).await;
    }
    let mut switched = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    if let Some(headers) = switched.headers_mut() {
        copy_upgrade_headers(response.headers(), headers);
    }
    reverse_proxy::splice(hyper::upgrade::on(response), client, std::mem::take(&mut call.audit));
    switched.body(upgrade::empty_body()).map_err(ApiError::internal)
}

/// Returns the kubelet's error as text, as upstream's proxy does, or as a Status.
///
/// client-go reads the text as YAML, to find a Status. A text of the form `key: value` is a mapping, and so a Status without
/// message: kubectl would print `Error from server: ` and no cause. A text with a colon is sent as a Status.
async fn forward_error(response: Response<hyper::body::Incoming>) -> HandlerResult {
    let (code, error) = (response.status().as_u16(), error_of_response(response).await);
    if error.message.contains(':') {
        return Err(error);
    }
    Ok(response::full(code, "text/plain; charset=utf-8", error.message))
}

fn copy_upgrade_headers(from: &HeaderMap, to: &mut HeaderMap) {
    for name in UPGRADE_HEADERS {
        for value in from.get_all(&name) {
            to.append(name.clone(), value.clone());
        }
    }
}
