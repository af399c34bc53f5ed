//! CRI streaming client: exec, attach and port-forward over SPDY/3.1, at the URL returned by the runtime.
//!
//! SPDY instead of WebSocket, because the WebSocket protocol of containerd cannot half-close stdin.

use crate::{PortForward, RuntimeError, SandboxId, Session, SessionExit, SessionIo, TerminalSize};
use bytes::Bytes;
use futures::FutureExt;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use serde_json::Value;
use spdy::{Headers, Role, SpdyError, Stream};
use std::time::Duration;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    sync::mpsc,
};

/// Timeout for the upgrade to SPDY.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);
/// Subprotocol of exec and attach that reports the exit code as a Status.
const REMOTE_COMMAND: &str = "v4.channel.k8s.io";
/// Subprotocol of port-forward.
const PORT_FORWARD: &str = "portforward.k8s.io";
/// Maximum size of an error: a Status or a text.
const MAX_ERROR: u64 = 64 << 10;

/// Socket receive buffer in bytes: larger than the data that a sender has in flight.
const RECEIVE_BUFFER: usize = 8 << 20;

fn failed(operation: &'static str) -> impl Fn(&dyn std::fmt::Display) -> RuntimeError {
    move |e| RuntimeError::Failed(format!("{operation}: {e}"))
}

/// Connects to a streaming address and upgrades to SPDY. The streams keep the connection open.
async fn connect(url: &str, protocol: &'static str) -> Result<spdy::Session, RuntimeError> {
    let error = failed("the container runtime's streaming server");
    let uri: Uri = url.parse().map_err(|e| error(&e))?;
    let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http"));
    let authority = authority.ok_or_else(|| error(&format!("{url} is not an http URL")))?;
    let address = (authority.host().trim_matches(['[', ']']), authority.port_u16().unwrap_or(80));
    let upgrade = async {
        let stream = dial(address).await.map_err(|e| error(&e))?;
        let _ = stream.set_nodelay(true);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| error(&e))?;
        tokio::spawn(connection.with_upgrades());
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let request = Request::post(path)
            .header(header::HOST, authority.as_str())
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "SPDY/3.1")
            .header("X-Stream-Protocol-Version", protocol)
            .body(Empty::<Bytes>::new())
            .map_err(|e| error(&e))?;
        let response = sender.send_request(request).await.map_err(|e| error(&e))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let text = response.into_body().collect().await.map_err(|e| error(&e))?.to_bytes();
            return Err(error(&String::from_utf8_lossy(&text).trim()));
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(|e| error(&e))?;
        Ok(spdy::Session::new(TokioIo::new(upgraded), Role::Client))
    };
    let late = |_| RuntimeError::Deadline(format!("the container runtime did not answer within {UPGRADE_TIMEOUT:?}"));
    tokio::time::timeout(UPGRADE_TIMEOUT, upgrade).await.map_err(late)?
}

/// Connects with a large receive buffer. containerd closes the connection after the exit of a command even with unread
/// input. The kernel then resets the connection and drops output that is not yet in the receive buffer.
async fn dial(address: (&str, u16)) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in tokio::net::lookup_host(address).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Without CAP_NET_ADMIN the buffer is smaller.
        let _ = setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER);
        match socket.connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn named(kind: &str) -> Headers {
    vec![("streamtype".to_owned(), kind.to_owned())]
}

fn spdy_error(e: SpdyError) -> RuntimeError {
    failed("the container runtime's streaming connection")(&e)
}

