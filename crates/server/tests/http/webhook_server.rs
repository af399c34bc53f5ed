//! An HTTPS webhook server in the test process, with its own CA.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use serde_json::{Value, json};
use std::{convert::Infallible, sync::Arc};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Returns the status code and the body for a path and a review.
type Handler = dyn Fn(&str, &Value) -> (u16, Value) + Send + Sync;

/// A webhook server that records its requests.
pub(crate) struct WebhookServer {
    pub(crate) port: u16,
    authority: String,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

fn certificate() -> (String, CertificateDer<'static>, PrivateKeyDer<'static>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::from_ca_cert_pem(&authority, key).unwrap();
    let names = ["127.0.0.1", "localhost", "hook.default.svc"].map(str::to_owned);
    let key = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    (authority, signed.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
}

impl WebhookServer {
    /// Starts a server whose certificate is signed by its own CA.
    pub(crate) async fn new(handler: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let (authority, certificate, key) = certificate();
        Self::start(authority, certificate, key, Arc::new(handler)).await
    }

    /// Starts a server with a self-signed CA certificate, like that of `openssl req -x509`.
    pub(crate) async fn self_signed(handler: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let signed = params.self_signed(&key).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Self::start(signed.pem(), signed.der().clone(), key, Arc::new(handler)).await
    }

    async fn start(
        authority: String,
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
        handler: Arc<Handler>,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, handler, recorded) = (acceptor.clone(), Arc::clone(&handler), Arc::clone(&recorded));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (handler, recorded) = (Arc::clone(&handler), Arc::clone(&recorded));
                        async move { Ok::<_, Infallible>(handle(&*handler, &recorded, request).await) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { port, authority, requests }
    }

    /// Returns a `clientConfig` with a URL.
    pub(crate) fn client_config(&self, path: &str) -> Value {
        let url = format!("https://127.0.0.1:{}{path}", self.port);
        json!({"url": url, "caBundle": self.ca_bundle()})
    }

    /// Returns the `caBundle`: the CA in PEM and base64.
    pub(crate) fn ca_bundle(&self) -> String {
        STANDARD.encode(&self.authority)
    }

    /// Returns the paths and bodies of the requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.requests.lock())
    }
}

async fn handle(
    handler: &Handler,
    recorded: &Mutex<Vec<(String, Value)>>,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    recorded.lock().push((path.clone(), review.clone()));
    if path == "/never" {
        std::future::pending::<()>().await;
    }
    let (code, response) = handler(&path, &review);
    let body = if let Value::String(text) = &response { text.clone() } else { response.to_string() };
    Response::builder().status(code).body(Full::new(Bytes::from(body))).unwrap()
}
