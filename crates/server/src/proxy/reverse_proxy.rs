//! Reverse proxy: bodies are streamed in both directions, and upgraded connections are spliced
//! (upstream's `k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go`).

use crate::{
    http::upgrade::{connection_options, empty_body, is_upgrade},
    proxy::node_dialer::DialedStream,
};
use audit::AuditContext;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use response::{Body, BoxError, ProxiedResponse};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, sink, split};

/// Timeout of a client to read the remaining bytes and to close.
const LINGER: Duration = Duration::from_secs(5);
/// Hop-by-hop headers, which are not forwarded.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// A request to a backend.
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    /// Path and query of the backend.
    pub(crate) to: String,
    /// The client's headers.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
    /// The client's connection.
    pub(crate) upgrade: Option<OnUpgrade>,
    /// Audit event, held until a spliced connection ends.
    pub(crate) audit: AuditContext,
}

/// Error without a response of the backend.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error("{}", innermost_cause(.0))]
    Answer(#[from] hyper::Error),
}

/// Returns the text of the innermost cause, as Go.
fn innermost_cause(error: &hyper::Error) -> String {
    if error.is_incomplete_message() {
        return "EOF".to_owned();
    }
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Removes hop-by-hop headers, except those of an upgrade.
fn strip_hop_by_hop_headers(headers: &mut HeaderMap, upgrade: bool) {
    let protocol = headers.get(header::UPGRADE).cloned();
    let named: Vec<String> = connection_options(headers).map(str::to_owned).collect();
    named.iter().for_each(|name| drop(headers.remove(name.as_str())));
    HOP_BY_HOP.iter().for_each(|name| drop(headers.remove(name)));
    if let Some(protocol) = protocol.filter(|_| upgrade) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
}

/// Sends a request on a connection of its own.
///
/// # Errors
/// When the backend does not respond.
pub(crate) async fn forward(stream: Box<dyn DialedStream>, outgoing: Outgoing) -> Result<Response<Body>, ForwardError> {
    let Outgoing { method, to, mut headers, body, upgrade, audit } = outgoing;
    let is_upgrading = upgrade.is_some() && is_upgrade(&headers);
    strip_hop_by_hop_headers(&mut headers, is_upgrading);
    // The client's credentials are not for the backend.
    headers.remove(header::AUTHORIZATION);
    let mut request = Request::builder().method(method).uri(to).body(body)?;
    *request.headers_mut() = headers;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    let mut response = sender.send_request(request).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        strip_hop_by_hop_headers(response.headers_mut(), true);
        return Ok(respond_to_upgrade(response, upgrade, audit));
    }
    strip_hop_by_hop_headers(response.headers_mut(), false);
    let mut response = response.map(|body| body.map_err(|e| -> BoxError { e.into() }).boxed_unsync());
    response.extensions_mut().insert(ProxiedResponse);
    Ok(response)
}

/// Responds to an upgrade, and splices the connections.
fn respond_to_upgrade(
    mut response: Response<hyper::body::Incoming>,
    client: Option<OnUpgrade>,
    audit: AuditContext,
) -> Response<Body> {
    if let Some(client) = client {
        splice(hyper::upgrade::on(&mut response), client, audit);
    }
    response.map(|_| empty_body())
}

/// Splices two upgraded connections in a task, until one side ends.
pub(crate) fn splice(server: OnUpgrade, client: OnUpgrade, audit: AuditContext) {
    tokio::spawn(async move {
        // The audit event completes when the session ends.
        let _audit = audit;
        let (Ok(server), Ok(client)) = tokio::join!(server, client) else { return };
        // Errors of a session are reported by its own protocol.
        copy_bidirectional(TokioIo::new(server), TokioIo::new(client)).await;
    });
}

/// Copies bytes in both directions. When the server has closed, the client's bytes are still drained: unread bytes at
/// close reset the connection, and the client would lose what it has not read.
async fn copy_bidirectional(server: impl AsyncRead + AsyncWrite, client: impl AsyncRead + AsyncWrite) {
    let ((mut from_server, mut to_server), (mut from_client, mut to_client)) = (split(server), split(client));
    let down = async {
        let _ = copy(&mut from_server, &mut to_client).await;
        let _ = to_client.shutdown().await;
    };
    let up = async {
        if copy(&mut from_client, &mut to_server).await.is_ok() {
            let _ = to_server.shutdown().await;
            return Ok(0);
        }
        // Either the server no longer reads, but may still write, or the client has disconnected.
        copy(&mut from_client, &mut sink()).await
    };
    tokio::pin!(up, down);
    tokio::select! {
        () = &mut down => drop(tokio::time::timeout(LINGER, up).await),
        received = &mut up => if received.is_ok() { down.await },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    fn headers(all: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        headers
    }

    #[track_caller]
    fn check(all: &[(&str, &str)], upgrade: bool, expected: &[(&str, &str)]) {
        let mut stripped = headers(all);
        strip_hop_by_hop_headers(&mut stripped, upgrade);
        assert_eq!(stripped, headers(expected));
    }

    #[tokio::test]
    async fn client_reads_all_bytes_after_server_closed() {
        let ((mut server, near), (far, mut client)) = (tokio::io::duplex(16), tokio::io::duplex(16));
        let copying = tokio::spawn(copy_bidirectional(near, far));
        // The client keeps sending, and reads the last bytes of the server late.
        client.write_all(b"0123456789").await.unwrap();
        server.write_all(b"the last words").await.unwrap();
        drop(server);
        client.write_all(&[b'x'; 200]).await.unwrap();
        let mut received = String::new();
        client.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "the last words");
        drop(client);
        copying.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_does_not_close_is_dropped_after_linger() {
        let ((server, near), (far, client)) = (tokio::io::duplex(16), tokio::io::duplex(16));
        let start = tokio::time::Instant::now();
        let copying = tokio::spawn(copy_bidirectional(near, far));
        drop(server);
        copying.await.unwrap();
        assert_eq!(start.elapsed(), LINGER);
        drop(client);
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let request =
            [("accept", "a"), ("connection", "close, X-Own"), ("x-own", "b"), ("te", "trailers"), ("keep-alive", "5")];
        check(&request, false, &[("accept", "a")]);
        let upgrade = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket"), ("sec-websocket-key", "k")];
        assert!(is_upgrade(&headers(&upgrade)) && !is_upgrade(&headers(&upgrade[1..])));
        check(&upgrade, false, &[("sec-websocket-key", "k")]);
        check(&upgrade, true, &[("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-key", "k")]);
    }
}
