//! Port-forward: connections of a client to ports inside a Pod's network namespace.
//!
//! kubectl tunnels SPDY through a WebSocket, older clients speak SPDY at once, and some (kube-rs) name the ports in
//! the query and use two channels for each. All end at [`forward`].

use super::{
    Refused,
    channels::{self, Said},
    known,
    remote_command::form,
    upgrade::{Connection, Socket, Upgrade},
};
use crate::Shared;
use axum::{
    body::Body,
    extract::{Path, RawQuery, State},
    http::{Request, Response, StatusCode},
};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use runtime::{Runtime, SandboxId};
use spdy::{Role, Session, Stream};
use std::{collections::HashMap, io, sync::Arc};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};

/// SPDY in the binary messages of a WebSocket (KEP-4006).
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const WEBSOCKET: [&str; 4] = [TUNNEL, "v4.channel.k8s.io", "v4.base64.channel.k8s.io", ""];
const SPDY: [&str; 1] = ["portforward.k8s.io"];
/// Streams of a pair of which the other has not come yet; upstream gives them 30 s, we a number.
const MAX_UNPAIRED: usize = 256;
/// Ports in one query: two channels each, numbered in a byte.
const MAX_PORTS: usize = 100;
/// What may wait for a slow port before its client waits.
const BUFFER: usize = 64 << 10;
/// The longest error text that a client is sent, in bytes.
const LONGEST_ERROR: u64 = 4 << 10;

/// Where connections go.
#[derive(Clone)]
struct Target {
    runtime: Arc<dyn Runtime>,
    sandbox: SandboxId,
}

/// `/portForward/{namespace}/{pod}?port=..`
pub(super) async fn port_forward(
    State(shared): State<Arc<Shared>>,
    Path((namespace, pod)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    mut request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let sandbox = known(&shared, &namespace, &pod)?.sandbox_id().map(|id| SandboxId(id.to_owned()));
    let sandbox = sandbox.ok_or_else(|| {
        (
            StatusCode::NOT_FOUND,
            format!("unable to upgrade connection: pod does not exist ({pod}_{namespace} has no sandbox)"),
        )
    })?;
    let ports = ports(query.as_deref().unwrap_or(""))?;
    let target = Target { runtime: Arc::clone(&shared.runtime), sandbox };
    let upgrade = Upgrade::of(&mut request, &WEBSOCKET, &SPDY)?;
    let protocol = upgrade.protocol;
    if ports.is_empty() && !protocol.ends_with("portforward.k8s.io") {
        return Err((StatusCode::BAD_REQUEST, "query parameter \"port\" is required".to_owned()));
    }
    let (response, connection) = upgrade.accept();
    tokio::spawn(async move {
        match connection.await {
            Ok(Connection::Spdy(io)) => pairs(Session::new(io, Role::Server), target).await,
            Ok(Connection::WebSocket(socket)) if protocol == TUNNEL => {
                pairs(Session::new(tunnel(*socket), Role::Server), target).await;
            }
            Ok(Connection::WebSocket(socket)) => numbered(*socket, protocol, &ports, &target).await,
            Err(error) => tracing::debug!(%error, "a client left before its ports were forwarded"),
        }
    });
    Ok(response)
}

fn ports(query: &str) -> Result<Vec<u16>, Refused> {
    let named = form(query).filter(|(name, _)| name == "port");
    let each = named.flat_map(|(_, value)| value.split(',').map(str::to_owned).collect::<Vec<_>>());
    let ports: Result<Vec<u16>, Refused> = each
        .map(|p| match p.parse() {
            Ok(0) | Err(_) => Err((StatusCode::BAD_REQUEST, format!("port {p:?} is not a number from 1 to 65535"))),
            Ok(port) => Ok(port),
        })
        .collect();
    ports.and_then(|p| match p.len() {
        0..=MAX_PORTS => Ok(p),
        n => Err((StatusCode::BAD_REQUEST, format!("{n} ports are more than {MAX_PORTS}"))),
    })
}

/// One connection: to the port and back, and a word on the error stream if that fails.
async fn forward(
    target: &Target,
    port: u16,
    mut data: impl AsyncRead + AsyncWrite + Unpin,
    mut error: impl AsyncWrite + Unpin,
) {
    let failure = match target.runtime.port_forward(&target.sandbox, port).await {
        Err(e) => Some(e.to_string()),
        Ok(connection) => {
            join(&mut data, connection.stream).await;
            connection.failure.await
        }
    };
    if let Some(text) = failure {
        let _ = error.write_all(text.as_bytes()).await;
    }
    let _ = error.shutdown().await;
    let _ = data.shutdown().await;
}

/// Carries bytes both ways until the port's side ends; the client may end its own before.
///
/// What a client still sends after that is lost, as it is with upstream's runtimes: clients whose protocol cannot end
/// one direction alone (kube-rs) wait for us to end both.
async fn join(client: impl AsyncRead + AsyncWrite, port: impl AsyncRead + AsyncWrite) {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_port, mut to_port) = tokio::io::split(port);
    let there = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_port).await;
        let _ = to_port.shutdown().await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        // How a connection ends is for its two ends to know.
        _ = tokio::io::copy(&mut from_port, &mut to_client) => {}
        () = there => {}
    }
}

