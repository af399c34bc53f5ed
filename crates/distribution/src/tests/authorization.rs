//! Tests of credentials: which ones are sent, and where.

use super::{
    image::{Image, noise},
    memory_store::MemoryStore,
    options, options_with_hosts, pull,
    registry::{Body, Contents, Recorded, Registry, endless, redirect, reply, with_header},
};
use crate::{PullError, PullErrorKind, Pulled};
use http::{Response, StatusCode};
use runtime::RegistryAuth;
use std::sync::Arc;

/// `user:pass`
const BASIC: &str = "Basic dXNlcjpwYXNz";

fn image() -> Contents {
    Image::new(&[noise(1, 1000), noise(2, 1000)]).tagged()
}

fn password() -> RegistryAuth {
    RegistryAuth { username: "user".to_owned(), password: "pass".to_owned(), ..RegistryAuth::default() }
}

fn challenge(value: &str) -> Response<Body> {
    with_header(reply(StatusCode::UNAUTHORIZED, ""), "www-authenticate", value)
}

/// Registry that requires a header.
async fn registry_requiring(authorization: &'static str, www_authenticate: String) -> Registry {
    Registry::with_handler(image(), move |request| {
        (request.header("authorization") != authorization).then(|| challenge(&www_authenticate))
    })
    .await
}

/// Token endpoint whose handler returns a token.
async fn token_endpoint(token: impl Fn(&Recorded) -> Response<Body> + Send + Sync + 'static) -> Registry {
    Registry::with_handler(Contents::new(), move |request| Some(token(request))).await
}

fn bearer(endpoint: &Registry) -> String {
    let port = endpoint.port();
    let scope = "repository:team/app:pull x:y:z";
    format!(r#"Bearer realm="http://auth.test:{port}/token?own=1",service="a service",scope="{scope}""#)
}

async fn pull_with(registry: &Registry, credentials: &[RegistryAuth]) -> Result<Pulled, PullError> {
    let mut options = options();
    options.credentials = credentials.to_vec();
    pull(&registry.reference(), &options, &Arc::new(MemoryStore::default())).await
}

/// Returns the message after those of the pull and the reference.
fn cause(error: &PullError) -> String {
    let message = error.to_string();
    message.split_once("failed to resolve reference ").unwrap().1.split_once(": ").unwrap().1.to_owned()
}

#[tokio::test]
async fn password_is_sent_when_it_is_required() {
    let registry = registry_requiring(BASIC, "Basic realm=\"x\"".to_owned()).await;
    pull_with(&registry, &[password()]).await.unwrap();
    let requests = registry.requests();
    assert_eq!(requests[0].header("authorization"), "");
    assert!(requests[1..].iter().all(|r| r.header("authorization") == BASIC));
    assert_eq!(requests.len(), 5);
}

#[tokio::test]
async fn wrong_or_missing_password_is_denied() {
    let registry = registry_requiring(BASIC, "Basic realm=\"x\"".to_owned()).await;
    let error = pull_with(&registry, &[]).await.unwrap_err();
    let denied = "pull access denied, repository does not exist or may require authorization: authorization failed: no \
                  basic auth credentials";
    assert_eq!((error.kind(), cause(&error).as_str()), (PullErrorKind::Unauthorized, denied));
    let wrong = RegistryAuth { password: "other".to_owned(), ..password() };
    let error = pull_with(&registry, &[wrong]).await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::Unauthorized);
    assert!(cause(&error).contains("401 Unauthorized"), "{error}");
    assert!(!error.to_string().contains("other"), "{error}");
}

