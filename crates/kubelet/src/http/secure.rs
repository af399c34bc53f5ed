//! The node's HTTP API over HTTPS, for whom the API lets in (upstream's `pkg/kubelet/server`).

use super::{access::Access, serve_service};
use crate::Shared;
use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use hyper_util::service::TowerToHyperService;
use k8s_openapi::api::authentication::v1::UserInfo;
use rustls::{ServerConfig, pki_types::CertificateDer};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tower::{ServiceExt, service_fn};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Who does not finish the handshake by then has gone.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// What is waited for after a connection could not be accepted: there may be no descriptor left.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers until told to stop.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener, tls: Arc<ServerConfig>) {
    let (stop, acceptor) = (shared.stop.clone(), TlsAcceptor::from(tls));
    // The configuration was checked when it was read.
    let Ok(settings) = shared.options.config.access() else { return };
    let access = Arc::new(Access::new(shared.client.clone(), &shared.options.node_name, settings));
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                let connection = connection(Arc::clone(&shared), Arc::clone(&access), acceptor.clone(), stream);
                tokio::spawn(stop.clone().run_until_cancelled_owned(connection));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to the node could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(shared: Arc<Shared>, access: Arc<Access>, acceptor: TlsAcceptor, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let user = stream.get_ref().1.peer_certificates().and_then(|chain| identity(chain.first()?));
    let router = super::router(shared);
    let service = service_fn(move |request| answer(router.clone(), Arc::clone(&access), user.clone(), request));
    serve_service(TowerToHyperService::new(service), stream).await;
}

async fn answer(
    router: Router,
    access: Arc<Access>,
    certificate: Option<UserInfo>,
    request: http::Request<hyper::body::Incoming>,
) -> Result<Response, Infallible> {
    let Some(user) = access.user(certificate, request.headers()).await else {
        return Ok((StatusCode::UNAUTHORIZED, "Unauthorized").into_response());
    };
    if let Err((code, words)) = access.check(&user, request.method(), request.uri().path()).await {
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return Ok((code, words).into_response());
    }
    router.oneshot(request.map(axum::body::Body::new) as Request).await
}

/// Common name and organizations; the handshake has checked who signed it.
fn identity(certificate: &CertificateDer<'_>) -> Option<UserInfo> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let user = api::certificate::subject_user(certificate.subject()).ok()?;
    Some(UserInfo { username: Some(user.name), groups: Some(user.groups), ..UserInfo::default() })
}
