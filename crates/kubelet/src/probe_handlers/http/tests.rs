use super::*;
use Server::{Absent, Http2, Resets, Responds, RespondsAndStaysOpen, RespondsEarly, RespondsOverTls, RespondsThen};
use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::{Value, json};
use std::{net::Ipv4Addr, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

/// Behaviour of a test server.
#[derive(Debug, Clone, Copy)]
enum Server {
    /// Sends this response (`PORT` is its port), and closes the connection.
    Responds(&'static str),
    /// Sends this response and keeps the connection open.
    RespondsAndStaysOpen(&'static str),
    /// Sends this before the request, and closes its side.
    RespondsEarly(&'static str),
    /// Sends this response over TLS.
    RespondsOverTls(&'static str),
    /// Sends the first response once, then the second.
    RespondsThen(&'static str, &'static str),
    /// Responds with 200 over HTTP/2 and TLS.
    Http2,
    /// Resets the connection.
    Resets,
    /// Does not listen.
    Absent,
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// Request lines and headers that a server has read.
type Heads = Arc<Mutex<Vec<String>>>;

fn acceptor(alpn: &[&str]) -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["elsewhere.example".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("protocol versions");
    let mut config = builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).expect("a key");
    config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

async fn respond<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, words: &str, port: u16, heads: &Heads) -> S {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    heads.lock().push(String::from_utf8_lossy(&head).into_owned());
    let _ = stream.write_all(words.replace("PORT", &port.to_string()).as_bytes()).await;
    stream
}

async fn serve_http2(tcp: tokio::net::TcpStream, heads: Heads) {
    let stream = acceptor(&["h2"]).accept(tcp).await.expect("a handshake");
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        heads.lock().push(format!("{:?} {}", request.version(), request.uri()));
        async { Ok::<_, std::convert::Infallible>(Response::new(Empty::<Bytes>::new())) }
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// Starts a server. Returns its port, the requests it reads, and the handle that stops it when dropped.
async fn start(server: Server) -> (u16, Heads, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let heads = Heads::default();
    let kept = Arc::clone(&heads);
    let task: JoinHandle<()> = tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((tcp, _)) = listener.accept().await {
            match server {
                Absent => return,
                Resets => tcp.set_zero_linger().expect("a reset"),
                Http2 => drop(tokio::spawn(serve_http2(tcp, Arc::clone(&kept)))),
                RespondsAndStaysOpen(words) => open.push(respond(tcp, words, port, &kept).await),
                RespondsEarly(words) => {
                    let mut tcp = tcp;
                    tcp.write_all(words.as_bytes()).await.expect("a client");
                    tcp.shutdown().await.expect("a client");
                    open.push(tcp);
                }
                Responds(words) => drop(respond(tcp, words, port, &kept).await),
                RespondsThen(first, then) => {
                    let words = if kept.lock().is_empty() { first } else { then };
                    drop(respond(tcp, words, port, &kept).await);
                }
                RespondsOverTls(words) => {
                    let Ok(stream) = acceptor(&["http/1.1"]).accept(tcp).await else { continue };
                    let _ = respond(stream, words, port, &kept).await.shutdown().await;
                }
            }
        }
    });
    let task = AbortOnDropHandle::new(task);
    if matches!(server, Absent) {
        task.abort();
        // The listener is closed when the task has finished.
        while !task.is_finished() {
            tokio::task::yield_now().await;
        }
    }
    (port, heads, task)
}

fn container(port: u16) -> Container {
    let ports = json!([{"name": "web", "containerPort": port}]);
    serde_json::from_value(json!({"name": "c", "ports": ports})).expect("a container")
}

fn action(fields: &Value) -> HTTPGetAction {
    let mut action = json!({"port": "web", "path": "/healthz"});
    for (key, value) in fields.as_object().into_iter().flatten() {
        action[key] = value.clone();
    }
    serde_json::from_value(action).expect("an httpGet")
}

/// Probes a server; `PORT` in the expected message is its port. Returns the requests that the server has read.
async fn check_within(limit: Duration, fields: Value, server: Server, expected: ProbeOutcome) -> Vec<String> {
    let (port, heads, _task) = start(server).await;
    let ip = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let found = probe(&action(&fields), &container(port), ip, limit).await;
    let known = |words: String| words.replace("PORT", &port.to_string());
    let expected = match expected {
        ProbeOutcome::Success => ProbeOutcome::Success,
        ProbeOutcome::Warning(words) => ProbeOutcome::Warning(known(words)),
        ProbeOutcome::Failure(words) => ProbeOutcome::Failure(known(words)),
        ProbeOutcome::Unknown(words) => ProbeOutcome::Unknown(known(words)),
    };
    assert_eq!(found, expected, "{fields} {server:?}");
    heads.lock().iter().map(|head| head.replace(&port.to_string(), "PORT")).collect()
}

async fn check(fields: Value, server: Server, expected: ProbeOutcome) -> Vec<String> {
    check_within(Duration::from_secs(20), fields, server, expected).await
}

fn failure(words: &str) -> ProbeOutcome {
    ProbeOutcome::Failure(words.to_owned())
}

fn warning(body: &str) -> ProbeOutcome {
    ProbeOutcome::Warning(format!("Probe terminated redirects, Response body: {body}"))
}

#[tokio::test]
async fn status_code_decides_the_outcome() {
    for (server, expected) in [
        (Responds(OK), ProbeOutcome::Success),
        (Responds("HTTP/1.0 204 No Content\r\n\r\n"), ProbeOutcome::Success),
        (RespondsAndStaysOpen(OK), ProbeOutcome::Success),
        (Responds("HTTP/1.1 304 Not Modified\r\n\r\n"), warning("")),
        (Responds("HTTP/1.1 399 Odd\r\n\r\nwhy"), warning("why")),
        (Responds("HTTP/1.1 400 Bad Request\r\n\r\n"), failure("HTTP probe failed with statuscode: 400")),
        (Responds("HTTP/1.1 500 No\r\n\r\nsecret"), failure("HTTP probe failed with statuscode: 500")),
    ] {
        check(json!({}), server, expected).await;
    }
}

/// As of `while true; do echo ... | nc -l -p 80; done`.
#[tokio::test]
async fn response_before_the_request_counts() {
    let (ours, mut theirs) = tokio::io::duplex(4096);
    theirs.write_all(OK.as_bytes()).await.expect("room for it");
    let get = Get::new(&action(&json!({})), &container(80), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), "kube-probe");
    let answer = get.expect("a request").exchange_on(ours, false).await.unwrap_or_else(|e| panic!("{e}"));
    let status = answer.response.status();
    assert_eq!((status, answer.body(None).await.expect("a body")), (StatusCode::OK, b"ok".to_vec()));
    let mut requested = vec![0; 4];
    theirs.read_exact(&mut requested).await.expect("a request");
    assert_eq!(requested, b"GET ");
}

#[tokio::test]
async fn server_without_response_fails() {
    let url = "Get \"http://127.0.0.1:PORT/healthz\": ";
    let refused = format!("{url}dial tcp 127.0.0.1:PORT: connect: connection refused");
    check(json!({}), Absent, ProbeOutcome::Failure(refused)).await;
    check(json!({}), Responds(""), ProbeOutcome::Failure(format!("{url}EOF"))).await;
    let broken = "net/http: HTTP/1.x transport connection broken: malformed";
    let garbage = format!("{url}{broken} HTTP response \"220-hello\"");
    check(json!({}), Responds("220-hello\r\n"), ProbeOutcome::Failure(garbage)).await;
    let redis = format!("{url}{broken} HTTP status code \"unknown\"");
    check(json!({}), Responds("-ERR unknown command\r\n"), ProbeOutcome::Failure(redis)).await;
    check(json!({}), Resets, ProbeOutcome::Failure(format!("{url}read: connection reset by peer"))).await;
    let late = format!("{url}context deadline exceeded (Client.Timeout exceeded while awaiting headers)");
    let limit = Duration::from_millis(300);
    check_within(limit, json!({}), RespondsAndStaysOpen(""), ProbeOutcome::Failure(late)).await;
}

#[tokio::test]
async fn incomplete_body_is_unknown_and_long_body_is_truncated() {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf";
    check(json!({}), Responds(half), ProbeOutcome::Unknown("unexpected EOF".to_owned())).await;
    let late = "context deadline exceeded (Client.Timeout or context cancellation while reading body)";
    // Long enough that the head arrives before it on a busy machine.
    let limit = Duration::from_secs(3);
    check_within(limit, json!({}), RespondsAndStaysOpen(half), ProbeOutcome::Unknown(late.to_owned())).await;
    let long = format!("HTTP/1.1 300 Choose\r\nContent-Length: 999999\r\n\r\n{}", "x".repeat(MAX_OUTPUT + 9));
    check(json!({}), RespondsAndStaysOpen(long.leak()), warning(&"x".repeat(MAX_OUTPUT))).await;
}

#[tokio::test]
async fn request_has_the_configured_path_and_headers() {
    for (fields, expected) in [
        (
            json!({"path": "a b?x=1"}),
            "GET /a%20b?x=1 HTTP/1.1\r\nUser-Agent: kube-probe/1.35\r\nAccept: */*\r\nHost: 127.0.0.1:PORT\r\n\
             Connection: close\r\n\r\n",
        ),
        (
            json!({"host": "localhost", "httpHeaders": [
                {"name": "X-A", "value": "1"}, {"name": "x-a", "value": "2"}, {"name": "host", "value": "example.com"},
                {"name": "user-agent", "value": "me"}, {"name": "Accept", "value": ""},
                {"name": "Content-Length", "value": "7"},
            ]}),
            "GET /healthz HTTP/1.1\r\nX-A: 1\r\nX-A: 2\r\nUser-Agent: me\r\nHost: example.com\r\n\
             Connection: close\r\n\r\n",
        ),
    ] {
        assert_eq!(check(fields, Responds(OK), ProbeOutcome::Success).await, [expected]);
    }
    let unnamed = ProbeOutcome::Unknown("strconv.Atoi: parsing \"dns\": invalid syntax".to_owned());
    check(json!({"port": "dns"}), Responds(OK), unnamed).await;
    let found = probe(&action(&json!({})), &container(80), None, Duration::from_secs(20)).await;
    assert_eq!(found, ProbeOutcome::Unknown("the Pod has no address".to_owned()));
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host_only() {
    let to = |location: &str| -> &'static str {
        format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 4\r\n\r\nmove").leak()
    };
    for location in ["/new", "new", "//127.0.0.1:PORT/new", "http://127.0.0.1:PORT/new"] {
        let heads = check(json!({}), RespondsThen(to(location), OK), ProbeOutcome::Success).await;
        assert!(heads.len() == 2 && heads[1].starts_with("GET /new HTTP/1.1\r\n"), "{location}: {heads:?}");
    }
    for location in ["http://0.0.0.0/", "http://localhost:PORT/new"] {
        assert_eq!(check(json!({}), Responds(to(location)), warning("move")).await.len(), 1, "{location}");
    }
    let gone = "HTTP/1.1 404 Not Found\r\n\r\n";
    check(json!({}), RespondsThen(to("/new"), gone), failure("HTTP probe failed with statuscode: 404")).await;
    check(json!({}), Responds("HTTP/1.1 302 Found\r\n\r\n"), warning("")).await;
    let round = failure("Get \"http://127.0.0.1:PORT/new\": stopped after 10 redirects");
    assert_eq!(check(json!({}), Responds(to("/new")), round).await.len(), 10);
    let scheme = failure("Get \"ftp://127.0.0.1:PORT/\": unsupported protocol scheme \"ftp\"");
    check(json!({}), Responds(to("ftp://127.0.0.1:PORT/")), scheme).await;
}

#[tokio::test]
async fn https_accepts_every_certificate() {
    let https = || json!({"scheme": "HTTPS"});
    let heads = check(https(), RespondsOverTls(OK), ProbeOutcome::Success).await;
    assert!(heads[0].contains("\r\nHost: 127.0.0.1:PORT\r\n"), "{heads:?}");
    let bad = "HTTP/1.1 503 Busy\r\n\r\n";
    check(https(), RespondsOverTls(bad), failure("HTTP probe failed with statuscode: 503")).await;
    let heads = check(https(), Http2, ProbeOutcome::Success).await;
    assert_eq!(heads, ["HTTP/2.0 https://127.0.0.1:PORT/healthz"]);
    let url = "Get \"https://127.0.0.1:PORT/healthz\": ";
    let plain = format!("{url}http: server gave HTTP response to HTTPS client");
    check(https(), RespondsEarly("HTTP/1.1 400 Bad Request\r\n\r\n"), ProbeOutcome::Failure(plain)).await;
    check(https(), RespondsEarly(""), ProbeOutcome::Failure(format!("{url}EOF"))).await;
}
