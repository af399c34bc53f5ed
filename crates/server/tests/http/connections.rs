//! Connections over real sockets: limits and timeouts.

use crate::{
    common::{CONFIG_MAPS, TestApi, distinguished_name, get, post},
    echo_server::own_ip,
};
use api::connection_limiter::ConnectionLimits;
use auth::{pki::Pki, tokens::TokenFile};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::json;
use server::{Connections, ListenOptions, PeerFilter, Timeouts};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;

/// Timeout of each expected event.
const DEADLINE: Duration = Duration::from_secs(30);
/// A timeout that no test reaches.
const NEVER: Duration = Duration::from_secs(3600);
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const NO_TIMEOUTS: Timeouts = Timeouts {
    handshake: NEVER,
    header: NEVER,
    idle: NEVER,
    ping_interval: NEVER,
    ping_timeout: NEVER,
    response: NEVER,
};
const TOKEN: &str = "the-token";

/// A server on the loopback address that accepts one token.
struct TestServer {
    address: SocketAddr,
    connections: Arc<Connections>,
    api: TestApi,
    ca: CertificateDer<'static>,
    dir: tempfile::TempDir,
    _stop: tokio_util::sync::DropGuard,
}

async fn start_server(bounds: ConnectionLimits, timeouts: Timeouts, peers: Option<PeerFilter>) -> TestServer {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::load_or_create(dir.path(), &[], &[LOOPBACK]).unwrap();
    let mut api = TestApi::new().await;
    let tokens = TokenFile::parse(&format!("{TOKEN},admin,1,\"system:masters\"")).unwrap();
    api.server = api.server.with_tokens(tokens);
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(Connections::with_limits(bounds));
    let options = ListenOptions { timeouts, peers, ..ListenOptions::new(Arc::clone(&connections)) };
    let stop = CancellationToken::new();
    tokio::spawn(server::serve(api.server.clone(), listener, pki.server_tls().unwrap(), options, stop.clone()));
    let ca = CertificateDer::from_pem_slice(pki.ca_pem().as_bytes()).unwrap();
    TestServer { address, connections, api, ca, dir, _stop: stop.drop_guard() }
}

fn bounds(total: usize) -> ConnectionLimits {
    ConnectionLimits { total, remote: total, per_source: total }
}

impl TestServer {
    /// Connects from this address of the machine. Only loopback and the listen address count as the server's own.
    async fn tcp_from(&self, ip: IpAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((ip, 0).into()).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    async fn tls(&self, stream: TcpStream, protocol: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        let mut config = self.client_config().with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        TlsConnector::from(Arc::new(config)).connect(LOOPBACK.into(), stream).await
    }

    fn client_config(&self) -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.ca.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        config.with_root_certificates(roots)
    }

    /// Returns the status code of a GET with a client certificate that has these common names.
    async fn status_for(&self, common_names: &[&str], path: &str) -> String {
        let read = |name: &str| std::fs::read_to_string(self.dir.path().join(name)).unwrap();
        let authority = rcgen::KeyPair::from_pem(&read("ca.key")).unwrap();
        let authority = rcgen::Issuer::from_ca_cert_pem(&read("ca.crt"), authority).unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = distinguished_name(common_names);
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let key = rcgen::KeyPair::generate().unwrap();
        let chain = vec![params.signed_by(&key, &authority).unwrap().der().clone()];
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
        let config = self.client_config().with_client_auth_cert(chain, key.into()).unwrap();
        let tcp = self.tcp_from(LOOPBACK).await;
        let mut stream = TlsConnector::from(Arc::new(config)).connect(LOOPBACK.into(), tcp).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        let _ = with_deadline(stream.read_to_end(&mut response)).await;
        String::from_utf8_lossy(&response).split(' ').nth(1).unwrap_or_default().to_owned()
    }

    async fn http1(&self) -> TlsStream<TcpStream> {
        self.tls(self.tcp_from(LOOPBACK).await, b"http/1.1").await.unwrap()
    }

    /// Returns an HTTP/2 client, and the task that ends with its connection.
    async fn http2(&self) -> (SendRequest<Full<Bytes>>, JoinHandle<()>) {
        let stream = self.tls(self.tcp_from(LOOPBACK).await, b"h2").await.unwrap();
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (client, connection) = handshake.await.unwrap();
        (client, tokio::spawn(async move { drop(connection.await) }))
    }

    async fn can_connect(&self) -> bool {
        let (mut client, _) = self.http2().await;
        send(&mut client, "/api/v1/namespaces/default", Some(TOKEN)).await.status() == StatusCode::OK
    }
}

