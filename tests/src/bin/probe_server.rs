//! A server for tests of probes and Services: HTTPS on 8443, the gRPC health service on 9090, and UDP on 8081.
//!
//! It runs in containers, which mount it and its shared libraries from the node.
#![forbid(unsafe_code)]
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, StatusCode, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use std::{convert::Infallible, net::Ipv4Addr, sync::Arc};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_rustls::{TlsAcceptor, rustls};
use tonic_health::{ServingStatus, server::health_reporter};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    tokio::join!(https(), grpc(), udp());
}

/// Answers each UDP packet with the host name.
async fn udp() {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 8081)).await.expect("the port is free");
    let name = std::env::var("HOSTNAME").unwrap_or_default();
    loop {
        let (_, from) = socket.recv_from(&mut [0; 100]).await.expect("a question");
        // The client may be gone.
        let _ = socket.send_to(name.as_bytes(), from).await;
    }
}

/// Answers 200 only when `Host` is the address that the client connected to and `X-Word` is `hello`; else 400.
async fn https() {
    let made = rcgen::generate_simple_self_signed(["elsewhere.example".to_owned()]).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a certificate and its key");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 8443)).await.expect("the port is free");
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(serve(stream, acceptor.clone()));
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor) {
    let called = stream.local_addr().map(|address| address.to_string()).unwrap_or_default();
    // A client without TLS gets no answer.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(|request: Request<Incoming>| {
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let valid = header(header::HOST.as_str()) == called && header("X-Word") == "hello";
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = if valid { StatusCode::OK } else { StatusCode::BAD_REQUEST };
        async move { Ok::<_, Infallible>(response) }
    });
    // A closed connection is not a failure.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn grpc() {
    let (reporter, service) = health_reporter();
    reporter.set_service_status("up", ServingStatus::Serving).await;
    reporter.set_service_status("down", ServingStatus::NotServing).await;
    let server = tonic::transport::Server::builder().add_service(service);
    server.serve((Ipv4Addr::UNSPECIFIED, 9090).into()).await.expect("the port is free");
}
