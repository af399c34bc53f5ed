//! A client with little overhead, so that measurements show the server: one HTTP/2 connection for requests, and one
//! HTTP/1.1 connection for each watch.

use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn, upgrade::Upgraded};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use serde_json::Value;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};
use tokio::{net::TcpStream, sync::mpsc};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Number of watches that share a connection.
const WATCHES_PER_CONNECTION: usize = 500;

/// A client for one namespace of a cluster.
#[derive(Clone)]
pub(crate) struct Api {
    address: String,
    tls: Arc<ClientConfig>,
    requests: conn::http2::SendRequest<Full<Bytes>>,
    namespace: &'static str,
}

/// A watch event and its arrival time.
pub(crate) type WatchEvent = (Instant, Value);

impl Api {
    /// Connects with an administrator's kubeconfig.
    pub(crate) async fn connect(kubeconfig: &Path, namespace: &'static str) -> Result<Self> {
        let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig)?)?;
        let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
        let pem = |v: &Value| -> Result<Vec<u8>> {
            Ok(base64::engine::general_purpose::STANDARD.decode(v.as_str().context("no embedded data")?)?)
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem(&cluster["certificate-authority-data"])?) {
            roots.add(certificate?)?;
        }
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(&pem(&user["client-certificate-data"])?).collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&pem(&user["client-key-data"])?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        let address =
            cluster["server"].as_str().and_then(|s| s.strip_prefix("https://")).context("no https server")?.to_owned();
        let requests = multiplexed(&address, &tls).await?;
        Ok(Self { address, tls: tls.into(), requests, namespace })
    }

    /// Returns the path of a resource in the namespace.
    pub(crate) fn path(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace)
    }

    fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Request<Full<Bytes>>> {
        let bytes = body.map_or_else(Bytes::new, |b| b.to_string().into());
        Ok(Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.address))
            .header("host", &self.address)
            .header("accept", "application/json")
            .header("content-type", "application/json")
            .body(Full::new(bytes))?)
    }

    /// Sends a request. A response without a success status is an error.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Bytes> {
        self.send(self.request(method, path, body)?).await
    }

    /// Sends a server-side apply.
    pub(crate) async fn apply(&self, path: &str, body: &Value) -> Result<Bytes> {
        let mut request = self.request(Method::PATCH, path, Some(body))?;
        let media_type = http::HeaderValue::from_static("application/apply-patch+yaml");
        request.headers_mut().insert(http::header::CONTENT_TYPE, media_type);
        self.send(request).await
    }

    /// Reads and discards a response, so that the client's memory adds no time, and returns its size in bytes.
    pub(crate) async fn size(&self, path: &str) -> Result<usize> {
        let response = self.requests.clone().send_request(self.request(Method::GET, path, None)?).await?;
        if !response.status().is_success() {
            bail!("GET {path}: {}", response.status());
        }
        let (mut body, mut size) = (response.into_body(), 0);
        while let Some(frame) = body.frame().await {
            size += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(size)
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Bytes> {
        let operation = format!("{} {}", request.method(), request.uri().path());
        let (head, body) = self.requests.clone().send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        if !head.status.is_success() {
            bail!("{operation}: {} {}", head.status, String::from_utf8_lossy(&body));
        }
        Ok(body)
    }

    /// Watches a resource from now on.
    pub(crate) async fn watch(&self, resource: &str) -> Result<mpsc::UnboundedReceiver<WatchEvent>> {
        let list: Value =
            serde_json::from_slice(&self.call(Method::GET, &format!("{}?limit=1", self.path(resource)), None).await?)?;
        let revision =
            list["metadata"]["resourceVersion"].as_str().context("a list without a resourceVersion")?.to_owned();
        let io = connect_tls(&self.address, self.tls.clone()).await?;
        let (mut sender, connection) = conn::http1::handshake(TokioIo::new(io)).await?;
        tokio::spawn(connection);
        let path = format!("{}?watch=1&resourceVersion={revision}", self.path(resource));
        let response = sender.send_request(self.request(Method::GET, &path, None)?).await?;
        if !response.status().is_success() {
            bail!("watch {resource}: {}", response.status());
        }
        let (tx, rx) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            // The connection is open as long as its sender exists.
            let _sender = sender;
            read_events(response, &tx).await
        });
        Ok(rx)
    }

    /// Watches single objects, `name(0)` to `name(count - 1)`, many per connection like Go clients. Returns the counter of
    /// events.
    pub(crate) async fn watch_each(
        &self,
        resource: &str,
        count: usize,
        name: impl Fn(usize) -> String,
    ) -> Result<Arc<AtomicUsize>> {
        let (seen, mut requests) = (Arc::new(AtomicUsize::new(0)), self.requests.clone());
        let list: Value =
            serde_json::from_slice(&self.call(Method::GET, &format!("{}?limit=1", self.path(resource)), None).await?)?;
        let revision = list["metadata"]["resourceVersion"].as_str().context("a list without a resourceVersion")?;
        for i in 0..count {
            if i % WATCHES_PER_CONNECTION == 0 {
                requests = multiplexed(&self.address, &self.tls).await?;
            }
            let (path, name) = (self.path(resource), name(i));
            let path = format!("{path}?watch=1&resourceVersion={revision}&fieldSelector=metadata.name%3D{name}");
            let response = requests.send_request(self.request(Method::GET, &path, None)?).await?;
            if !response.status().is_success() {
                bail!("watch {name}: {}", response.status());
            }
            let (mut body, seen) = (response.into_body(), seen.clone());
            tokio::spawn(async move {
                while let Some(Ok(frame)) = body.frame().await {
                    let lines = frame.data_ref().map_or(0, |d| d.iter().filter(|b| **b == b'\n').count());
                    seen.fetch_add(lines, Ordering::Relaxed);
                }
            });
        }
        Ok(seen)
    }

    /// Opens a WebSocket with a subprotocol, on a connection of its own.
    pub(crate) async fn web_socket(&self, path: &str, protocol: &str) -> Result<TokioIo<Upgraded>> {
        let io = connect_tls(&self.address, self.tls.clone()).await?;
        let (mut sender, connection) = conn::http1::handshake(TokioIo::new(io)).await?;
        tokio::spawn(connection.with_upgrades());
        let mut request = self.request(Method::GET, path, None)?;
        for (name, value) in [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", protocol),
        ] {
            request.headers_mut().insert(name, http::HeaderValue::from_str(value)?);
        }
        let response = sender.send_request(request).await?;
        if response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
            bail!("GET {path}: {}", response.status());
        }
        Ok(TokioIo::new(hyper::upgrade::on(response).await?))
    }

    /// Creates the namespace and waits for its default ServiceAccount.
    pub(crate) async fn create_namespace(&self) -> Result<()> {
        let body = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        self.call(Method::POST, "/api/v1/namespaces", Some(&body)).await?;
        let path = format!("{}/default", self.path("serviceaccounts"));
        for _ in 0..1000 {
            if self.call(Method::GET, &path, None).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        Err(anyhow!("no default service account within 10 s"))
    }
}

async fn multiplexed(address: &str, tls: &ClientConfig) -> Result<conn::http2::SendRequest<Full<Bytes>>> {
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let io = connect_tls(address, tls.into()).await?;
    let (requests, connection) = conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(8 << 20)
        .initial_connection_window_size(32 << 20)
        .handshake(TokioIo::new(io))
        .await?;
    tokio::spawn(connection);
    Ok(requests)
}

async fn connect_tls(address: &str, tls: Arc<ClientConfig>) -> Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
    Ok(TlsConnector::from(tls).connect(ServerName::try_from(host)?, tcp).await?)
}

async fn read_events(response: Response<Incoming>, tx: &mpsc::UnboundedSender<WatchEvent>) -> Result<()> {
    let (mut body, mut buffer) = (response.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        let at = Instant::now();
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        buffer.extend_from_slice(&data);
        while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            tx.send((at, serde_json::from_slice(&line)?)).map_err(|_| anyhow!("the receiver is closed"))?;
        }
    }
    Ok(())
}
