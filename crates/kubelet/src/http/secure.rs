//! The node's HTTP API over HTTPS, for clients that show a certificate (upstream's `pkg/kubelet/server`, `auth.go`).
//!
//! Who shows none is not answered; of those that do, members of `system:masters` may do everything and all others nothing
//! yet, as on the API server.

use super::serve_service;
use crate::Shared;
use axum::{
    Router,
    extract::Request,
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use hyper_util::service::TowerToHyperService;
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

/// Whom a certificate names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct User {
    name: String,
    groups: Vec<String>,
}

/// Answers until told to stop.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener, tls: Arc<ServerConfig>) {
    let (stop, acceptor) = (shared.stop.clone(), TlsAcceptor::from(tls));
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                let connection = connection(Arc::clone(&shared), acceptor.clone(), stream);
                tokio::spawn(stop.clone().run_until_cancelled_owned(connection));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to the node could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(shared: Arc<Shared>, acceptor: TlsAcceptor, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let user = stream.get_ref().1.peer_certificates().and_then(|chain| identity(chain.first()?));
    let router = super::router(shared);
    let service = service_fn(move |request| answer(router.clone(), user.clone(), request));
    serve_service(TowerToHyperService::new(service), stream).await;
}

async fn answer(
    router: Router,
    user: Option<User>,
    request: http::Request<hyper::body::Incoming>,
) -> Result<Response, Infallible> {
    if let Some(refused) = refusal(user.as_ref(), request.method(), request.uri().path()) {
        return Ok(refused.into_response());
    }
    router.oneshot(request.map(axum::body::Body::new) as Request).await
}

/// Why this is not answered, in upstream's words.
fn refusal(user: Option<&User>, method: &Method, path: &str) -> Option<(StatusCode, String)> {
    let Some(user) = user else { return Some((StatusCode::UNAUTHORIZED, "Unauthorized".to_owned())) };
    if user.groups.iter().any(|group| group == "system:masters") {
        return None;
    }
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    };
    let subresource = match path.split('/').nth(1).unwrap_or_default() {
        "stats" => "stats",
        "metrics" => "metrics",
        "pods" | "runningpods" => "pods",
        "healthz" => "healthz",
        "configz" => "configz",
        _ => "proxy",
    };
    let name = &user.name;
    let message = format!("Forbidden (user={name}, verb={verb}, resource=nodes, subresource={subresource})");
    Some((StatusCode::FORBIDDEN, message))
}

/// Common name and organizations; the handshake has checked who signed it.
fn identity(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|o| o.as_str().ok().map(str::to_owned)).collect();
    Some(User { name, groups })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(user: Option<(&str, &str)>, method: &Method, path: &str, expected: Option<(u16, &str)>) {
        let user = user.map(|(name, group)| User { name: name.to_owned(), groups: vec![group.to_owned()] });
        let found = refusal(user.as_ref(), method, path);
        assert_eq!(found.as_ref().map(|(code, text)| (code.as_u16(), text.as_str())), expected, "{path}");
    }

    #[test]
    fn who_is_nobody_is_not_answered_and_who_may_nothing_is_told_so() {
        check(None, &Method::GET, "/healthz", Some((401, "Unauthorized")));
        check(Some(("admin", "system:masters")), &Method::POST, "/exec/a/b/c", None);
        let node = Some(("system:node:n", "system:nodes"));
        for (method, path, verb, subresource) in [
            (Method::GET, "/metrics/resource", "get", "metrics"),
            (Method::GET, "/stats/summary", "get", "stats"),
            (Method::GET, "/pods/", "get", "pods"),
            (Method::GET, "/healthz", "get", "healthz"),
            (Method::POST, "/exec/a/b/c", "create", "proxy"),
        ] {
            let message =
                format!("Forbidden (user=system:node:n, verb={verb}, resource=nodes, subresource={subresource})");
            check(node, &method, path, Some((403, &message)));
        }
    }
}
