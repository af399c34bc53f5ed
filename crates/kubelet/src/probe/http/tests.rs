use super::*;
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

/// How a server behaves towards each request.
#[derive(Debug, Clone, Copy)]
enum Server {
    /// Says this (`PORT` is its port), and closes the connection.
    Says(&'static str),
    /// Says this and keeps the connection open.
    SaysAndStays(&'static str),
    /// Says this before it is asked, and no more.
    Blurts(&'static str),
    /// Says this over TLS.
    SaysOverTls(&'static str),
    /// The first time this, from then on that.
    SaysThen(&'static str, &'static str),
    /// Answers 200 over HTTP/2 and TLS.
    Http2,
    /// Resets the connection.
    Resets,
    /// Nobody listens.
    Absent,
}
use Server::{Absent, Blurts, Http2, Resets, Says, SaysAndStays, SaysOverTls, SaysThen};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// The request lines and headers that a server has read.
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

async fn say<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, words: &str, port: u16, heads: &Heads) -> S {
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

/// The server's port, and what it reads. It goes when its handle does.
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
                SaysAndStays(words) => open.push(say(tcp, words, port, &kept).await),
                Blurts(words) => {
                    let mut tcp = tcp;
                    tcp.write_all(words.as_bytes()).await.expect("a client");
                    tcp.shutdown().await.expect("a client");
                    open.push(tcp);
                }
                Says(words) => drop(say(tcp, words, port, &kept).await),
                SaysThen(first, then) => {
                    let words = if kept.lock().is_empty() { first } else { then };
                    drop(say(tcp, words, port, &kept).await);
                }
                SaysOverTls(words) => {
                    let Ok(stream) = acceptor(&["http/1.1"]).accept(tcp).await else { continue };
                    let _ = say(stream, words, port, &kept).await.shutdown().await;
                }
            }
        }
    });
    let task = AbortOnDropHandle::new(task);
    if matches!(server, Absent) {
        task.abort();
        // Its listener is closed once it is gone.
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

/// Probes a server; `PORT` in the expected words is its port. The answer is what the server has read.
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
async fn the_status_decides() {
    for (server, expected) in [
        (Says(OK), ProbeOutcome::Success),
        (Says("HTTP/1.0 204 No Content\r\n\r\n"), ProbeOutcome::Success),
        (SaysAndStays(OK), ProbeOutcome::Success),
        (Says("HTTP/1.1 304 Not Modified\r\n\r\n"), warning("")),
        (Says("HTTP/1.1 399 Odd\r\n\r\nwhy"), warning("why")),
        (Says("HTTP/1.1 400 Bad Request\r\n\r\n"), failure("HTTP probe failed with statuscode: 400")),
        (Says("HTTP/1.1 500 No\r\n\r\nsecret"), failure("HTTP probe failed with statuscode: 500")),
    ] {
        check(json!({}), server, expected).await;
    }
}

/// As of `while true; do echo ... | nc -l -p 80; done`.
#[tokio::test]
async fn an_answer_that_is_there_before_the_request_counts() {
    let (ours, mut theirs) = tokio::io::duplex(4096);
    theirs.write_all(OK.as_bytes()).await.expect("room for it");
    let get = Get::new(&action(&json!({})), &container(80), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), "kube-probe");
    let answer = get.expect("a request").ask(ours, false).await.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((answer.response.status(), answer.body(None).await), (StatusCode::OK, Ok(b"ok".to_vec())));
    let mut asked = vec![0; 4];
    theirs.read_exact(&mut asked).await.expect("a request");
    assert_eq!(asked, b"GET ");
}

#[tokio::test]
async fn a_server_that_does_not_answer_fails() {
    let url = "Get \"http://127.0.0.1:PORT/healthz\": ";
    let refused = format!("{url}dial tcp 127.0.0.1:PORT: connect: connection refused");
    check(json!({}), Absent, ProbeOutcome::Failure(refused)).await;
    check(json!({}), Says(""), ProbeOutcome::Failure(format!("{url}EOF"))).await;
    let broken = "net/http: HTTP/1.x transport connection broken: malformed";
    let garbage = format!("{url}{broken} HTTP response \"220-hello\"");
    check(json!({}), Says("220-hello\r\n"), ProbeOutcome::Failure(garbage)).await;
    let redis = format!("{url}{broken} HTTP status code \"unknown\"");
    check(json!({}), Says("-ERR unknown command\r\n"), ProbeOutcome::Failure(redis)).await;
    check(json!({}), Resets, ProbeOutcome::Failure(format!("{url}read: connection reset by peer"))).await;
    let late = format!("{url}context deadline exceeded (Client.Timeout exceeded while awaiting headers)");
    let limit = Duration::from_millis(300);
    check_within(limit, json!({}), SaysAndStays(""), ProbeOutcome::Failure(late)).await;
}

