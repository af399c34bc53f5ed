//! Certificate renewal over years, on a real socket.

use crate::common::TestApi;
use auth::pki::{Clock, Pki};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    time_provider::TimeProvider,
};
use serde_json::Value;
use server::{Connections, ListenOptions};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(30);
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const DAY: i64 = 24 * 3600;
/// 2026-01-01.
const START: i64 = 1_767_225_600;

/// Clock of the server and the clients, in Unix seconds.
#[derive(Debug, Clone)]
struct FakeTime(Arc<AtomicI64>);

impl FakeTime {
    fn set_days(&self, days: i64) {
        self.0.store(START + days * DAY, Ordering::Relaxed);
    }
}

impl TimeProvider for FakeTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = self.0.load(Ordering::Relaxed).try_into().ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// A client with the credentials of a kubeconfig.
struct Client {
    requests: SendRequest<Full<Bytes>>,
    /// The serving certificate.
    server_certificate: CertificateDer<'static>,
}

impl Client {
    async fn connect(address: SocketAddr, kubeconfig: &Path, fake_time: &FakeTime) -> Self {
        let config: Value = serde_json::from_slice(&std::fs::read(kubeconfig).unwrap()).unwrap();
        let pem = |object: &Value, field: &str| STANDARD.decode(object[field].as_str().unwrap()).unwrap();
        let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem(cluster, "certificate-authority-data")).unwrap()).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(&pem(user, "client-certificate-data")).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(&pem(user, "client-key-data")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_details(provider, Arc::new(fake_time.clone()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let mut config = config.with_client_auth_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(LOOPBACK.into(), stream).await.unwrap();
        let server_certificate = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (requests, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        Self { requests, server_certificate }
    }

    async fn status(&mut self) -> StatusCode {
        let request = Request::get("https://127.0.0.1/api/v1/namespaces/default").body(Full::default()).unwrap();
        tokio::time::timeout(DEADLINE, self.requests.send_request(request)).await.expect("timeout").unwrap().status()
    }
}

#[tokio::test]
async fn certificate_renewal_keeps_open_connections() {
    let (dir, fake_time) = (tempfile::tempdir().unwrap(), FakeTime(Arc::new(AtomicI64::new(START))));
    let seconds = Arc::clone(&fake_time.0);
    let clock = Clock::new(move || Timestamp::from_second(seconds.load(Ordering::Relaxed)).unwrap());
    let pki = Pki::load_or_create_at(&dir.path().join("pki"), &[], &[LOOPBACK], clock).unwrap();
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (url, kubeconfig) = (format!("https://{address}"), dir.path().join("config"));
    pki.write_admin_kubeconfig(&kubeconfig, &url).unwrap();
    let (api, stop) = (TestApi::new().await, CancellationToken::new());
    let options = ListenOptions::new(Arc::new(Connections::new(1000)));
    tokio::spawn(server::serve(api.server.clone(), listener, pki.server_tls().unwrap(), options, stop.clone()));
    let _stop = stop.drop_guard();

    let mut first = Client::connect(address, &kubeconfig, &fake_time).await;
    assert_eq!(first.status().await, StatusCode::OK);
    fake_time.set_days(335);
    let mut second = Client::connect(address, &kubeconfig, &fake_time).await;
    assert_ne!(second.server_certificate, first.server_certificate);
    assert_eq!((first.status().await, second.status().await), (StatusCode::OK, StatusCode::OK));
    assert!(pki.renew_admin_kubeconfig(&kubeconfig, &url).unwrap());
    // The first serving and client certificates have expired by now.
    fake_time.set_days(600);
    let mut third = Client::connect(address, &kubeconfig, &fake_time).await;
    assert_ne!(third.server_certificate, second.server_certificate);
    assert_eq!(third.status().await, StatusCode::OK);
}
