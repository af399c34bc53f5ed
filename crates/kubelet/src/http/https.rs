//! The kubelet's HTTP API over HTTPS, with authentication and authorization (upstream's `pkg/kubelet/server`).

use super::{
    auth::{ClientCertificate, RequestAuth},
    connection_limit::{Connections, LimitedStream},
};
use crate::Shared;
use api::certificate::subject_user;
use axum::{
    Router,
    body::Body,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use k8s_openapi::api::authentication::v1::UserInfo;
use rustls::{ServerConfig, pki_types::CertificateDer};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, service_fn};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Initial delay after a failed accept, which may be caused by a lack of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
const MAX_ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// Timeouts of a connection.
#[derive(Clone, Copy)]
struct Timeouts {
    handshake: Duration,
    /// Time limit for a request's headers, since the handshake or the previous response.
    header: Duration,
}

const TIMEOUTS: Timeouts = Timeouts { handshake: Duration::from_secs(10), header: Duration::from_secs(90) };

/// Serves the API until cancelled.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener, tls: Arc<ServerConfig>) {
    // The configuration was validated when it was parsed.
    let Ok(settings) = shared.options.config.access() else { return };
    let auth = Arc::new(RequestAuth::new(shared.client.clone(), &shared.options.node_name, settings));
    let stop = shared.stop.clone();
    let service = move |certificate: ClientCertificate| {
        let (router, auth) = (super::router(Arc::clone(&shared)), Arc::clone(&auth));
        TowerToHyperService::new(service_fn(move |request| {
            handle_request(router.clone(), Arc::clone(&auth), certificate.clone(), request)
        }))
    };
    accept(listener, tls, Connections::new(), TIMEOUTS, stop, service).await;
}

/// Accepts connections until cancelled. `service` makes a service for the client certificate of a connection.
async fn accept<S>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    connections: Connections,
    timeouts: Timeouts,
    stop: CancellationToken,
    service: impl Fn(ClientCertificate) -> S + Clone + Send + 'static,
) where
    S: hyper::service::HttpService<Incoming, ResBody = Body, Future: Send, Error = Infallible> + Send + 'static,
{
    let acceptor = TlsAcceptor::from(tls);
    let mut backoff = ACCEPT_BACKOFF;
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, peer)) => {
                backoff = ACCEPT_BACKOFF;
                let _ = stream.set_nodelay(true);
                let Some(stream) = connections.admit(stream, peer) else { continue };
                let connection = connection(acceptor.clone(), stream, timeouts, service.clone());
                tokio::spawn(stop.clone().run_until_cancelled_owned(connection));
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection to the node");
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(MAX_ACCEPT_BACKOFF);
            }
        }
    }
}

async fn connection<S>(
    acceptor: TlsAcceptor,
    stream: LimitedStream,
    timeouts: Timeouts,
    service: impl Fn(ClientCertificate) -> S,
) where
    S: hyper::service::HttpService<Incoming, ResBody = Body, Future: Send, Error = Infallible> + Send + 'static,
{
    let Ok(Ok(stream)) = tokio::time::timeout(timeouts.handshake, acceptor.accept(stream)).await else { return };
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let certificate = certificate.map_or(ClientCertificate::Absent, identity);
    // Connection errors are the client's.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(timeouts.header)
        .serve_connection(TokioIo::new(stream), service(certificate))
        .with_upgrades()
        .await;
}

/// Authenticates and authorizes a request, and passes it to the router.
async fn handle_request(
    router: Router,
    auth: Arc<RequestAuth>,
    certificate: ClientCertificate,
    request: http::Request<Incoming>,
) -> Result<Response, Infallible> {
    let Some(user) = auth.authenticate(certificate, request.headers()).await else {
        return Ok((StatusCode::UNAUTHORIZED, "Unauthorized").into_response());
    };
    if let Err((code, message)) = auth.authorize(&user, request.method(), request.uri().path(), request.headers()).await
    {
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return Ok((code, message).into_response());
    }
    router.oneshot(request.map(Body::new) as Request).await
}