async fn send(client: &mut SendRequest<Full<Bytes>>, path: &str, token: Option<&str>) -> Response<Incoming> {
    let mut request = Request::get(format!("https://127.0.0.1{path}"));
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    with_deadline(client.send_request(request.body(Full::default()).unwrap())).await.unwrap()
}

async fn with_deadline<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work).await.expect("timeout")
}

/// Waits until the server has closed a connection; discards its response.
async fn wait_until_closed(mut stream: impl AsyncRead + Unpin) {
    let mut rest = Vec::new();
    let _ = with_deadline(stream.read_to_end(&mut rest)).await;
}

async fn wait_until(condition: impl Fn() -> bool) {
    with_deadline(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn silent_connections_are_closed_while_others_are_served() {
    let short = Duration::from_millis(500);
    let timeouts = Timeouts { handshake: short, header: short, ..NO_TIMEOUTS };
    let server = start_server(bounds(1000), timeouts, None).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(server.tcp_from(LOOPBACK).await);
    }
    assert!(server.can_connect().await);
    // A TLS handshake without a request does not extend the timeout.
    let (http1, http2) = (server.http1().await, server.http2().await);
    for stream in silent {
        wait_until_closed(stream).await;
    }
    wait_until_closed(http1).await;
    with_deadline(http2.1).await.unwrap();
    wait_until(|| server.connections.count() == 0).await;
    assert!(server.can_connect().await);
}

#[tokio::test]
async fn source_address_connections_are_limited() {
    let bounds = ConnectionLimits { total: 100, remote: 75, per_source: 10 };
    let server = start_server(bounds, NO_TIMEOUTS, None).await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(server.tcp_from(own_ip()).await);
    }
    wait_until(|| server.connections.count() == 10).await;
    // Further connections are closed at once; no timeout closes them.
    for _ in 0..50 {
        wait_until_closed(server.tcp_from(own_ip()).await).await;
    }
    assert_eq!(server.connections.count(), 10);
    assert!(server.can_connect().await);
    drop(silent.pop());
    wait_until(|| server.connections.count() < 10).await;
    let stream = server.tcp_from(own_ip()).await;
    assert!(server.tls(stream, b"h2").await.is_ok());
}

#[tokio::test]
async fn full_server_rejects_new_and_serves_open_connections() {
    let server = start_server(bounds(10), NO_TIMEOUTS, None).await;
    let (mut client, _connection) = server.http2().await;
    let mut silent = Vec::new();
    for _ in 0..9 {
        silent.push(server.tcp_from(LOOPBACK).await);
    }
    wait_until(|| server.connections.count() == 10).await;
    wait_until_closed(server.tcp_from(LOOPBACK).await).await;
    assert_eq!(send(&mut client, "/api/v1/namespaces/default", Some(TOKEN)).await.status(), StatusCode::OK);
    silent.clear();
    wait_until(|| server.connections.count() == 1).await;
    assert!(server.can_connect().await);
}

#[tokio::test]
async fn idle_remote_connections_do_not_block_loopback() {
    let server = start_server(ConnectionLimits { total: 20, remote: 10, per_source: 10 }, NO_TIMEOUTS, None).await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(server.tcp_from(own_ip()).await);
    }
    wait_until(|| server.connections.count() == 10).await;
    // The limit of remote addresses is reached; loopback has its own share.
    for _ in 0..5 {
        assert!(server.can_connect().await);
    }
}

