//! Port-forward: connects a client to ports in a Pod's network namespace.
//!
//! kubectl tunnels SPDY through a WebSocket, older clients use SPDY directly, and some (kube-rs) list the ports in the
//! query and use two WebSocket channels for each. All transports use [`forward`].

use super::{
    HttpError, find_pod,
    remote_command::parse_query,
    upgrade::{Connection, Socket, Upgrade},
    websocket_channels::{self, ClientMessage},
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

/// Protocol that tunnels SPDY in binary WebSocket messages (KEP-4006).
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const WEBSOCKET: [&str; 4] = [TUNNEL, "v4.channel.k8s.io", "v4.base64.channel.k8s.io", ""];
const SPDY: [&str; 1] = ["portforward.k8s.io"];
/// Limit of streams without their counterpart. Upstream limits their age to 30 s instead.
const MAX_UNPAIRED: usize = 256;
/// Limit of ports in one query: each has two channels, and a channel number is one byte.
const MAX_PORTS: usize = 100;
/// Buffer of a channel in bytes; a full buffer applies backpressure to the client.
const BUFFER: usize = 64 << 10;
/// Limit of an error message to the client in bytes.
const MAX_ERROR_LENGTH: u64 = 4 << 10;

/// Target of forwarded connections.
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
) -> Result<Response<Body>, HttpError> {
    let sandbox = find_pod(&shared, &namespace, &pod)?.sandbox_id().map(|id| SandboxId(id.to_owned()));
    // Upstream's text, to which clients add a prefix.
    let sandbox = sandbox.ok_or_else(|| (StatusCode::NOT_FOUND, "pod does not exist".to_owned()))?;
    let ports = ports(query.as_deref().unwrap_or(""))?;
    let target = Target { runtime: Arc::clone(&shared.runtime), sandbox };
    let upgrade = Upgrade::parse(&mut request, &WEBSOCKET, &SPDY)?;
    let protocol = upgrade.protocol;
    if ports.is_empty() && !protocol.ends_with("portforward.k8s.io") {
        return Err((StatusCode::BAD_REQUEST, "query parameter \"port\" is required".to_owned()));
    }
    let (response, connection) = upgrade.accept();
    tokio::spawn(async move {
        match connection.await {
            Ok(Connection::Spdy(io)) => serve_spdy(Session::new(io, Role::Server), target).await,
            Ok(Connection::WebSocket(socket)) if protocol == TUNNEL => {
                serve_spdy(Session::new(tunnel(*socket), Role::Server), target).await;
            }
            Ok(Connection::WebSocket(socket)) => serve_websocket_channels(*socket, protocol, &ports, &target).await,
            Err(error) => tracing::debug!(%error, "client disconnected before its ports were forwarded"),
        }
    });
    Ok(response)
}

fn ports(query: &str) -> Result<Vec<u16>, HttpError> {
    let named = parse_query(query).filter(|(name, _)| name == "port");
    let each = named.flat_map(|(_, value)| value.split(',').map(str::to_owned).collect::<Vec<_>>());
    let ports: Result<Vec<u16>, HttpError> = each
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

/// Forwards one connection to a port, and reports a failure on the error stream.
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

/// Copies bytes in both directions until the port's side ends; the client may close its side before.
///
/// Later input of the client is discarded, as in upstream's runtimes: clients whose protocol cannot close one direction
/// (kube-rs) wait until the server closes both.
async fn join(client: impl AsyncRead + AsyncWrite, port: impl AsyncRead + AsyncWrite) {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_port, mut to_port) = tokio::io::split(port);
    let there = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_port).await;
        let _ = to_port.shutdown().await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        // Copy errors are visible to both ends.
        _ = tokio::io::copy(&mut from_port, &mut to_client) => {}
        () = there => {}
    }
}

/// Serves SPDY streams, which come in pairs (data and error) with a common request ID.
async fn serve_spdy(mut session: Session, target: Target) {
    let mut waiting: HashMap<(String, u16), Stream> = HashMap::new();
    while let Some(stream) = session.next().await {
        let port = stream.header("port").and_then(|p| p.parse::<u16>().ok()).filter(|p| *p != 0);
        let kind = stream.header("streamtype").unwrap_or_default().to_owned();
        let (Some(port), "data" | "error", true) = (port, kind.as_str(), waiting.len() < MAX_UNPAIRED) else {
            // Dropping the stream resets it.
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

/// Returns a byte stream over the binary messages of a WebSocket.
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

/// Serves WebSocket channels: channel 2i has the data of the i-th port, 2i + 1 its error; both start with the port
/// number.
async fn serve_websocket_channels(socket: Socket, protocol: &str, ports: &[u16], target: &Target) {
    let (sender, mut receiver, writer) = websocket_channels::open(socket, protocol);
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
                let read = tokio::io::copy(&mut (&mut error).take(MAX_ERROR_LENGTH), &mut text).await;
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
        while let Some(message) = receiver.next().await {
            if let ClientMessage::Data(channel, bytes) = message
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