#[tokio::test]
async fn a_body_that_breaks_off_gives_no_verdict_and_a_long_one_is_not_read_to_its_end() {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf";
    check(json!({}), Says(half), ProbeOutcome::Unknown("unexpected EOF".to_owned())).await;
    let late = "context deadline exceeded (Client.Timeout or context cancellation while reading body)";
    let limit = Duration::from_millis(300);
    check_within(limit, json!({}), SaysAndStays(half), ProbeOutcome::Unknown(late.to_owned())).await;
    let long = format!("HTTP/1.1 300 Choose\r\nContent-Length: 999999\r\n\r\n{}", "x".repeat(KEPT + 9));
    check(json!({}), SaysAndStays(long.leak()), warning(&"x".repeat(KEPT))).await;
}

#[tokio::test]
async fn the_request_is_the_one_that_was_asked_for() {
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
        assert_eq!(check(fields, Says(OK), ProbeOutcome::Success).await, [expected]);
    }
    let unnamed = ProbeOutcome::Unknown("strconv.Atoi: parsing \"dns\": invalid syntax".to_owned());
    check(json!({"port": "dns"}), Says(OK), unnamed).await;
    let found = probe(&action(&json!({})), &container(80), None, Duration::from_secs(20)).await;
    assert_eq!(found, ProbeOutcome::Unknown("the Pod has no address".to_owned()));
}

#[tokio::test]
async fn redirects_are_followed_as_long_as_they_stay_on_the_host() {
    let to = |location: &str| -> &'static str {
        format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 4\r\n\r\nmove").leak()
    };
    for location in ["/new", "new", "//127.0.0.1:PORT/new", "http://127.0.0.1:PORT/new"] {
        let heads = check(json!({}), SaysThen(to(location), OK), ProbeOutcome::Success).await;
        assert!(heads.len() == 2 && heads[1].starts_with("GET /new HTTP/1.1\r\n"), "{location}: {heads:?}");
    }
    for location in ["http://0.0.0.0/", "http://localhost:PORT/new"] {
        assert_eq!(check(json!({}), Says(to(location)), warning("move")).await.len(), 1, "{location}");
    }
    let gone = "HTTP/1.1 404 Not Found\r\n\r\n";
    check(json!({}), SaysThen(to("/new"), gone), failure("HTTP probe failed with statuscode: 404")).await;
    check(json!({}), Says("HTTP/1.1 302 Found\r\n\r\n"), warning("")).await;
    let round = failure("Get \"http://127.0.0.1:PORT/new\": stopped after 10 redirects");
    assert_eq!(check(json!({}), Says(to("/new")), round).await.len(), 10);
    let scheme = failure("Get \"ftp://127.0.0.1:PORT/\": unsupported protocol scheme \"ftp\"");
    check(json!({}), Says(to("ftp://127.0.0.1:PORT/")), scheme).await;
}

#[tokio::test]
async fn https_takes_every_certificate() {
    let https = || json!({"scheme": "HTTPS"});
    let heads = check(https(), SaysOverTls(OK), ProbeOutcome::Success).await;
    assert!(heads[0].contains("\r\nHost: 127.0.0.1:PORT\r\n"), "{heads:?}");
    let bad = "HTTP/1.1 503 Busy\r\n\r\n";
    check(https(), SaysOverTls(bad), failure("HTTP probe failed with statuscode: 503")).await;
    let heads = check(https(), Http2, ProbeOutcome::Success).await;
    assert_eq!(heads, ["HTTP/2.0 https://127.0.0.1:PORT/healthz"]);
    let url = "Get \"https://127.0.0.1:PORT/healthz\": ";
    let plain = format!("{url}http: server gave HTTP response to HTTPS client");
    check(https(), Blurts("HTTP/1.1 400 Bad Request\r\n\r\n"), ProbeOutcome::Failure(plain)).await;
    check(https(), Blurts(""), ProbeOutcome::Failure(format!("{url}EOF"))).await;
}