/// Returns the user of a client certificate, whose signature the handshake has verified.
fn identity(certificate: &CertificateDer<'_>) -> ClientCertificate {
    let parsed = X509Certificate::from_der(certificate).ok();
    let user = parsed.and_then(|(_, certificate)| subject_user(certificate.subject()).ok());
    user.map_or(ClientCertificate::Ambiguous, |user| {
        ClientCertificate::Valid(UserInfo {
            username: Some(user.name),
            groups: Some(user.groups),
            ..UserInfo::default()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AccessSettings;
    use api::connection_limiter::ConnectionLimits;
    use std::{io, net::SocketAddr};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };
    use tokio_rustls::{TlsConnector, client::TlsStream};

    const DEADLINE: Duration = Duration::from_secs(20);

    /// Starts a server that responds to every request. Returns its address, and a connector that trusts it.
    async fn start_server(total: usize, timeouts: Timeouts) -> (SocketAddr, TlsConnector) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (certified.cert.der().clone(), certified.signing_key.serialize_der());
        let tls = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], rustls::pki_types::PrivatePkcs8KeyDer::from(key).into())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Connections::with_bounds(ConnectionLimits { total, remote: total, per_source: total });
        let service = |_| {
            TowerToHyperService::new(service_fn(|_: http::Request<Incoming>| async {
                Ok::<_, Infallible>("ok".into_response())
            }))
        };
        tokio::spawn(accept(listener, tls.into(), connections, timeouts, CancellationToken::new(), service));
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).unwrap();
        let client = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        (address, TlsConnector::from(Arc::new(client)))
    }

    async fn connect(address: SocketAddr, tls: &TlsConnector) -> io::Result<TlsStream<TcpStream>> {
        tls.connect("localhost".try_into().unwrap(), TcpStream::connect(address).await?).await
    }

    #[expect(clippy::disallowed_methods, reason = "a test reads what it has requested")]
    async fn is_served(stream: &mut TlsStream<TcpStream>) -> bool {
        let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        let mut response = String::new();
        let requested = async {
            stream.write_all(request).await?;
            stream.read_to_string(&mut response).await
        };
        let _ = tokio::time::timeout(DEADLINE, requested).await.unwrap();
        response.starts_with("HTTP/1.1 200")
    }

    #[tokio::test]
    async fn silent_connections_are_closed() {
        let short = Duration::from_millis(300);
        let (address, tls) = start_server(100, Timeouts { handshake: short, header: short }).await;
        let mut silent = Vec::new();
        for _ in 0..20 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        for stream in &mut silent {
            let read = tokio::time::timeout(DEADLINE, stream.read(&mut [0; 1])).await.expect("closed");
            assert!(matches!(read, Ok(0) | Err(_)));
        }
        // A connection that has completed the handshake but sends no request is closed, too.
        if let Ok(mut stream) = connect(address, &tls).await {
            let read = tokio::time::timeout(DEADLINE, stream.read(&mut [0; 1])).await.expect("closed");
            assert!(matches!(read, Ok(0) | Err(_)));
        }
    }

    #[tokio::test]
    async fn connections_beyond_the_bound_are_refused() {
        let (address, tls) = start_server(3, Timeouts { handshake: DEADLINE, header: DEADLINE }).await;
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(connect(address, &tls).await.unwrap());
        }
        assert!(connect(address, &tls).await.is_err());
        // The open connections are still served.
        assert!(is_served(&mut open.pop().unwrap()).await);
        let reconnected = async {
            loop {
                if let Ok(stream) = connect(address, &tls).await {
                    return stream;
                }
            }
        };
        let mut stream = tokio::time::timeout(DEADLINE, reconnected).await.unwrap();
        assert!(is_served(&mut stream).await);
    }

    /// Returns the identity of a certificate with these common names.
    fn presented(common_names: &[&str]) -> ClientCertificate {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (i, name) in common_names.iter().enumerate() {
            // rcgen keeps one attribute of each known type, so the second one uses its object identifier.
            let kind = if i == 0 { rcgen::DnType::CommonName } else { rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]) };
            params.distinguished_name.push(kind, *name);
        }
        identity(params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der())
    }

    #[tokio::test]
    async fn ambiguous_certificate_is_refused_and_not_anonymous() {
        let ambiguous = presented(&["alice", "system:kube-controller-manager"]);
        assert!(matches!(ambiguous, ClientCertificate::Ambiguous));
        assert!(matches!(presented(&[]), ClientCertificate::Ambiguous));
        let service = service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(io::Error::other("not reachable"))
        });
        let ttl = Duration::from_secs(1);
        let (token_ttl, allowed_ttl, refused_ttl) = (ttl, ttl, ttl);
        let settings =
            AccessSettings { anonymous: true, tokens: false, token_ttl, always: false, allowed_ttl, refused_ttl };
        let access = RequestAuth::new(kube::Client::new(service, "default"), "n", settings);
        let user = async |certificate| {
            let user = access.authenticate(certificate, &http::HeaderMap::new()).await;
            user.map(|user| user.username.unwrap_or_default())
        };
        assert_eq!(user(ambiguous).await, None);
        assert_eq!(user(ClientCertificate::Absent).await.as_deref(), Some("system:anonymous"));
        assert_eq!(user(presented(&["alice"])).await.as_deref(), Some("alice"));
    }
}
