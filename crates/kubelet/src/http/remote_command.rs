//! Exec and attach: a client's channels and the streams of a process, joined.

use super::{
    Refused,
    channels::{self, Said},
    known,
    upgrade::{Connection, Socket, Upgrade},
};
use crate::Shared;
use axum::{
    body::Body,
    extract::{Path, RawQuery, State},
    http::{Request, Response, StatusCode},
};
use bytes::Bytes;
use runtime::{ContainerId, RuntimeError, Session, SessionExit, SessionIo, TerminalSize};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};

/// WebSocket subprotocols, and what they add: 4 tells the exit code as a Status, 5 lets a client end its input.
const WEBSOCKET: [&str; 7] = [
    "v5.channel.k8s.io",
    "v5.base64.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "",
];
/// How long output may still come when the process has ended: what it left in the pipes, not what its children add.
const DRAIN: Duration = Duration::from_secs(5);

/// Numbers of the channels.
mod channel {
    pub(super) const STDIN: u8 = 0;
    pub(super) const STDOUT: u8 = 1;
    pub(super) const STDERR: u8 = 2;
    pub(super) const ERROR: u8 = 3;
    pub(super) const RESIZE: u8 = 4;
}

type Target = Path<(String, String, String)>;

/// `/exec/{namespace}/{pod}/{container}?command=..&input&output&error&tty`
pub(super) async fn exec(
    State(shared): State<Arc<Shared>>,
    Path((namespace, pod, container)): Target,
    RawQuery(query): RawQuery,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let query = Parameters::parse(query.as_deref().unwrap_or(""))?;
    if query.command.is_empty() {
        return Err((StatusCode::BAD_REQUEST, "you must specify at least 1 command for the exec".to_owned()));
    }
    let id = running(&shared, &namespace, &pod, &container)?;
    serve(request, query.io, async || shared.runtime.exec(&id, &query.command, query.io).await).await
}

/// `/attach/{namespace}/{pod}/{container}?input&output&error&tty`
pub(super) async fn attach(
    State(shared): State<Arc<Shared>>,
    Path((namespace, pod, container)): Target,
    RawQuery(query): RawQuery,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let query = Parameters::parse(query.as_deref().unwrap_or(""))?;
    let id = running(&shared, &namespace, &pod, &container)?;
    serve(request, query.io, async || shared.runtime.attach(&id, query.io).await).await
}

#[derive(Debug, Default)]
struct Parameters {
    command: Vec<String>,
    io: SessionIo,
}

impl Parameters {
    fn parse(query: &str) -> Result<Self, Refused> {
        let mut all = Self::default();
        for (name, value) in form(query) {
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
        // A terminal has one output.
        all.io.stderr &= !all.io.tty;
        if all.io.stdin || all.io.stdout || all.io.stderr {
            return Ok(all);
        }
        Err((StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr".to_owned()))
    }
}

/// Names and values of a query, decoded.
pub(super) fn form(query: &str) -> impl Iterator<Item = (String, String)> {
    form_urlencoded::parse(query.as_bytes()).into_owned()
}

/// The running container of this name.
fn running(shared: &Shared, namespace: &str, pod: &str, container: &str) -> Result<ContainerId, Refused> {
    let known = known(shared, namespace, pod)?;
    let id = known.container_id(container, false).filter(|_| known.is_running(container));
    let (id, _) = id.ok_or_else(|| {
        (StatusCode::NOT_FOUND, format!("unable to upgrade connection: container not found ({container:?})"))
    })?;
    Ok(ContainerId(id))
}

async fn serve(
    mut request: Request<Body>,
    io: SessionIo,
    start: impl AsyncFnOnce() -> Result<Session, RuntimeError>,
) -> Result<Response<Body>, Refused> {
    let upgrade = Upgrade::of(&mut request, &WEBSOCKET, &[])?;
    // Before the answer: what cannot start is an HTTP error with words, not a connection that closes.
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
        if let Ok(Connection::WebSocket(socket)) = connection.await {
            bridge(*socket, protocol, io, session).await;
        }
    });
    Ok(response)
}

/// Joins a client and a process until one of them ends.
async fn bridge(socket: Socket, protocol: &'static str, io: SessionIo, session: Session) {
    let Session { stdin, mut stdout, mut stderr, resize, exit } = session;
    let (sender, receiver, writer) = channels::open(socket, protocol);
    // Tells the client that the streams are open, before there is output.
    let first = if io.stdout {
        channel::STDOUT
    } else if io.stderr {
        channel::STDERR
    } else {
        channel::ERROR
    };
    sender.send(first, &[]).await;
    let output = async {
        let stdout = async {
            if let Some(from) = &mut stdout {
                sender.copy(channel::STDOUT, from).await;
            }
        };
        let stderr = async {
            if let Some(from) = &mut stderr {
                sender.copy(channel::STDERR, from).await;
            }
        };
        tokio::join!(stdout, stderr);
    };
    let ended = async {
        tokio::pin!(output);
        tokio::pin!(exit);
        let mut drained = false;
        let exit = loop {
            tokio::select! {
                () = &mut output, if !drained => drained = true,
                exit = &mut exit => break exit,
            }
        };
        if !drained {
            let _ = tokio::time::timeout(DRAIN, output).await;
        }
        let text = last_word(protocol, exit);
        if !text.is_empty() {
            sender.send(channel::ERROR, text.as_bytes()).await;
        }
    };
    tokio::select! {
        () = ended => {}
        () = input(receiver, stdin, resize) => return,
    }
    drop(sender);
    let _ = writer.await;
}

/// Hands what the client says to the process, until the client goes.
async fn input(
    mut receiver: channels::Receiver,
    mut stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    resize: Option<mpsc::Sender<TerminalSize>>,
) {
    while let Some(said) = receiver.next().await {
        match said {
            Said::Data(channel::STDIN, bytes) => {
                // A process that reads no more is no reason to end: its output and its exit are still wanted.
                if let Some(to) = &mut stdin
                    && to.write_all(&bytes).await.is_err()
                {
                    stdin = None;
                }
            }
            Said::Closed(channel::STDIN) => {
                if let Some(mut to) = stdin.take() {
                    let _ = to.shutdown().await;
                }
            }
            Said::Data(channel::RESIZE, bytes) => {
                if let (Some(resize), Some(size)) = (&resize, terminal_size(&bytes)) {
                    let _ = resize.send(size).await;
                }
            }
            Said::Data(..) | Said::Closed(_) => {}
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    width: u16,
    height: u16,
}

fn terminal_size(bytes: &Bytes) -> Option<TerminalSize> {
    let Size { width, height } = serde_json::from_slice(bytes).ok()?;
    Some(TerminalSize { width, height })
}

/// What the error channel says at the end: a Status since version 4, only failures in words before.
fn last_word(protocol: &str, exit: Result<SessionExit, RuntimeError>) -> String {
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
