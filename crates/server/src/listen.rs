//! HTTPS: HTTP/1.1 and HTTP/2 by ALPN, clients known by their certificates.

use crate::{
    ApiServer, UserInfo,
    audit::Peer,
    gather::{Gather, Turns},
    pki::ServerTls,
    unread::Dropped,
    user::CREDENTIAL_ID,
};
use api::certificate::{SubjectUser, subject_user};
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use sha2::{Digest, Sha256};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Who does not finish the handshake by then has gone.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long the lines before a body may be together, in bytes: upstream's `MaxHeaderBytes`.
const MAX_HEADERS: u32 = 1 << 20;

/// Serves until told to stop, and forgets events as they expire; connections that are open then end with the process.
pub async fn serve(server: ApiServer, listener: TcpListener, tls: ServerTls, stop: CancellationToken) {
    tokio::select! {
        () = accept(server.clone(), listener, tls, stop) => {}
        () = server.clone().aggregate() => {}
        () = server.sweep_events() => {}
    }
}

async fn accept(server: ApiServer, listener: TcpListener, tls: ServerTls, stop: CancellationToken) {
    let acceptor = TlsAcceptor::from(Arc::clone(&tls.config));
    // What is open ends with this. To ask each time one has a turn whether it is to stop would cost as much as a small answer.
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => return,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match stream {
            Ok((stream, peer)) => {
                let (server, tls, acceptor) = (server.clone(), tls.clone(), acceptor.clone());
                connections.spawn(async move { connection(server, &tls, acceptor, stream, Peer(peer)).await });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Marks a request whose client shows a certificate that nobody knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnknownCertificate;

async fn connection(server: ApiServer, tls: &ServerTls, acceptor: TlsAcceptor, stream: TcpStream, peer: Peer) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let chain = stream.get_ref().1.peer_certificates().filter(|chain| !chain.is_empty());
    let known = chain.filter(|chain| tls.knows(chain));
    let unknown = (chain.is_some() && known.is_none()).then_some(UnknownCertificate);
    let user = known.and_then(|chain| identity(chain.first()?));
    // A certificate without a user must not fall back to anonymous.
    let unknown = unknown.or((chain.is_some() && user.is_none()).then_some(UnknownCertificate));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        unknown.and_then(|unknown| request.extensions_mut().insert(unknown));
        let (server, user) = (server.clone(), user.clone());
        async move { Ok::<_, Infallible>(server.handle(user, request.map(Dropped::later)).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(1000).max_header_list_size(MAX_HEADERS);
    // Over HTTP/1.1 there is one answer at a time.
    let gathers = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let turns = Turns::default();
    let io = TokioIo::new(Gather::new(stream, turns.clone(), gathers));
    // How a connection ends is its client's affair.
    let _ = turns.counted(builder.serve_connection_with_upgrades(io, service)).await;
}

/// The user of a certificate that our own authority signed; `None` when its subject does not identify one.
fn identity(certificate: &rustls::pki_types::CertificateDer<'_>) -> Option<UserInfo> {
    let hash: String = Sha256::digest(certificate).iter().map(|b| format!("{b:02x}")).collect();
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let SubjectUser { name, groups } = subject_user(certificate.subject()).ok()?;
    let extra = [(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={hash}")])].into();
    Some(UserInfo { name, groups, extra, ..UserInfo::default() }.authenticated())
}
