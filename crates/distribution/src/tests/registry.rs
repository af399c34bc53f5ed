//! Registry on loopback. A handler may replace any response.

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

pub(super) type Body = BoxBody<Bytes, io::Error>;
/// Media type and content by path.
pub(super) type Contents = BTreeMap<String, (String, Bytes)>;

/// Received request.
#[derive(Debug, Clone)]
pub(super) struct Recorded {
    pub(super) method: Method,
    /// Path with query.
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
    /// Number of earlier requests for the path.
    pub(super) count: usize,
}

impl Recorded {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(super) fn is_blob(&self) -> bool {
        self.path.contains("/blobs/")
    }
}

type Handler = dyn Fn(&Recorded) -> Option<Response<Body>> + Send + Sync;

struct Shared {
    contents: Contents,
    handler: Box<Handler>,
    requests: Mutex<Vec<Recorded>>,
}

/// Running registry, which stops when it is dropped.
pub(super) struct Registry {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl Registry {
    /// Serves content over HTTP.
    pub(super) async fn serve(contents: Contents) -> Self {
        Self::start(contents, None, |_| None).await
    }

    /// Serves content over HTTP, except where the handler returns a response.
    pub(super) async fn with_handler(
        contents: Contents,
        handler: impl Fn(&Recorded) -> Option<Response<Body>> + Send + Sync + 'static,
    ) -> Self {
        Self::start(contents, None, handler).await
    }

    /// Serves content over HTTP or HTTPS.
    pub(super) async fn start(
        contents: Contents,
        tls: Option<TlsAcceptor>,
        handler: impl Fn(&Recorded) -> Option<Response<Body>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        Self::listen(listener, contents, tls, Box::new(handler))
    }

    /// Serves content over HTTP at another address.
    pub(super) async fn start_at(address: &str, contents: Contents) -> io::Result<Self> {
        Ok(Self::listen(TcpListener::bind((address, 0)).await?, contents, None, Box::new(|_| None)))
    }

    fn listen(listener: TcpListener, contents: Contents, tls: Option<TlsAcceptor>, handler: Box<Handler>) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { contents, handler, requests: Mutex::default() });
        let mut tasks = JoinSet::new();
        let accepted = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (shared, tls) = (Arc::clone(&accepted), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve_connection(stream, shared).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve_connection(stream, shared).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, shared, _tasks: tasks }
    }

    /// Returns the reference of the image with tag `1`.
    pub(super) fn reference(&self) -> String {
        format!("{}/team/app:1", self.address)
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(super) fn requests(&self) -> Vec<Recorded> {
        self.shared.requests.lock().clone()
    }

    /// Returns the requests for blobs.
    pub(super) fn blob_requests(&self) -> Vec<Recorded> {
        self.requests().into_iter().filter(Recorded::is_blob).collect()
    }
}

async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, io::Error>(respond(&shared, request).await) }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(shared: &Shared, request: Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let path = parts.uri.path_and_query().unwrap().to_string();
    let recorded = {
        let mut requests = shared.requests.lock();
        let count = requests.iter().filter(|r| r.path == path).count();
        let body = String::from_utf8(body.to_vec()).unwrap();
        let recorded = Recorded { method: parts.method, path, headers: parts.headers, body, count };
        requests.push(recorded.clone());
        recorded
    };
    (shared.handler)(&recorded).unwrap_or_else(|| serve_content(&shared.contents, &recorded))
}

/// Serves content with ranges.
pub(super) fn serve_content(contents: &Contents, request: &Recorded) -> Response<Body> {
    let path = request.path.split('?').next().unwrap();
    let Some((media_type, content)) = contents.get(path) else {
        let body = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
        return reply(StatusCode::NOT_FOUND, Bytes::from(body));
    };
    let offset: Option<usize> =
        request.header("range").strip_prefix("bytes=").and_then(|r| r.strip_suffix('-')?.parse().ok());
    let mut response = match offset {
        None => reply(StatusCode::OK, content.clone()),
        Some(offset) if offset >= content.len() => reply(StatusCode::RANGE_NOT_SATISFIABLE, Bytes::new()),
        Some(offset) => {
            let mut response = reply(StatusCode::PARTIAL_CONTENT, content.slice(offset..));
            let range = format!("bytes {offset}-{}/{}", content.len() - 1, content.len());
            response.headers_mut().insert(header::CONTENT_RANGE, range.parse().unwrap());
            response
        }
    };
    response.headers_mut().insert(header::CONTENT_TYPE, media_type.parse().unwrap());
    response
}

pub(super) fn reply(status: StatusCode, content: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(content.into()).map_err(|never| match never {}).boxed();
    Response::builder().status(status).body(body).unwrap()
}

/// Returns a response with a header.
pub(super) fn with_header(mut response: Response<Body>, name: &'static str, value: &str) -> Response<Body> {
    response.headers_mut().append(name, value.parse().unwrap());
    response
}

pub(super) fn redirect(location: &str) -> Response<Body> {
    with_header(reply(StatusCode::TEMPORARY_REDIRECT, ""), "location", location)
}

/// Returns a response that announces `size` bytes, sends some, and closes the connection.
pub(super) fn cut(content: Bytes, size: usize) -> Response<Body> {
    // hyper sends the bytes while it waits for more.
    let end = stream::once(async {
        tokio::task::yield_now().await;
        Err(io::Error::other("cut"))
    });
    let frames = stream::iter([Ok(Frame::data(content))]).chain(end);
    with_header(stream_reply(frames), "content-length", &size.to_string())
}

/// Returns a response that announces `size` bytes, sends some, and then nothing.
pub(super) fn hang(content: Bytes, size: usize) -> Response<Body> {
    let frames = stream::iter([Ok(Frame::data(content))]).chain(stream::pending());
    with_header(stream_reply(frames), "content-length", &size.to_string())
}

/// Returns a response of 64 MiB without an announced size: more than any test accepts.
pub(super) fn endless() -> Response<Body> {
    let frames = stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(&[b' '; 64 << 10]))));
    stream_reply(frames.take(1024))
}

fn stream_reply(
    frames: impl stream::Stream<Item = io::Result<Frame<Bytes>>> + Send + Sync + 'static,
) -> Response<Body> {
    Response::new(BodyExt::boxed(StreamBody::new(frames)))
}
