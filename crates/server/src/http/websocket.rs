//! Watches and logs over WebSockets, and bearer tokens in a subprotocol, for browsers, which cannot set headers
//! (upstream's `apiserver/pkg/util/wsstream` and `authentication/request/websocket`).

use crate::http::upgrade::{empty_body, is_upgrade};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use response::{Body, JsonStream};
use std::time::Duration;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

/// Prefix of the subprotocol that contains a bearer token.
const TOKEN: &str = "base64url.bearer.authorization.k8s.io.";
/// Subprotocols of logs.
const LOG_PROTOCOLS: [&str; 3] = ["", "binary.k8s.io", BASE64];
const BASE64: &str = "base64.binary.k8s.io";
/// Maximum size of a client's message, which is ignored.
const MAX_MESSAGE: usize = 4 << 10;
/// Timeout of the client's close.
const LINGER: Duration = Duration::from_secs(5);

/// Marks a response that streams a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Log;

/// A WebSocket upgrade request.
pub(crate) struct WebSocketUpgrade {
    accept_key: String,
    protocols: Vec<String>,
    on: OnUpgrade,
}

/// Encoding of a body's frames as WebSocket messages.
#[derive(Debug, Clone, Copy)]
enum MessageEncoding {
    /// One text message for each line.
    Lines,
    /// Binary messages.
    Bytes,
    /// Text messages in Base64.
    Base64,
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let to = headers.get(header::UPGRADE).and_then(|v| v.to_str().ok());
    is_upgrade(headers) && to.is_some_and(|to| to.eq_ignore_ascii_case("websocket"))
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|v| v.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

/// Moves a bearer token from a subprotocol to the `Authorization` header. There must be another subprotocol, since a
/// client expects the server to select one.
pub(crate) fn move_token(headers: &mut HeaderMap) {
    if !is_websocket(headers) || headers.contains_key(header::AUTHORIZATION) {
        return;
    }
    let (tokens, others): (Vec<&str>, Vec<&str>) = protocols(headers).partition(|word| word.starts_with(TOKEN));
    let ([token], false) = (tokens.as_slice(), others.is_empty()) else { return };
    let authorization =
        URL_SAFE_NO_PAD.decode(&token[TOKEN.len()..]).ok().and_then(|token| String::from_utf8(token).ok());
    let authorization = authorization.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok());
    let (Some(authorization), Ok(others)) = (authorization, HeaderValue::try_from(others.join(", "))) else { return };
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, others);
    headers.insert(header::AUTHORIZATION, authorization);
}

impl WebSocketUpgrade {
    /// Returns the upgrade of a request, if it has one. Other handlers can still take the connection.
    pub(crate) fn of(head: &Parts) -> Option<Self> {
        if head.method != Method::GET || !is_websocket(&head.headers) {
            return None;
        }
        let accept_key = derive_accept_key(head.headers.get(header::SEC_WEBSOCKET_KEY)?.as_bytes());
        let protocols = protocols(&head.headers).map(str::to_owned).collect();
        Some(Self { accept_key, protocols, on: head.extensions.get::<OnUpgrade>()?.clone() })
    }

    /// Switches a streamed response to a WebSocket; returns other responses unchanged.
    pub(crate) fn upgrade_response(self, response: Response<Body>) -> Response<Body> {
        let extensions = response.extensions();
        let (is_watch, is_log) = (extensions.get::<JsonStream>().is_some(), extensions.get::<Log>().is_some());
        if !(is_watch || is_log) || response.status() != StatusCode::OK {
            return response;
        }
        let requested: Vec<&str> = self.protocols.iter().map(String::as_str).collect();
        let selected = match requested.as_slice() {
            [] => Some(""),
            // A watch has one encoding for all subprotocols.
            some if is_watch => some.first().copied(),
            some => some.iter().find(|requested| LOG_PROTOCOLS.contains(requested)).copied(),
        };
        let Some(selected) = selected else {
            let message = format!("requested protocol(s) are not supported: {requested:?}; supports {LOG_PROTOCOLS:?}");
            return response::text(403, &message);
        };
        let encoding = match selected {
            _ if is_watch => MessageEncoding::Lines,
            BASE64 => MessageEncoding::Base64,
            _ => MessageEncoding::Bytes,
        };
        let switched = switching_protocols(&self.accept_key, selected);
        tokio::spawn(send_messages(self.on, response.into_body(), encoding));
        switched
    }
}

