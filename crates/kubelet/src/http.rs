//! The kubelet's HTTP API: logs, metrics, `explain`, exec, attach and port-forward, with upstream's paths.

mod auth;
mod connection_limit;
pub(crate) mod https;
mod log_readers;
mod logs;
mod metrics;
mod pod_lists;
mod port_forward;
mod remote_command;
mod summary;
mod system_logs;
mod upgrade;
mod websocket_channels;

pub(crate) use log_readers::LogReaders;
pub(crate) use summary::CpuRates;

use crate::{
    Shared,
    pod_worker::{Handle, PodMessage},
};
use axum::{
    Json, Router,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use lifecycle::Pod;
use std::sync::Arc;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
};

/// Status code and message of a failed request.
type HttpError = (StatusCode, String);

/// Serves the API on a stream without authentication: the peer is the API server, which has authorized the request.
pub(crate) async fn serve(shared: Arc<Shared>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    serve_service(TowerToHyperService::new(router(shared)), stream).await;
}

async fn serve_service<S>(service: S, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static)
where
    S: hyper::service::HttpService<hyper::body::Incoming, ResBody = axum::body::Body, Future: Send> + Send,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    // Connection errors are the client's.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/healthz/ping", get(|| async { "ok" }))
        .route("/healthz/log", get(|| async { "ok" }))
        .route("/healthz/syncloop", get(|| async { "ok" }))
        .route("/logs", get(|| async { (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, "/logs/")]) }))
        .route("/logs/", get(system_logs::root))
        .route("/logs/{*path}", get(system_logs::below))
        .route("/pods", get(pod_lists::pods))
        .route("/pods/", get(pod_lists::pods))
        .route("/runningpods", get(pod_lists::running_pods))
        .route("/runningpods/", get(pod_lists::running_pods))
        .route("/configz", get(pod_lists::configz))
        .route("/metrics", get(metrics::kubelet))
        .route("/metrics/resource", get(metrics::resource))
        .route("/metrics/cadvisor", get(metrics::cadvisor))
        .route("/metrics/probes", get(metrics::probes))
        .route("/stats/summary", get(summary::summary))
        .route("/containerLogs/{namespace}/{pod}/{container}", get(logs::container_logs))
        .route("/explain/{namespace}/{pod}", get(explain))
        .route("/history/{namespace}/{pod}", get(history))
        // GET opens a WebSocket, POST SPDY.
        .route("/exec/{namespace}/{pod}/{container}", any(remote_command::exec))
        .route("/attach/{namespace}/{pod}/{container}", any(remote_command::attach))
        .route("/portForward/{namespace}/{pod}", any(port_forward::port_forward))
        .with_state(shared)
}

fn handle(shared: &Shared, namespace: &str, name: &str) -> Result<Handle, HttpError> {
    let handle = shared.pods.by_name(namespace, name);
    handle.ok_or_else(|| (StatusCode::NOT_FOUND, format!("pod {name:?} is not known to this node")))
}

fn find_pod(shared: &Shared, namespace: &str, name: &str) -> Result<Arc<Pod>, HttpError> {
    let handle = handle(shared, namespace, name)?;
    let pod = handle.state.borrow().clone();
    Ok(pod)
}

async fn explain(
    State(shared): State<Arc<Shared>>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Response, HttpError> {
    let pod = find_pod(&shared, &namespace, &name)?;
    Ok(Json(lifecycle::explain(&pod, &shared.options.policy, shared.now())).into_response())
}

/// `/history/{namespace}/{pod}`: the recent history of a Pod as JSON lines.
async fn history(
    State(shared): State<Arc<Shared>>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Response, HttpError> {
    let (reply, response) = oneshot::channel();
    let _ = handle(&shared, &namespace, &name)?.messages.send(PodMessage::GetHistory(reply));
    // A worker that has ended drops the request.
    let lines = response.await.map_err(|_| (StatusCode::NOT_FOUND, format!("pod {name:?} has just gone")))?;
    let mut text = String::new();
    for line in lines {
        text += &serde_json::to_string(&line).map_err(|e| (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
        text.push('\n');
    }
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], text).into_response())
}
