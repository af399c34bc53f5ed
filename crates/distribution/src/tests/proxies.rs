//! Tests of the proxies of the environment.

use super::{
    image::{Image, noise},
    memory_store::MemoryStore,
    network, options_with_hosts,
    registry::Registry,
    tls::Authority,
};
use crate::{BlobStore, PullError, PullErrorKind, PullOptions, pull::pull_over};
use hyper_util::client::proxy::matcher::Matcher;
use parking_lot::Mutex;
use std::{net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
};

const REFERENCE: &str = "registry.test/team/app:1";
/// `user:pass`
const CREDENTIALS: &str = "Basic dXNlcjpwYXNz";

async fn pull_through(proxies: Matcher, options: &PullOptions) -> Result<(), PullError> {
    let store: Arc<dyn BlobStore> = Arc::new(MemoryStore::default());
    Box::pin(pull_over(&network(proxies), REFERENCE, options, &store, &|_| {})).await.map(drop)
}

#[tokio::test]
async fn requests_without_tls_are_sent_to_the_proxy() {
    let image = Image::new(&[noise(1, 1000)]);
    let proxy = Registry::serve(image.tagged()).await;
    let dir = tempfile::tempdir().unwrap();
    // Nobody listens there while the port is taken.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let host = format!("registry.test:{}", closed.local_addr().unwrap().port());
    let options = options_with_hosts(dir.path(), "registry.test", &format!("server = \"http://{host}\"\n"));
    let url = format!("http://user:pass@{}", proxy.address);
    pull_through(Matcher::builder().http(url.clone()).build(), &options).await.unwrap();
    let requests = proxy.requests();
    assert_eq!(requests.len(), 3);
    for request in requests {
        assert_eq!(request.header("host"), host);
        assert_eq!(request.header("proxy-authorization"), CREDENTIALS);
    }
    let excluded = Matcher::builder().http(url).no("registry.test").build();
    assert_eq!(pull_through(excluded, &options).await.unwrap_err().kind(), PullErrorKind::ConnectionRefused);
    assert_eq!(proxy.requests().len(), 3);
}

#[tokio::test]
async fn registry_on_loopback_gets_no_credentials_of_the_proxy() {
    let image = Image::new(&[noise(1, 1000)]);
    let registry = Registry::serve(image.tagged()).await;
    let dir = tempfile::tempdir().unwrap();
    let text = format!("server = \"http://{}\"\n", registry.address);
    let options = options_with_hosts(dir.path(), "registry.test", &text);
    let proxies = Matcher::builder().http("http://user:pass@proxy.test").build();
    pull_through(proxies, &options).await.unwrap();
    let requests = registry.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|r| r.header("proxy-authorization").is_empty()));
}

#[tokio::test]
async fn proxy_with_tls_is_refused() {
    let proxy = Registry::serve(Image::new(&[]).tagged()).await;
    let dir = tempfile::tempdir().unwrap();
    for scheme in ["http", "https"] {
        let text = format!("server = \"{scheme}://registry.test:9\"\n");
        let options = options_with_hosts(dir.path(), "registry.test", &text);
        let proxies = Matcher::builder().all(format!("https://user:pass@{}", proxy.address)).build();
        let error = pull_through(proxies, &options).await.unwrap_err();
        assert_eq!(error.kind(), PullErrorKind::Connection, "{error}");
        assert!(error.to_string().ends_with("proxyconnect tcp: unsupported proxy scheme \"https\""), "{error}");
    }
    assert_eq!(proxy.requests().len(), 0);
}

/// Proxy that connects to one address, and records the heads of requests.
async fn tunnel_to(target: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<String>>>, JoinSet<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    let recorded = Arc::clone(&heads);
    tasks.spawn(async move {
        let mut tunnels = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let heads = Arc::clone(&recorded);
            tunnels.spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).await.is_ok_and(|n| n > 0) {}
                heads.lock().push(head);
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let mut server = TcpStream::connect(target).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
            });
        }
    });
    (address, heads, tasks)
}

#[tokio::test]
async fn connections_with_tls_are_tunnelled_through_the_proxy() {
    let image = Image::new(&[noise(1, 1000)]);
    let server = Authority::new().server("registry.test", false);
    let registry = Registry::start(image.tagged(), Some(server), |_| None).await;
    let (address, heads, _tasks) = tunnel_to(registry.address).await;
    let dir = tempfile::tempdir().unwrap();
    let text = "server = \"https://registry.test:9\"\nskip_verify = true\n";
    let options = options_with_hosts(dir.path(), "registry.test", text);
    let proxies = Matcher::builder().https(format!("http://user:pass@{address}")).build();
    pull_through(proxies, &options).await.unwrap();
    let heads = heads.lock();
    assert!(heads[0].starts_with("CONNECT registry.test:9 HTTP/1.1\r\n"), "{heads:?}");
    assert!(heads[0].contains(&format!("Proxy-Authorization: {CREDENTIALS}\r\n")), "{heads:?}");
    assert!(registry.requests().iter().all(|r| r.header("proxy-authorization").is_empty()));
}
