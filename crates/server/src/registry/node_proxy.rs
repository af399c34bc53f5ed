//! Requests to a node's kubelet: `pods/log`, and helpers of `proxy.rs` and `node_stream.rs`.

use crate::{
    http::{request_body::read_body, websocket},
    objects::{call::Call, object, request_scope::RequestScope},
    registry::kubelet_client::KubeletClient,
};
use bytes::Bytes;
use errors::{ApiError, GroupKind};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kinds::{FieldErrors, FieldPath};
use request::Query;
use response::{BoxError, HandlerResult};
use serde_json::{Value, json};
use std::io;

pub(crate) async fn log(kubelets: &KubeletClient, resource: &RequestScope, call: &Call) -> HandlerResult {
    let name = resource.name.as_deref().unwrap_or("");
    let pod = pod(kubelets, resource)?;
    check_log_options(name, &call.query)?;
    let container = container(&pod, name, call.query.get("container"))?;
    let Some(node) = pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()) else {
        // Without a node there is no log (upstream's `LogLocation` and `InputStream`).
        return Ok(response::text(204, ""));
    };
    let path = format!("/containerLogs/{}/{name}/{container}?{}", resource.namespace, call.raw_query);
    let mut response = get_streamed(kubelets, node, &path).await?;
    // A log is `text/plain` (upstream's `LogREST`); clients reject a response without a content type.
    if response.status().is_success() {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        response.extensions_mut().insert(websocket::Log);
    }
    Ok(response)
}

/// Upstream's `ValidatePodLogOptions`.
fn check_log_options(name: &str, query: &Query) -> Result<(), ApiError> {
    let mut errors = FieldErrors::default();
    for (option, minimum, text) in [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
    ] {
        if let Some(value) = query.number::<i64>(option)?.filter(|v| *v < minimum) {
            errors.invalid(&FieldPath::new(option), &json!(value), text);
        }
    }
    if query.get("sinceSeconds").is_some() && query.get("sinceTime").is_some() {
        let text = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        errors.forbidden(&FieldPath::new("[]"), text);
    }
    // Alpha feature `PodLogsQuerySplitStreams`.
    if query.get("stream").is_some() {
        errors.forbidden(&FieldPath::new("stream"), "may not be specified");
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(GroupKind::new("", "PodLogOptions"), name, &errors)) }
}

/// Returns the Pod of a request.
pub(crate) fn pod(kubelets: &KubeletClient, resource: &RequestScope) -> Result<Value, ApiError> {
    let (kind, name) = (&*resource.kind, resource.name.as_deref().unwrap_or(""));
    let stored = kubelets.store.get(&object::key(kind, &resource.namespace, name));
    Ok(object::decode(kind, &stored.ok_or_else(|| ApiError::not_found(kind.info(), name))?))
}

/// Returns the container of a request: the requested one, the annotated default, or the only one.
pub(crate) fn container(pod: &Value, name: &str, requested: Option<&str>) -> Result<String, ApiError> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let all: Vec<&str> = lists
        .iter()
        .flat_map(|l| pod["spec"][l].as_array().into_iter().flatten())
        .filter_map(|c| c["name"].as_str())
        .collect();
    let app: Vec<&str> =
        pod["spec"]["containers"].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()).collect();
    let annotated = pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].as_str();
    match (requested, app.as_slice()) {
        (Some(requested), _) if all.contains(&requested) => Ok(requested.to_owned()),
        (Some(requested), _) => {
            Err(ApiError::bad_request(format!("container {requested} is not valid for pod {name}")))
        }
        (None, [only]) => Ok((*only).to_owned()),
        (None, _) if annotated.is_some_and(|a| all.contains(&a)) => Ok(annotated.unwrap_or("").to_owned()),
        (None, _) => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            app.join(" ")
        ))),
    }
}

async fn get_streamed(kubelets: &KubeletClient, node: &str, path: &str) -> HandlerResult {
    let response = get(kubelets, node, path).await?;
    Ok(response.map(|body| body.map_err(|e| -> BoxError { e.into() }).boxed_unsync()))
}

/// Returns the whole body of a kubelet's response.
pub(crate) async fn text(kubelets: &KubeletClient, node: &str, path: &str) -> Result<String, ApiError> {
    let response = get(kubelets, node, path).await?;
    let body = read_body(response.into_body()).await?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// Returns a kubelet's response, if it is successful.
async fn get(kubelets: &KubeletClient, node: &str, path: &str) -> Result<Response<Incoming>, ApiError> {
    let response = send(kubelets, node, Request::get(path).header(header::HOST, node).body(Empty::new())).await?;
    if response.status().is_success() { Ok(response) } else { Err(error_of_response(response).await) }
}

/// Sends a request to a node's kubelet on a connection of its own, which can be upgraded.
pub(crate) async fn send(
    kubelets: &KubeletClient,
    node: &str,
    request: http::Result<Request<Empty<Bytes>>>,
) -> Result<Response<Incoming>, ApiError> {
    let failed = |e: &dyn std::fmt::Display| ApiError::internal(format!("error dialing node {node}: {e}"));
    let stream = kubelets.dialer.dial(node).await.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let message =
                format!("node {node:?} is another one than this API server's, which does not reach its kubelet");
            ApiError::new(503, "ServiceUnavailable", format!("{message}: {error}"))
        }
        _ => failed(&error),
    })?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed(&e))?;
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request.map_err(|e| failed(&e))?).await.map_err(|e| failed(&e))
}

/// Converts an error response of the kubelet to a Status.
pub(crate) async fn error_of_response(response: Response<Incoming>) -> ApiError {
    let status = response.status();
    let text = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    let reason = match status {
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::FORBIDDEN => "Forbidden",
        s if s.is_server_error() => "InternalError",
        _ => "BadRequest",
    };
    ApiError::new(status.as_u16(), reason, text)
}