#[tokio::test]
async fn anonymous_token_is_fetched_by_get() {
    let endpoint =
        token_endpoint(|_| reply(StatusCode::OK, r#"{"token":"t0","access_token":null,"expires_in":300}"#)).await;
    let registry = registry_requiring("Bearer t0", bearer(&endpoint)).await;
    pull_with(&registry, &[]).await.unwrap();
    let requests = endpoint.requests();
    assert_eq!(requests.len(), 1);
    let path = "/token?own=1&service=a+service&scope=repository%3Ateam%2Fapp%3Apull&scope=x%3Ay%3Az";
    assert_eq!((requests[0].method.as_str(), requests[0].path.as_str()), ("GET", path));
    assert_eq!(requests[0].header("authorization"), "");
}

#[tokio::test]
async fn token_is_fetched_with_password_by_post() {
    let endpoint = token_endpoint(|_| reply(StatusCode::OK, r#"{"access_token":"t1"}"#)).await;
    let registry = registry_requiring("Bearer t1", bearer(&endpoint)).await;
    pull_with(&registry, &[password()]).await.unwrap();
    let requests = endpoint.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!((requests[0].method.as_str(), requests[0].path.as_str()), ("POST", "/token?own=1"));
    let form = "grant_type=password&username=user&password=pass&scope=repository%3Ateam%2Fapp%3Apull+x%3Ay%3Az&\
                service=a+service&client_id=podium";
    assert_eq!(requests[0].body, form);
}

#[tokio::test]
async fn token_is_fetched_with_password_by_get_without_post() {
    let endpoint = token_endpoint(|request| match request.method.as_str() {
        "POST" => reply(StatusCode::NOT_FOUND, ""),
        _ if request.header("authorization") == BASIC => reply(StatusCode::OK, r#"{"token":"t2"}"#),
        _ => reply(StatusCode::UNAUTHORIZED, ""),
    })
    .await;
    let registry = registry_requiring("Bearer t2", bearer(&endpoint)).await;
    pull_with(&registry, &[password()]).await.unwrap();
    assert_eq!(endpoint.requests().len(), 2);
}

#[tokio::test]
async fn identity_token_is_a_refresh_token() {
    let endpoint = token_endpoint(|_| reply(StatusCode::OK, r#"{"access_token":"t3"}"#)).await;
    let registry = registry_requiring("Bearer t3", bearer(&endpoint)).await;
    let auth = RegistryAuth { identity_token: "id".to_owned(), ..RegistryAuth::default() };
    pull_with(&registry, &[auth]).await.unwrap();
    assert!(endpoint.requests()[0].body.starts_with("grant_type=refresh_token&refresh_token=id&"));
}

#[tokio::test]
async fn registry_token_is_sent_as_it_is() {
    let registry = registry_requiring("Bearer rt", "Bearer realm=\"http://auth.test:1/\"".to_owned()).await;
    let auth = RegistryAuth { registry_token: "rt".to_owned(), ..RegistryAuth::default() };
    pull_with(&registry, &[auth]).await.unwrap();
    assert!(registry.requests().iter().all(|r| r.header("authorization") == "Bearer rt"));
    let auth = RegistryAuth { registry_token: "old".to_owned(), ..RegistryAuth::default() };
    let error = pull_with(&registry, &[auth]).await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::Unauthorized, "{error}");
}

#[tokio::test]
async fn revoked_token_is_fetched_again() {
    let endpoint =
        token_endpoint(|request| reply(StatusCode::OK, format!(r#"{{"token":"t{}"}}"#, request.count))).await;
    let www_authenticate = bearer(&endpoint);
    let registry = Registry::with_handler(image(), move |request| {
        let token = if request.is_blob() { "Bearer t1" } else { "Bearer t0" };
        (request.header("authorization") != token).then(|| challenge(&www_authenticate))
    })
    .await;
    pull_with(&registry, &[]).await.unwrap();
    assert_eq!(endpoint.requests().len(), 2);
}

#[tokio::test]
async fn insufficient_scope_is_denied_with_the_servers_message() {
    let endpoint = token_endpoint(|_| reply(StatusCode::OK, r#"{"token":"t"}"#)).await;
    let www_authenticate = format!("{},error=\"insufficient_scope\"", bearer(&endpoint));
    let registry = registry_requiring("never", www_authenticate).await;
    let error = pull_with(&registry, &[]).await.unwrap_err();
    let denied = "pull access denied, repository does not exist or may require authorization: server message: \
                  insufficient_scope: authorization failed";
    assert_eq!((error.kind(), cause(&error).as_str()), (PullErrorKind::Unauthorized, denied));
    assert_eq!((registry.requests().len(), endpoint.requests().len()), (2, 1));
}

#[tokio::test]
async fn broken_token_endpoint_is_reported() {
    for (response, kind, message) in [
        (reply(StatusCode::FORBIDDEN, ""), PullErrorKind::Unauthorized, "failed to fetch anonymous token: unexpected"),
        (reply(StatusCode::OK, "{}"), PullErrorKind::UnexpectedResponse, "did not include a token in the response"),
        (reply(StatusCode::OK, "x"), PullErrorKind::UnexpectedResponse, "unable to decode token response"),
        (reply(StatusCode::OK, r#"{"token":"a\nb"}"#), PullErrorKind::UnexpectedResponse, "invalid characters"),
        (redirect("http://registry.test/"), PullErrorKind::UnexpectedResponse, "307 Temporary Redirect"),
        (endless(), PullErrorKind::TooLarge, "byte token, the limit is 1048576 bytes"),
    ] {
        let response = parking_lot::Mutex::new(Some(response));
        let endpoint = token_endpoint(move |_| response.lock().take().unwrap()).await;
        let registry = registry_requiring("never", bearer(&endpoint)).await;
        let error = pull_with(&registry, &[]).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(cause(&error).starts_with("failed to authorize: ") && error.to_string().contains(message), "{error}");
    }
    for realm in ["", "realm=\"ftp://a\"", "realm=\"/token\"", "realm=\"http://u:p@auth.test/\""] {
        let registry = registry_requiring("never", format!("Bearer {realm}")).await;
        let error = pull_with(&registry, &[]).await.unwrap_err();
        assert_eq!(error.kind(), PullErrorKind::UnexpectedResponse, "{error}");
    }
}

#[tokio::test]
async fn credentials_are_tried_in_turn() {
    let registry = registry_requiring(BASIC, "Basic realm=\"x\"".to_owned()).await;
    let wrong = |name: &str| RegistryAuth { username: name.to_owned(), ..password() };
    pull_with(&registry, &[wrong("first"), password(), wrong("last")]).await.unwrap();
    assert_eq!(registry.requests().len(), 2 + 5);
    // The distinct errors of all are reported.
    let identity = RegistryAuth { identity_token: "id".to_owned(), ..RegistryAuth::default() };
    let error = pull_with(&registry, &[wrong("first"), wrong("second"), identity]).await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::Unauthorized);
    let message = error.to_string();
    assert!(message.starts_with("[failed to pull and unpack image ") && message.ends_with(']'), "{message}");
    assert_eq!(message.matches("failed to pull and unpack image").count(), 2);
    // A broken registry does not get the others.
    let broken = Registry::with_handler(image(), |_| Some(reply(StatusCode::BAD_REQUEST, ""))).await;
    pull_with(&broken, &[wrong("first"), password()]).await.unwrap_err();
    assert_eq!(broken.requests().len(), 1);
}

#[tokio::test]
async fn credentials_of_another_registry_are_not_sent() {
    let registry = registry_requiring(BASIC, "Basic realm=\"x\"".to_owned()).await;
    for (address, is_sent) in [
        (registry.address.to_string(), true),
        (format!("https://{}/v1/", registry.address), true),
        ("quay.io".to_owned(), false),
        ("127.0.0.1".to_owned(), false),
    ] {
        let auth = RegistryAuth { server_address: address.clone(), ..password() };
        assert_eq!(pull_with(&registry, &[auth]).await.is_ok(), is_sent, "{address}");
    }
    let unsent = &registry.requests()[10..];
    assert!(unsent.iter().all(|r| r.header("authorization").is_empty()));
}

#[tokio::test]
async fn redirect_to_another_host_gets_no_credentials() {
    let storage = Registry::serve(image()).await;
    let port = storage.port();
    let registry = Registry::with_handler(image(), move |request| {
        if request.header("authorization") != BASIC {
            return Some(challenge("Basic realm=\"x\""));
        }
        request.is_blob().then(|| redirect(&format!("http://cdn.test:{port}{}?signature=secret", request.path)))
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let server = format!("http://registry.test:{}", registry.port());
    let text = format!("server = \"{server}\"\n[header]\nx-key = \"key\"\n");
    let mut options = options_with_hosts(dir.path(), "registry.test", &text);
    options.credentials = vec![password()];
    pull("registry.test/team/app:1", &options, &Arc::new(MemoryStore::default())).await.unwrap();
    assert!(registry.requests().iter().all(|r| r.header("x-key") == "key"));
    let redirected = storage.requests();
    assert_eq!(redirected.len(), 3);
    for request in redirected {
        assert_eq!((request.header("authorization"), request.header("x-key")), ("", ""));
    }
}

#[tokio::test]
async fn challenge_of_another_host_is_not_answered() {
    let storage = Registry::with_handler(image(), |_| Some(challenge("Basic realm=\"x\""))).await;
    let port = storage.port();
    let registry = Registry::with_handler(image(), move |request| {
        Some(redirect(&format!("http://cdn.test:{port}{}?signature=secret", request.path)))
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let text = format!("server = \"http://registry.test:{}\"", registry.port());
    let mut options = options_with_hosts(dir.path(), "registry.test", &text);
    options.credentials = vec![password()];
    let error = pull("registry.test/team/app:1", &options, &Arc::new(MemoryStore::default())).await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::Unauthorized);
    assert!(!error.to_string().contains("secret"), "{error}");
    assert_eq!(storage.requests().len(), 1);
    assert_eq!(storage.requests()[0].header("authorization"), "");
}

#[tokio::test]
async fn endless_redirects_end() {
    let registry = Registry::with_handler(image(), |request| Some(redirect(&format!("{}x", request.path)))).await;
    let error = pull_with(&registry, &[]).await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::UnexpectedResponse);
    assert!(error.to_string().ends_with("stopped after 10 redirects"), "{error}");
    assert_eq!(registry.requests().len(), 11);
}
