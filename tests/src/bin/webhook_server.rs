//! An admission and conversion webhook for tests: `webhook_server ADDRESS CERTIFICATE KEY` serves HTTPS and prints its port.
//!
//! It runs on the node, and in containers that mount it from there. `/change` adds a label to the object, `/check` denies
//! objects with the label `refuse`, and `/convert` moves `spec.cron` of `v1` to `spec.schedule` of `v2` and back.
#![forbid(unsafe_code)]
#![allow(clippy::expect_used, clippy::print_stdout, reason = "tests fail by panicking and read the port")]

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use std::{convert::Infallible, sync::Arc};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("an address, a certificate and a key");
    let (address, certificate, key) = (next(), next(), next());
    let certificate = CertificateDer::from_pem_file(certificate).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(key).expect("a key");
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a certificate and its key");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(address).await.expect("the port is free");
    println!("{}", listener.local_addr().expect("an address").port());
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(serve(stream, acceptor.clone()));
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request: Request<Incoming>| async move {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let review: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut response = match path.as_str() {
            "/change" => mutate(&review["request"]),
            "/convert" => convert(&review["request"]),
            _ => validate(&review["request"]),
        };
        response["uid"] = review["request"]["uid"].clone();
        let answer = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer.to_string()))))
    });
    // A closed connection is not a failure.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

fn mutate(request: &Value) -> Value {
    let mut labels = request["object"]["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.insert("hooked".to_owned(), json!("yes"));
    let patch = json!([{"op": "add", "path": "/metadata/labels", "value": labels}]).to_string();
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch)})
}

fn validate(request: &Value) -> Value {
    let labels = &request["object"]["metadata"]["labels"];
    let warnings = [format!("{} was seen", request["name"].as_str().unwrap_or("nobody"))];
    json!({"allowed": labels["refuse"].is_null(), "status": {"message": "it says so itself"}, "warnings": warnings})
}

fn convert(request: &Value) -> Value {
    let desired = request["desiredAPIVersion"].as_str().unwrap_or("").to_owned();
    let (from, to) = if desired.ends_with("/v2") { ("cron", "schedule") } else { ("schedule", "cron") };
    let mut objects = request["objects"].as_array().cloned().unwrap_or_default();
    for object in &mut objects {
        object["apiVersion"] = json!(desired);
        if let Some(value) = object["spec"].as_object_mut().and_then(|spec| spec.remove(from)) {
            object["spec"][to] = value;
        }
    }
    json!({"convertedObjects": objects, "result": {"status": "Success"}})
}
