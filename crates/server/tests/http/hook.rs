//! A webhook in this process: HTTPS on a port of its own, with an authority of its own.

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

/// What a webhook says to a path and a review.
type Say = dyn Fn(&str, &Value) -> (u16, Value) + Send + Sync;

/// A webhook, and what it was asked.
pub(crate) struct Hook {
    pub(crate) port: u16,
    authority: String,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
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

impl Hook {
    /// One that an authority vouches for.
    pub(crate) async fn new(say: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let (authority, certificate, key) = certificate();
        Self::with(authority, certificate, key, Arc::new(say)).await
    }

    /// One whose certificate stands for itself, and calls itself an authority, as `openssl req -x509` makes it.
    pub(crate) async fn self_signed(say: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let signed = params.self_signed(&key).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Self::with(signed.pem(), signed.der().clone(), key, Arc::new(say)).await
    }

    async fn with(
        authority: String,
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
        say: Arc<Say>,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, say, seen) = (acceptor.clone(), Arc::clone(&say), Arc::clone(&seen));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (say, seen) = (Arc::clone(&say), Arc::clone(&seen));
                        async move { Ok::<_, Infallible>(answer(&*say, &seen, request).await) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { port, authority, asked }
    }

    /// `clientConfig` by URL.
    pub(crate) fn config(&self, path: &str) -> Value {
        let url = format!("https://127.0.0.1:{}{path}", self.port);
        json!({"url": url, "caBundle": self.bundle()})
    }

    /// The authority, as configurations have it.
    pub(crate) fn bundle(&self) -> String {
        STANDARD.encode(&self.authority)
    }

    /// What was asked since the last look.
    pub(crate) fn asked(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.asked.lock())
    }
}

async fn answer(say: &Say, seen: &Mutex<Vec<(String, Value)>>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    seen.lock().push((path.clone(), review.clone()));
    // A webhook that never answers.
    if path == "/never" {
        std::future::pending::<()>().await;
    }
    let (code, said) = say(&path, &review);
    let body = if let Value::String(text) = &said { text.clone() } else { said.to_string() };
    Response::builder().status(code).body(Full::new(Bytes::from(body))).unwrap()
}