fn switching_protocols(accept_key: &str, protocol: &str) -> Response<Body> {
    let mut response = Response::new(empty_body());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    let accepted = [(header::SEC_WEBSOCKET_ACCEPT, accept_key), (header::SEC_WEBSOCKET_PROTOCOL, protocol)];
    for (name, value) in accepted.into_iter().filter(|(_, value)| !value.is_empty()) {
        headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
    }
    response
}

/// Sends a body until it disconnected, or the client disconnects.
async fn send_messages(on: OnUpgrade, mut body: Body, encoding: MessageEncoding) {
    let Ok(connection) = on.await else { return };
    let mut config = WebSocketConfig::default();
    config.max_message_size = Some(MAX_MESSAGE);
    config.max_frame_size = Some(MAX_MESSAGE);
    config.read_buffer_size = MAX_MESSAGE;
    config.write_buffer_size = 0;
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(connection), Role::Server, Some(config)).await;
    let (mut to, mut from) = socket.split();
    let send = async {
        // As upstream, a log begins with an empty message.
        let mut messages = match encoding {
            MessageEncoding::Lines => Vec::new(),
            MessageEncoding::Bytes | MessageEncoding::Base64 => messages_in(&Bytes::new(), encoding),
        };
        loop {
            for message in messages.drain(..) {
                to.send(message).await?;
            }
            match body.frame().await {
                Some(Ok(frame)) => messages = frame.into_data().map(|d| messages_in(&d, encoding)).unwrap_or_default(),
                Some(Err(_)) | None => return to.close().await,
            }
        }
    };
    let mut disconnected = async || while let Some(Ok(_)) = from.next().await {};
    tokio::select! {
        _ = send => drop(tokio::time::timeout(LINGER, disconnected()).await),
        () = disconnected() => {}
    }
}

fn messages_in(data: &Bytes, encoding: MessageEncoding) -> Vec<Message> {
    match encoding {
        MessageEncoding::Lines => {
            let lines = data.split_inclusive(|byte| *byte == b'\n');
            lines.map(|line| Message::text(String::from_utf8_lossy(line).into_owned())).collect()
        }
        MessageEncoding::Bytes => vec![Message::binary(data.clone())],
        MessageEncoding::Base64 => vec![Message::text(STANDARD.encode(data))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_in_subprotocol_becomes_authorization_header() {
        for (requested, token, left) in [
            (
                &["base64url.bearer.authorization.k8s.io.dG9rZW4, binary.k8s.io"][..],
                Some("Bearer token"),
                "binary.k8s.io",
            ),
            (&["a", "base64url.bearer.authorization.k8s.io.dG9rZW4", "b"], Some("Bearer token"), "a, b"),
            (&["base64url.bearer.authorization.k8s.io.dG9rZW4"], None, "base64url.bearer.authorization.k8s.io.dG9rZW4"),
            (&["base64url.bearer.authorization.k8s.io.???, a"], None, "base64url.bearer.authorization.k8s.io.???, a"),
            (&["a"], None, "a"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
            headers.insert(header::UPGRADE, HeaderValue::from_static("WebSocket"));
            for line in requested {
                headers.append(header::SEC_WEBSOCKET_PROTOCOL, line.parse().unwrap());
            }
            move_token(&mut headers);
            let text = |name| headers.get(name).map(|v| v.to_str().unwrap());
            assert_eq!((text(header::AUTHORIZATION), text(header::SEC_WEBSOCKET_PROTOCOL)), (token, Some(left)));
        }
    }
}
