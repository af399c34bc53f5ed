//! From HTTP to a protocol of streams: WebSockets, and SPDY for older clients.

use super::Refused;
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

/// Largest message of a client. kubectl sends pieces of 32 KiB.
const MAX_MESSAGE: usize = 4 << 20;
const SPDY: &str = "SPDY/3.1";
/// Where a SPDY client lists the versions it knows, and where it is told which one it gets.
const STREAM_VERSION: &str = "x-stream-protocol-version";

/// A WebSocket to a client.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// How the client wants to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    WebSocket,
    Spdy,
}

/// A request that asks for streams; answered by [`Upgrade::accept`], after which the connection is the caller's.
pub(super) struct Upgrade {
    transport: Transport,
    /// The subprotocol that both know.
    pub(super) protocol: &'static str,
    accept_key: String,
    on: OnUpgrade,
}

/// The connection after the upgrade.
pub(super) enum Connection {
    /// Of messages.
    WebSocket(Box<Socket>),
    /// Of bytes, on which SPDY/3.1 is spoken.
    Spdy(TokioIo<Upgraded>),
}

impl Upgrade {
    /// Reads what the client asks for, and picks the first of its subprotocols that is known.
    pub(super) fn of(
        request: &mut Request<Body>,
        websocket: &[&'static str],
        spdy: &[&'static str],
    ) -> Result<Self, Refused> {
        let headers = request.headers();
        let refused = |text: String| (StatusCode::BAD_REQUEST, format!("unable to upgrade: {text}"));
        let has = |name: header::HeaderName, word: &str| list(headers, &name).any(|v| v.eq_ignore_ascii_case(word));
        let missing = || refused("missing upgrade headers in request".to_owned());
        if !has(header::CONNECTION, "upgrade") {
            return Err(missing());
        }
        let (transport, asked, known) = if has(header::UPGRADE, "websocket") {
            (Transport::WebSocket, header::SEC_WEBSOCKET_PROTOCOL, websocket)
        } else if has(header::UPGRADE, SPDY) {
            (Transport::Spdy, header::HeaderName::from_static(STREAM_VERSION), spdy)
        } else {
            return Err(missing());
        };
        let asked: Vec<&str> = list(headers, &asked).collect();
        let protocol = match asked.as_slice() {
            [] => known.contains(&"").then_some(""),
            some => some.iter().find_map(|a| known.iter().copied().find(|k| k == a)),
        };
        let protocol = protocol.ok_or_else(|| {
            (
                StatusCode::FORBIDDEN,
                format!("unable to negotiate protocol: client supports {asked:?}, server accepts {known:?}"),
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

    /// The answer to send, and the connection that there is after it.
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

/// The words of a header that may hold several, in one line or in many.
fn list<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|v| v.to_str().ok());
    lines.flat_map(|v| v.split(',')).map(str::trim).filter(|w| !w.is_empty())
}
