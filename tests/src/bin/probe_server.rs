//! What probes ask in the tests: HTTPS on 8443 and the health service of gRPC on 9090; and a
//! word over UDP on 8081.
//!
//! It runs in containers; tests hand it in from the node, together with the libraries that it is linked to.
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

/// Tells everybody who it is.
async fn udp() {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 8081)).await.expect("the port is free");
    let name = std::env::var("HOSTNAME").unwrap_or_default();
    loop {
        let (_, from) = socket.recv_from(&mut [0; 100]).await.expect("a question");
        // Whoever asked may be gone.
        let _ = socket.send_to(name.as_bytes(), from).await;
    }
}

/// Answers well only who names it by the address that was called, and says the word.
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
        tokio::spawn(answer(stream, acceptor.clone()));
    }
}

async fn answer(stream: TcpStream, acceptor: TlsAcceptor) {
    let called = stream.local_addr().map(|address| address.to_string()).unwrap_or_default();
    // Whoever speaks no TLS is not answered.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(|request: Request<Incoming>| {
        let says = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let right = says(header::HOST.as_str()) == called && says("X-Word") == "hello";
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = if right { StatusCode::OK } else { StatusCode::BAD_REQUEST };
        async move { Ok::<_, Infallible>(response) }
    });
    // A probe that goes away in the middle harms nobody.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn grpc() {
    let (reporter, service) = health_reporter();
    reporter.set_service_status("up", ServingStatus::Serving).await;
    reporter.set_service_status("down", ServingStatus::NotServing).await;
    let server = tonic::transport::Server::builder().add_service(service);
    server.serve((Ipv4Addr::UNSPECIFIED, 9090).into()).await.expect("the port is free");
}
