//! Exec and attach: connects a client's streams with those of a process.

mod spdy_streams;
mod websocket;

use super::{
    HttpError, find_pod,
    upgrade::{Connection, Upgrade},
};
use crate::Shared;
use axum::{
    body::Body,
    extract::{Path, RawQuery, State},
    http::{Request, Response, StatusCode},
};
use futures::future::BoxFuture;
use runtime::{ContainerId, RuntimeError, Session, SessionExit, SessionIo, TerminalSize};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// Time limit for reading the remaining output of an exited process; its children may keep the pipes open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

type Target = Path<(String, String, String)>;

/// `/exec/{namespace}/{pod}/{container}?command=..&input&output&error&tty`
pub(super) async fn exec(
    State(shared): State<Arc<Shared>>,
    Path((namespace, pod, container)): Target,
    RawQuery(query): RawQuery,
    request: Request<Body>,
) -> Result<Response<Body>, HttpError> {
    let query = Parameters::parse(query.as_deref().unwrap_or(""))?;
    if query.command.is_empty() {
        return Err((StatusCode::BAD_REQUEST, "you must specify at least 1 command for the exec".to_owned()));
    }
    let id = running_container(&shared, &namespace, &pod, &container)?;
    serve(request, query.io, async || shared.runtime.exec(&id, &query.command, query.io).await).await
}

/// `/attach/{namespace}/{pod}/{container}?input&output&error&tty`
pub(super) async fn attach(
    State(shared): State<Arc<Shared>>,
    Path((namespace, pod, container)): Target,
    RawQuery(query): RawQuery,
    request: Request<Body>,
) -> Result<Response<Body>, HttpError> {
    let query = Parameters::parse(query.as_deref().unwrap_or(""))?;
    let id = running_container(&shared, &namespace, &pod, &container)?;
    serve(request, query.io, async || shared.runtime.attach(&id, query.io).await).await
}

#[derive(Debug, Default)]
struct Parameters {
    command: Vec<String>,
    io: SessionIo,
}

impl Parameters {
    fn parse(query: &str) -> Result<Self, HttpError> {
        let mut all = Self::default();
        for (name, value) in parse_query(query) {
            let on = matches!(value.as_str(), "1" | "true");
            match name.as_str() {
                "command" => all.command.push(value),
                "input" => all.io.stdin = on,
                "output" => all.io.stdout = on,
                "error" => all.io.stderr = on,
                "tty" => all.io.tty = on,
                _ => {}
            }
        }
        // A terminal combines stdout and stderr.
        all.io.stderr &= !all.io.tty;
        if all.io.stdin || all.io.stdout || all.io.stderr {
            return Ok(all);
        }
        Err((StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr".to_owned()))
    }
}

/// Parses a query into decoded names and values.
pub(super) fn parse_query(query: &str) -> impl Iterator<Item = (String, String)> {
    form_urlencoded::parse(query.as_bytes()).into_owned()
}

/// Returns the ID of a running container.
fn running_container(shared: &Shared, namespace: &str, pod: &str, container: &str) -> Result<ContainerId, HttpError> {
    let pod = find_pod(shared, namespace, pod)?;
    let id = pod.container_id(container, false).filter(|_| pod.is_running(container));
    // Upstream's status code and message, to which clients add a prefix.
    let (id, _) =
        id.ok_or_else(|| (StatusCode::INTERNAL_SERVER_ERROR, format!("container not found ({container:?})")))?;
    Ok(ContainerId(id))
}

async fn serve(
    mut request: Request<Body>,
    io: SessionIo,
    start: impl AsyncFnOnce() -> Result<Session, RuntimeError>,
) -> Result<Response<Body>, HttpError> {
    let upgrade = Upgrade::parse(&mut request, &websocket::PROTOCOLS, &spdy_streams::PROTOCOLS)?;
    // The process starts before the response, so that a failure is an HTTP error and not a closed connection.
    let session = start().await.map_err(|e| {
        let status = if matches!(e, RuntimeError::NotFound(_)) {
            StatusCode::NOT_FOUND
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        (status, e.to_string())
    })?;
    let protocol = upgrade.protocol;
    let (response, connection) = upgrade.accept();
    tokio::spawn(async move {
        match connection.await {
            Ok(Connection::WebSocket(socket)) => websocket::bridge(*socket, protocol, io, session).await,
            Ok(Connection::Spdy(stream)) => spdy_streams::bridge(stream, protocol, io, session).await,
            Err(error) => tracing::debug!(%error, "client disconnected before its streams were open"),
        }
    });
    Ok(response)
}

/// Waits until a process has exited and its output was copied. Returns its exit.
async fn wait_for_exit(
    output: impl Future<Output = ()>,
    mut exit: BoxFuture<'static, Result<SessionExit, RuntimeError>>,
) -> Result<SessionExit, RuntimeError> {
    tokio::pin!(output);
    let mut drained = false;
    let exit = loop {
        tokio::select! {
            () = &mut output, if !drained => drained = true,
            exit = &mut exit => break exit,
        }
    };
    if !drained {
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, output).await;
    }
    exit
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    width: u16,
    height: u16,
}

fn terminal_size(bytes: &[u8]) -> Option<TerminalSize> {
    let Size { width, height } = serde_json::from_slice(bytes).ok()?;
    Some(TerminalSize { width, height })
}

/// Returns the final message of the error channel: a Status since protocol version 4, before that only the error text.
fn exit_message(protocol: &str, exit: Result<SessionExit, RuntimeError>) -> String {
    let status = status(exit);
    match (protocol.starts_with('v'), status["status"].as_str()) {
        (true, _) => status.to_string(),
        (false, Some("Success")) => String::new(),
        (false, _) => status["message"].as_str().unwrap_or_default().to_owned(),
    }
}

fn status(exit: Result<SessionExit, RuntimeError>) -> Value {
    let failed = |message: String| json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500, "message": message});
    match exit {
        Ok(SessionExit::Code(0)) => json!({"metadata": {}, "status": "Success"}),
        Ok(SessionExit::Code(code)) => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Ok(SessionExit::Failed(message)) => failed(message),
        Err(e) => failed(e.to_string()),
    }
}