/// Streams come in pairs, data and error, that share a request id.
async fn pairs(mut session: Session, target: Target) {
    let mut waiting: HashMap<(String, u16), Stream> = HashMap::new();
    while let Some(stream) = session.next().await {
        let port = stream.header("port").and_then(|p| p.parse::<u16>().ok()).filter(|p| *p != 0);
        let kind = stream.header("streamtype").unwrap_or_default().to_owned();
        let (Some(port), "data" | "error", true) = (port, kind.as_str(), waiting.len() < MAX_UNPAIRED) else {
            // Dropped, which resets it.
            continue;
        };
        stream.accept();
        let request = (stream.header("requestid").unwrap_or_default().to_owned(), port);
        let Some(other) = waiting.remove(&request) else {
            waiting.insert(request, stream);
            continue;
        };
        let (data, error) = if kind == "data" { (stream, other) } else { (other, stream) };
        let target = target.clone();
        tokio::spawn(async move { forward(&target, port, data, error).await });
    }
}

/// The bytes in a WebSocket's binary messages.
fn tunnel(socket: Socket) -> impl AsyncRead + AsyncWrite + Send {
    let (sink, stream) = socket.split();
    let bytes = stream.filter_map(|message| async {
        match message {
            Ok(Message::Binary(bytes)) => Some(Ok(bytes)),
            Ok(Message::Close(_)) => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => None,
            Err(e) => Some(Err(io::Error::other(e))),
        }
    });
    let sink =
        sink.sink_map_err(io::Error::other).with(async |bytes: Bytes| Ok::<_, io::Error>(Message::Binary(bytes)));
    tokio::io::join(StreamReader::new(Box::pin(bytes)), SinkWriter::new(CopyToBytes::new(Box::pin(sink))))
}

/// Channel 2i carries the data of the i-th port, 2i + 1 its error; both begin with the port's number.
async fn numbered(socket: Socket, protocol: &str, ports: &[u16], target: &Target) {
    let (sender, mut receiver, writer) = channels::open(socket, protocol);
    let mut inputs = Vec::new();
    let mut connections = Vec::new();
    for (i, port) in (0_u8..).zip(ports.iter().copied()) {
        let (data_channel, error_channel) = (2 * i, 2 * i + 1);
        for channel in [data_channel, error_channel] {
            sender.send(channel, &port.to_le_bytes()).await;
        }
        let (data, far_data) = tokio::io::duplex(BUFFER);
        let (mut error, far_error) = tokio::io::duplex(BUFFER);
        let (mut output, input) = tokio::io::split(data);
        inputs.push(input);
        let sender = sender.clone();
        connections.push(async move {
            let out = async {
                sender.copy(data_channel, &mut output).await;
                let mut text = Vec::new();
                let read = tokio::io::copy(&mut (&mut error).take(LONGEST_ERROR), &mut text).await;
                if read.is_ok() && !text.is_empty() {
                    sender.send(error_channel, &text).await;
                }
                let _ = tokio::io::copy(&mut error, &mut tokio::io::sink()).await;
            };
            tokio::join!(forward(target, port, far_data, far_error), out);
        });
    }
    drop(sender);
    let input = async {
        while let Some(said) = receiver.next().await {
            if let Said::Data(channel, bytes) = said
                && channel % 2 == 0
                && let Some(to) = inputs.get_mut(usize::from(channel / 2))
            {
                let _ = to.write_all(&bytes).await;
            }
        }
    };
    tokio::select! {
        _ = futures::future::join_all(connections) => {}
        () = input => return,
    }
    let _ = writer.await;
}
