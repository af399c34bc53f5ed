//! Upgrades of HTTP requests to WebSockets, and to SPDY for older clients.

use super::HttpError;
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header},
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

/// Limit of a client's message in bytes. kubectl sends messages of 32 KiB.
const MAX_MESSAGE: usize = 4 << 20;
const SPDY: &str = "SPDY/3.1";
/// Header in which a SPDY client lists its protocol versions, and in which the server returns the selected one.
const STREAM_VERSION: &str = "x-stream-protocol-version";

/// Server side of a WebSocket.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Transport that the client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    WebSocket,
    Spdy,
}

/// Upgrade request. [`Upgrade::accept`] returns the response and the upgraded connection.
pub(super) struct Upgrade {
    transport: Transport,
    /// Negotiated subprotocol.
    pub(super) protocol: &'static str,
    accept_key: String,
    on: OnUpgrade,
}

/// Upgraded connection.
pub(super) enum Connection {
    /// WebSocket messages.
    WebSocket(Box<Socket>),
    /// Byte stream for SPDY/3.1.
    Spdy(TokioIo<Upgraded>),
}

impl Upgrade {
    /// Parses an upgrade request, and selects the first of the client's subprotocols that the server supports.
    pub(super) fn parse(
        request: &mut Request<Body>,
        websocket: &[&'static str],
        spdy: &[&'static str],
    ) -> Result<Self, HttpError> {
        let headers = request.headers();
        let refused = |text: String| (StatusCode::BAD_REQUEST, format!("unable to upgrade: {text}"));
        let has =
            |name: header::HeaderName, word: &str| header_list(headers, &name).any(|v| v.eq_ignore_ascii_case(word));
        let missing = || refused("missing upgrade headers in request".to_owned());
        if !has(header::CONNECTION, "upgrade") {
            return Err(missing());
        }
        let (transport, requested, supported) = if has(header::UPGRADE, "websocket") {
            (Transport::WebSocket, header::SEC_WEBSOCKET_PROTOCOL, websocket)
        } else if has(header::UPGRADE, SPDY) {
            (Transport::Spdy, header::HeaderName::from_static(STREAM_VERSION), spdy)
        } else {
            return Err(missing());
        };
        let requested: Vec<&str> = header_list(headers, &requested).collect();
        let protocol = match requested.as_slice() {
            [] => supported.contains(&"").then_some(""),
            some => some.iter().find_map(|a| supported.iter().copied().find(|k| k == a)),
        };
        let protocol = protocol.ok_or_else(|| {
            (
                StatusCode::FORBIDDEN,
                format!("unable to negotiate protocol: client supports {requested:?}, server accepts {supported:?}"),
            )
        })?;
        let key = headers.get(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
        let accept_key = match (transport, key) {
            (Transport::WebSocket, None) => return Err(refused("Sec-WebSocket-Key is missing".to_owned())),
            (Transport::WebSocket, Some(key)) => derive_accept_key(key),
            (Transport::Spdy, _) => String::new(),
        };
        let on = request.extensions_mut().remove::<OnUpgrade>().ok_or_else(missing)?;
        Ok(Self { transport, protocol, accept_key, on })
    }

    /// Returns the response to send, and a future of the upgraded connection.
    pub(super) fn accept(self) -> (Response<Body>, impl Future<Output = Result<Connection, hyper::Error>>) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        let mut set = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        set("connection", "Upgrade");
        let named = match self.transport {
            Transport::WebSocket => {
                set("upgrade", "websocket");
                set("sec-websocket-accept", &self.accept_key);
                "sec-websocket-protocol"
            }
            Transport::Spdy => {
                set("upgrade", SPDY);
                STREAM_VERSION
            }
        };
        if !self.protocol.is_empty() {
            set(named, self.protocol);
        }
        let connection = async move {
            let io = TokioIo::new(self.on.await?);
            Ok(match self.transport {
                Transport::Spdy => Connection::Spdy(io),
                Transport::WebSocket => {
                    let mut config = WebSocketConfig::default();
                    config.max_message_size = Some(MAX_MESSAGE);
                    config.max_frame_size = Some(MAX_MESSAGE);
                    config.read_buffer_size = 16 << 10;
                    config.write_buffer_size = 0;
                    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
                    Connection::WebSocket(Box::new(socket))
                }
            })
        };
        (response, connection)
    }
}

/// Returns the values of a comma-separated header, which may occur repeatedly.
fn header_list<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|v| v.to_str().ok());
    lines.flat_map(|v| v.split(',')).map(str::trim).filter(|w| !w.is_empty())
}
