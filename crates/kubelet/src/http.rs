//! The node's HTTP API: logs, explanations, figures, and streams into containers. Paths and parameters are upstream's kubelet's.

mod access;
mod channels;
mod held;
mod lists;
mod log_readers;
mod logs;
mod metrics;
mod port_forward;
mod remote_command;
pub(crate) mod secure;
mod summary;
mod system_logs;
mod upgrade;

pub(crate) use log_readers::LogReaders;
pub(crate) use summary::Rates;

use crate::{
    Shared,
    actor::{Handle, PodMessage},
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

/// Why a request is not answered, in words for people.
type Refused = (StatusCode, String);

/// Answers whoever is at the other end: the API server, which has asked who it is.
pub(crate) async fn serve(shared: Arc<Shared>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    serve_service(TowerToHyperService::new(router(shared)), stream).await;
}

async fn serve_service<S>(service: S, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static)
where
    S: hyper::service::HttpService<hyper::body::Incoming, ResBody = axum::body::Body, Future: Send> + Send,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    // How a connection ends is its client's affair.
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
        .route("/pods", get(lists::pods))
        .route("/pods/", get(lists::pods))
        .route("/runningpods", get(lists::running_pods))
        .route("/runningpods/", get(lists::running_pods))
        .route("/configz", get(lists::configz))
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

fn handle(shared: &Shared, namespace: &str, name: &str) -> Result<Handle, Refused> {
    let handle = shared.pods.by_name(namespace, name);
    handle.ok_or_else(|| (StatusCode::NOT_FOUND, format!("pod {name:?} is not known to this node")))
}

fn known(shared: &Shared, namespace: &str, name: &str) -> Result<Arc<Pod>, Refused> {
    let handle = handle(shared, namespace, name)?;
    let pod = handle.state.borrow().clone();
    Ok(pod)
}

async fn explain(
    State(shared): State<Arc<Shared>>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Response, Refused> {
    let pod = known(&shared, &namespace, &name)?;
    Ok(Json(lifecycle::explain(&pod, &shared.options.policy, shared.now())).into_response())
}

/// What happened to a Pod lately, as lines of JSON.
async fn history(
    State(shared): State<Arc<Shared>>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Response, Refused> {
    let (asked, told) = oneshot::channel();
    let _ = handle(&shared, &namespace, &name)?.messages.send(PodMessage::GetHistory(asked));
    // A task that has ended drops the question.
    let lines = told.await.map_err(|_| (StatusCode::NOT_FOUND, format!("pod {name:?} has just gone")))?;
    let mut text = String::new();
    for line in lines {
        text += &serde_json::to_string(&line).map_err(|e| (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
        text.push('\n');
    }
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], text).into_response())
}
