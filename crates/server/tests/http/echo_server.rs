//! Backend server of proxied requests that echoes each request as JSON.

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::Arc,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

/// Returns an address of this machine other than loopback.
pub(crate) fn own_ip() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // `connect` on a UDP socket sends no packet.
    socket.connect("192.0.2.1:9").expect("this machine has an address that is not loopback's");
    socket.local_addr().unwrap().ip()
}

/// Starts a server that runs until the end of the test.
pub(crate) async fn start(tls: Option<Arc<rustls::ServerConfig>>) -> SocketAddr {
    let listener = TcpListener::bind((own_ip(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                match tls {
                    None => serve(stream, "").await,
                    Some(config) => {
                        let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else { return };
                        let shown = stream.get_ref().1.peer_certificates().map_or("", |_| "shown");
                        serve(stream, shown).await;
                    }
                }
            });
        }
    });
    address
}

pub(crate) async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, certificate: &'static str) {
    let service = service_fn(move |request| async move { Ok::<_, Infallible>(respond(request, certificate).await) });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let _ = connection.with_upgrades().await;
}

async fn respond(mut request: Request<Incoming>, certificate: &str) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let text = |code: u16, text: String| Response::builder().status(code).body(Full::new(Bytes::from(text))).unwrap();
    if path.ends_with("/upgrade") {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut message = [0; 5];
            stream.read_exact(&mut message).await.unwrap();
            stream.write_all(&message.map(|b| b.to_ascii_uppercase())).await.unwrap();
        });
        let response = Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "shout");
        return response.body(Full::default()).unwrap();
    }
    if path.ends_with("/moved") {
        return Response::builder().status(302).header(header::LOCATION, "/there").body(Full::default()).unwrap();
    }
    if path.ends_with("/page") {
        let page = Full::new(Bytes::from_static(b"<a href=\"/there\">"));
        return Response::builder().header(header::CONTENT_TYPE, "text/html").body(page).unwrap();
    }
    if path.ends_with("/ended") {
        return text(500, "failed to exec in container: container c is stopped".to_owned());
    }
    if path.ends_with("/absent") {
        return text(404, "pod does not exist".to_owned());
    }
    if path.ends_with("/teapot") {
        return text(418, "short and stout".to_owned());
    }
    if path == "/openapi/v3" {
        let url = "/openapi/v3/apis/more.io/v1?hash=x";
        return text(200, json!({"paths": {"apis/more.io/v1": {"serverRelativeURL": url}}}).to_string());
    }
    if let Some(version) = path.strip_prefix("/apis/more.io/").filter(|v| !v.contains('/')) {
        return discovery_document(version);
    }
    let headers: Map<String, Value> =
        request.headers().keys().map(|k| (k.to_string(), joined_values(request.headers(), k))).collect();
    let (method, uri) = (request.method().to_string(), request.uri().to_string());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8_lossy(&body).into_owned();
    let message = json!({"method": method, "uri": uri, "headers": headers, "body": body, "certificate": certificate});
    let response = Response::builder().header("content-type", "application/json").header("keep-alive", "timeout=5");
    response.body(Full::new(message.to_string().into())).unwrap()
}

fn joined_values(headers: &http::HeaderMap, name: &http::HeaderName) -> Value {
    let all: Vec<&str> = headers.get_all(name).iter().map(|v| v.to_str().unwrap()).collect();
    json!(all.join("; "))
}

/// Returns the discovery document of `more.io`.
fn discovery_document(version: &str) -> Response<Full<Bytes>> {
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("more.io/{version}"), "resources": [
        {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get", "list"], "shortNames": ["th"]},
        {"name": "things/status", "singularName": "", "namespaced": true, "kind": "Thing", "verbs": ["get"]},
    ]});
    Response::builder().header("content-type", "application/json").body(Full::new(list.to_string().into())).unwrap()
}