#[tokio::test]
async fn trickled_request_head_hits_the_header_timeout() {
    let server = start_server(bounds(10), Timeouts { header: Duration::from_millis(500), ..NO_TIMEOUTS }, None).await;
    let (mut read, mut write) = tokio::io::split(server.http1().await);
    let get = format!("GET /version HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    write.write_all(get.as_bytes()).await.unwrap();
    let mut response = [0; 12];
    with_deadline(read.read_exact(&mut response)).await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 200");
    // The second request is never complete.
    let trickle = tokio::spawn(async move {
        let mut bytes = b"GET /version HTTP/1.1\r\nx: ".iter().copied().chain(std::iter::repeat(b'y'));
        while write.write_all(&[bytes.next().unwrap()]).await.is_ok() && write.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    wait_until_closed(read).await;
    wait_until(|| server.connections.count() == 0).await;
    with_deadline(trickle).await.unwrap();
}

#[tokio::test]
async fn trickled_body_hits_the_request_timeout() {
    let server = start_server(bounds(10), NO_TIMEOUTS, None).await;
    let mut stream = server.http1().await;
    let head = format!(
        "POST {CONFIG_MAPS}?timeout=1s HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\ncontent-length: 100000\r\nconnection: close\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = [0; 12];
    with_deadline(stream.read_exact(&mut response)).await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 504");
    wait_until_closed(stream).await;
}

#[tokio::test]
async fn idle_connections_are_closed_and_watches_are_kept() {
    let timeouts = Timeouts { idle: Duration::from_millis(400), ..NO_TIMEOUTS };
    let server = start_server(bounds(10), timeouts, None).await;
    let path = format!("{CONFIG_MAPS}?watch=true");
    let (mut watcher, _connection) = server.http2().await;
    let mut watch = send(&mut watcher, &path, Some(TOKEN)).await.into_body();
    let mut http1 = server.http1().await;
    let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    http1.write_all(head.as_bytes()).await.unwrap();
    let mut begin = [0; 12];
    with_deadline(http1.read_exact(&mut begin)).await.unwrap();
    // Several connections become idle one after the other and are closed, so the watches are much older than the
    // timeout.
    for _ in 0..3 {
        let (mut idle, connection) = server.http2().await;
        let response = send(&mut idle, "/api/v1/namespaces/default", Some(TOKEN)).await;
        drop(response.into_body().collect().await.unwrap());
        with_deadline(connection).await.unwrap();
    }
    server.api.check(post(CONFIG_MAPS, &json!({"metadata": {"name": "late"}})), 201, json!({})).await;
    let frame = with_deadline(watch.frame()).await.expect("the watch ended early").unwrap();
    assert!(String::from_utf8_lossy(frame.data_ref().unwrap()).contains("late"));
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains("late") {
        assert!(with_deadline(http1.read_buf(&mut text)).await.unwrap() > 0, "the watch ended early");
    }
    // A connection whose watch has ended is idle.
    drop((watch, http1));
    wait_until(|| server.connections.count() == 0).await;
}

#[tokio::test]
async fn unauthenticated_http2_connection_ends_after_its_response() {
    let server = start_server(bounds(10), NO_TIMEOUTS, None).await;
    for (path, token, expected) in [
        ("/version", None, StatusCode::OK),
        ("/api/v1/namespaces/default", None, StatusCode::FORBIDDEN),
        ("/api/v1/namespaces/default", Some("wrong"), StatusCode::UNAUTHORIZED),
    ] {
        let (mut client, connection) = server.http2().await;
        let response = send(&mut client, path, token).await;
        let status = response.status();
        drop(response.into_body().collect().await.unwrap());
        with_deadline(connection).await.unwrap();
        // Anonymous requests get upstream's status code.
        assert!(status == expected || (token.is_none() && status == StatusCode::UNAUTHORIZED), "{path} {status}");
    }
    let (mut client, _connection) = server.http2().await;
    for _ in 0..3 {
        let response = send(&mut client, "/version", Some(TOKEN)).await;
        drop(response.into_body().collect().await.unwrap());
    }
}

#[tokio::test]
async fn unread_http2_response_hits_the_response_timeout() {
    // The header and idle timeouts determine how soon a connection is checked.
    let look = Duration::from_secs(3);
    let timeouts = Timeouts { response: Duration::from_millis(500), header: look, idle: look, ..NO_TIMEOUTS };
    let server = start_server(bounds(10), timeouts, None).await;
    for token in [None, Some(TOKEN)] {
        let stream = server.tls(server.tcp_from(LOOPBACK).await, b"h2").await.unwrap();
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        // A window of zero prevents the server from sending a body.
        let handshake = builder.initial_stream_window_size(0).handshake(TokioIo::new(stream));
        let (mut client, connection) = handshake.await.unwrap();
        let connection = tokio::spawn(async move { drop(connection.await) });
        let response = send(&mut client, "/api/v1/namespaces/default", token).await;
        with_deadline(connection).await.unwrap();
        drop(response);
    }
    wait_until(|| server.connections.count() == 0).await;
}

#[tokio::test]
async fn peer_filter_closes_connections_immediately() {
    let own = own_ip();
    let peers = PeerFilter::new(move |ip| ip != own);
    let server = start_server(bounds(10), NO_TIMEOUTS, Some(peers)).await;
    wait_until_closed(server.tcp_from(own).await).await;
    assert!(server.can_connect().await);
    server.api.check(get("/api/v1/namespaces/default"), 200, json!({})).await;
}

#[tokio::test]
async fn ambiguous_client_certificate_is_unauthorized() {
    let server = start_server(bounds(10), NO_TIMEOUTS, None).await;
    assert_eq!(server.status_for(&["system:masters"], "/version").await, "200");
    assert_eq!(server.status_for(&["alice"], CONFIG_MAPS).await, "403");
    for names in [&[][..], &["alice", "bob"], &["alice", "alice"]] {
        for path in ["/version", CONFIG_MAPS] {
            assert_eq!(server.status_for(names, path).await, "401", "{names:?} {path}");
        }
    }
}
