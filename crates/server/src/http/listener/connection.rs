//! One connection: the TLS handshake, the client's identity, and requests by HTTP/1.1 or HTTP/2.

use super::{
    super::request_handler::RequestHandler,
    Timeouts,
    activity::{Activity, Expired, TrackedBody},
    connections::AdmittedStream,
};
use crate::http::{
    body_drain::DrainedOnDrop,
    write_coalescing::{CoalescingStream, PollCounter},
};
use api::certificate::{SubjectUser, subject_user};
use audit::Peer;
use auth::{pki::ServerTls, tokens};
use data_encoding::HEXLOWER;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use request::{RequestInfo, UserInfo, user::CREDENTIAL_ID};
use response::Body;
use sha2::{Digest, Sha256};
use std::{
    convert::Infallible,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Upstream's `MaxHeaderBytes`.
const MAX_HEADER_BYTES: u32 = 1 << 20;
/// Streams of one HTTP/2 connection at a time, as upstream has it without `--http2-max-streams-per-connection`.
const MAX_STREAMS: u32 = 100;
/// The same for local clients, which have many watches on one connection.
const MAX_LOCAL_STREAMS: u32 = 1000;
/// Streams that the client has reset before they were served; a client that resets more loses its connection.
const MAX_PENDING_RESETS: usize = 20;
/// Streams that this server has reset for the client's errors; a client that causes more loses its connection.
const MAX_ERROR_RESETS: usize = 1000;
/// Timeout of a graceful shutdown.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// Marks a request whose client certificate is not verified, or does not identify a user.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnknownCertificate;

type Stream = TlsStream<AdmittedStream<TcpStream>>;

/// Configuration of connections.
pub(super) struct Protocol {
    pub(super) handler: Arc<dyn RequestHandler>,
    pub(super) tls: ServerTls,
    pub(super) acceptor: TlsAcceptor,
    pub(super) timeouts: Timeouts,
}

/// State that all requests of a connection share.
#[derive(Clone)]
struct Client {
    handler: Arc<dyn RequestHandler>,
    peer: Peer,
    user: Option<UserInfo>,
    unknown: Option<UnknownCertificate>,
    activity: Arc<Activity>,
    is_http2: bool,
    response_limit: Duration,
}

impl Protocol {
    pub(super) async fn serve(
        &self,
        stream: AdmittedStream<TcpStream>,
        peer: Peer,
        is_local: bool,
        activity: Arc<Activity>,
    ) {
        let handshake = tokio::time::timeout(self.timeouts.handshake, self.acceptor.accept(stream));
        let Ok(Ok(stream)) = handshake.await else { return };
        let chain = stream.get_ref().1.peer_certificates().filter(|chain| !chain.is_empty());
        let verified = chain.filter(|chain| self.tls.verifies(chain));
        let unknown = (chain.is_some() && verified.is_none()).then_some(UnknownCertificate);
        let user = verified.and_then(|chain| user_of_certificate(chain.first()?));
        // A certificate without a user must not fall back to anonymous.
        let unknown = unknown.or((chain.is_some() && user.is_none()).then_some(UnknownCertificate));
        if user.is_some() {
            activity.set_authenticated();
        }
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let (handler, response_limit) = (Arc::clone(&self.handler), self.timeouts.response);
        let client = Client { handler, peer, user, unknown, activity, is_http2, response_limit };
        match is_http2 {
            true => self.http2(stream, client, is_local).await,
            false => self.http1(stream, client).await,
        }
    }

    async fn http1(&self, stream: Stream, client: Client) {
        let activity = Arc::clone(&client.activity);
        activity.read_heads();
        // HTTP/1 has one response at a time.
        let polls = PollCounter::default();
        let io = TokioIo::new(CoalescingStream::new(stream, polls.clone(), false));
        let service = service_fn(move |request| client.clone().handle(request));
        let connection = pin!(http1::Builder::new().serve_connection(io, service).with_upgrades());
        polls.counted(self.until_expired(connection, &activity, http1::UpgradeableConnection::graceful_shutdown)).await;
    }

    async fn http2(&self, stream: Stream, client: Client, is_local: bool) {
        let activity = Arc::clone(&client.activity);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .max_concurrent_streams(if is_local { MAX_LOCAL_STREAMS } else { MAX_STREAMS })
            .max_header_list_size(MAX_HEADER_BYTES)
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_local_error_reset_streams(MAX_ERROR_RESETS)
            .timer(TokioTimer::new())
            .keep_alive_interval(self.timeouts.ping_interval)
            .keep_alive_timeout(self.timeouts.ping_timeout);
        let polls = PollCounter::default();
        let io = TokioIo::new(CoalescingStream::new(stream, polls.clone(), true));
        let service = service_fn(move |request| client.clone().handle(request));
        let connection = pin!(builder.serve_connection(io, service));
        polls.counted(self.until_expired(connection, &activity, http2::Connection::graceful_shutdown)).await;
    }

    /// Serves a connection until its client closes it, or it expires. Errors of connections are ignored.
    async fn until_expired<C: Future>(
        &self,
        mut connection: Pin<&mut C>,
        activity: &Activity,
        shut_down: impl FnOnce(Pin<&mut C>),
    ) {
        let expired = tokio::select! {
            biased;
            _ = connection.as_mut() => return,
            expired = activity.expired(&self.timeouts) => expired,
        };
        if expired == Expired::Stuck {
            return;
        }
        shut_down(connection.as_mut());
        // Requests that have arrived meanwhile are served.
        loop {
            let result = tokio::time::timeout(SHUTDOWN, connection.as_mut()).await;
            if result.is_ok() || !activity.is_active() || activity.is_stuck() {
                return;
            }
        }
    }
}

impl Client {
    async fn handle(self, mut request: Request<Incoming>) -> Result<Response<TrackedBody<response::Body>>, Infallible> {
        let is_limited = !self.is_http2 || self.user.is_none();
        let info = RequestInfo::new(request.method(), request.uri());
        let limit = (is_limited && !request::is_long_running(&info.attributes)).then_some(self.response_limit);
        request.extensions_mut().insert(info);
        let request_in_progress = self.activity.begin(limit);
        request.extensions_mut().insert(self.peer);
        self.unknown.and_then(|unknown| request.extensions_mut().insert(unknown));
        let is_anonymous = self.user.is_none() && tokens::bearer_token(request.headers()).is_none();
        let response = self.handler.handle_request(self.user, request.map(boxed)).await;
        let is_unauthenticated = is_anonymous || response.status() == StatusCode::UNAUTHORIZED;
        if !is_unauthenticated {
            self.activity.set_authenticated();
        } else if self.is_http2 {
            // Upstream's UnauthenticatedHTTP2DOSMitigation.
            self.activity.end();
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.activity.mark_upgraded();
        }
        Ok(response.map(|body| TrackedBody::new(body, request_in_progress)))
    }
}

/// Returns a body of the type that all handlers take.
fn boxed(body: Incoming) -> Body {
    DrainedOnDrop::new(body).map_err(Into::into).boxed_unsync()
}

/// Returns the user of a verified client certificate, or `None` if its subject does not identify one.
fn user_of_certificate(certificate: &rustls::pki_types::CertificateDer<'_>) -> Option<UserInfo> {
    let hash = HEXLOWER.encode(&Sha256::digest(certificate));
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let SubjectUser { name, groups } = subject_user(certificate.subject()).ok()?;
    let extra = [(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={hash}")])].into();
    Some(UserInfo { name, groups, extra, ..UserInfo::default() }.authenticated())
}