/// Opens the streams of an exec or attach session. The runtime starts the session when all streams are open.
pub(super) async fn session(url: &str, io: SessionIo) -> Result<Session, RuntimeError> {
    let connection = connect(url, REMOTE_COMMAND).await?;
    let open = async |enabled: bool, kind: &str| match enabled {
        true => connection.open(named(kind)).await.map(Some).map_err(spdy_error),
        false => Ok(None),
    };
    let error = connection.open(named("error")).await.map_err(spdy_error)?;
    connection.set_final_stream(&error);
    let stdin = open(io.stdin, "stdin").await?;
    let stdout = open(io.stdout, "stdout").await?;
    let stderr = open(io.stderr && !io.tty, "stderr").await?;
    let resize = open(io.tty, "resize").await?.map(resizer);
    Ok(Session {
        stdin: stdin.map(|s| Box::new(s) as Box<dyn AsyncWrite + Send + Unpin>),
        stdout: stdout.map(|s| Box::new(s) as Box<dyn AsyncRead + Send + Unpin>),
        stderr: stderr.map(|s| Box::new(s) as Box<dyn AsyncRead + Send + Unpin>),
        resize,
        exit: async move {
            let mut text = Vec::new();
            let read = error.take(MAX_ERROR).read_to_end(&mut text).await;
            read.map_err(|e| failed("the session's end is unknown")(&e))?;
            Ok(exit(&text))
        }
        .boxed(),
    })
}

/// Forwards terminal sizes to the resize stream until the sender is dropped.
fn resizer(mut stream: Stream) -> mpsc::Sender<TerminalSize> {
    let (sender, mut sizes) = mpsc::channel::<TerminalSize>(4);
    tokio::spawn(async move {
        while let Some(size) = sizes.recv().await {
            let text = format!("{{\"Width\":{},\"Height\":{}}}\n", size.width, size.height);
            if stream.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    sender
}

/// Parses the Status of the error stream: version 4 of the protocol always sends one, in JSON.
fn exit(text: &[u8]) -> SessionExit {
    let lost = || SessionExit::Failed("the container runtime closed the session without a word".to_owned());
    let Ok(status) = serde_json::from_slice::<Value>(text) else {
        return if text.is_empty() { lost() } else { SessionExit::Failed(String::from_utf8_lossy(text).into_owned()) };
    };
    if status["status"] == "Success" {
        return SessionExit::Code(0);
    }
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    let code = causes
        .filter(|c| status["reason"] == "NonZeroExitCode" && c["reason"] == "ExitCode")
        .find_map(|c| c["message"].as_str()?.parse().ok());
    code.map_or_else(
        || SessionExit::Failed(status["message"].as_str().unwrap_or("unknown error").to_owned()),
        SessionExit::Code,
    )
}

/// Forwards a connection over its own SPDY connection, so that a slow one does not block others.
pub(super) async fn port_forward(url: &str, sandbox: &SandboxId, port: u16) -> Result<PortForward, RuntimeError> {
    let connection = connect(url, PORT_FORWARD).await?;
    let headers = |kind: &str| {
        let mut headers = named(kind);
        headers.extend([("port", port.to_string()), ("requestid", "0".to_owned())].map(|(n, v)| (n.to_owned(), v)));
        headers
    };
    let error = connection.open(headers("error")).await.map_err(spdy_error)?;
    let data = connection.open(headers("data")).await.map_err(spdy_error)?;
    let words = format!("port {port} of sandbox {sandbox}");
    Ok(PortForward {
        stream: Box::new(data),
        failure: async move {
            let mut text = Vec::new();
            let read = error.take(MAX_ERROR).read_to_end(&mut text).await;
            match read {
                Err(e) => Some(format!("{words}: {e}")),
                Ok(_) if text.is_empty() => None,
                Ok(_) => Some(String::from_utf8_lossy(&text).into_owned()),
            }
        }
        .boxed(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: SessionExit) {
        assert_eq!(exit(text.as_bytes()), expected);
    }

    #[test]
    fn exit_code_is_parsed_from_the_status() {
        let failed = |s: &str| SessionExit::Failed(s.to_owned());
        check(r#"{"metadata":{},"status":"Success"}"#, SessionExit::Code(0));
        check(
            r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"137"}]}}"#,
            SessionExit::Code(137),
        );
        check(r#"{"status":"Failure","reason":"InternalError","message":"no such file"}"#, failed("no such file"));
        check("plain words", failed("plain words"));
        check("", failed("the container runtime closed the session without a word"));
    }
}
