//! Tests of the messages that users see.

use super::{
    image::{Image, REPOSITORY, noise},
    memory_store::MemoryStore,
    options, options_with_hosts, pull,
    registry::{Contents, Registry, reply},
};
use crate::{Digest, PullErrorKind, PullOptions};
use http::StatusCode;
use std::{net::SocketAddr, sync::Arc};

async fn check(reference: &str, options: &PullOptions, kind: PullErrorKind, message: &str) {
    let error = pull(reference, options, &Arc::new(MemoryStore::default())).await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
}

#[tokio::test]
async fn missing_image_is_not_found() {
    let registry = Registry::serve(Contents::new()).await;
    let reference = registry.reference();
    let message = format!(
        "failed to pull and unpack image \"{reference}\": failed to resolve reference \"{reference}\": {reference}: \
         not found"
    );
    check(&reference, &options(), PullErrorKind::NotFound, &message).await;
}

#[tokio::test]
async fn missing_layer_is_not_found() {
    let image = Image::new(&[noise(1, 10)]);
    let path = format!("{REPOSITORY}/blobs/{}", Digest::of(&image.layers[0]));
    let mut contents = image.tagged();
    contents.remove(&path);
    let registry = Registry::serve(contents).await;
    let reference = registry.reference();
    let message = format!(
        "failed to pull and unpack image \"{reference}\": failed to copy: content at https://{}{path} not found: not \
         found",
        registry.address
    );
    check(&reference, &options(), PullErrorKind::NotFound, &message).await;
}

#[tokio::test]
async fn invalid_reference_is_reported() {
    let message = "failed to parse image reference \"a b\": invalid reference format";
    check("a b", &options(), PullErrorKind::InvalidReference, message).await;
}

#[tokio::test]
async fn unknown_host_is_a_failed_lookup() {
    let message = "failed to pull and unpack image \"unknown.test/a:latest\": failed to resolve reference \
                   \"unknown.test/a:latest\": failed to do request: Get \
                   \"https://unknown.test/v2/a/manifests/latest\": dial tcp: lookup unknown.test: no such host";
    check("unknown.test/a", &options(), PullErrorKind::NameResolution, message).await;
}

#[tokio::test]
async fn closed_port_refuses_the_connection() {
    // Nobody listens there while the port is taken.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = socket.local_addr().unwrap();
    let message = format!(
        "failed to pull and unpack image \"{address}/a:1\": failed to resolve reference \"{address}/a:1\": failed to \
         do request: Get \"https://{address}/v2/a/manifests/1\": dial tcp {address}: connect: connection refused"
    );
    check(&format!("{address}/a:1"), &options(), PullErrorKind::ConnectionRefused, &message).await;
}

#[tokio::test]
async fn status_is_reported_with_the_registrys_errors() {
    let body = r#"{"errors":[{"code":"DENIED","message":"not you"}]}"#;
    for (status, kind) in [
        (StatusCode::FORBIDDEN, PullErrorKind::Unauthorized),
        (StatusCode::TOO_MANY_REQUESTS, PullErrorKind::TooManyRequests),
        (StatusCode::IM_A_TEAPOT, PullErrorKind::UnexpectedResponse),
        (StatusCode::BAD_GATEWAY, PullErrorKind::UnexpectedResponse),
        (StatusCode::NOT_MODIFIED, PullErrorKind::UnexpectedResponse),
    ] {
        let registry = Registry::with_handler(Contents::new(), move |_| Some(reply(status, body))).await;
        let reference = registry.reference();
        let details = if status == StatusCode::NOT_MODIFIED { "" } else { "\ndenied: not you" };
        let message = format!(
            "failed to pull and unpack image \"{reference}\": failed to resolve reference \"{reference}\": unexpected \
             status from GET request to https://{}/v2/team/app/manifests/1: {status}{details}",
            registry.address
        );
        check(&reference, &options(), kind, &message).await;
    }
}

#[tokio::test]
async fn invalid_hosts_file_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let options = options_with_hosts(dir.path(), "registry.test", "server = \n");
    let error = pull("registry.test/a", &options, &Arc::new(MemoryStore::default())).await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::InvalidConfiguration);
    let place = format!("failed to decode {}: line 1: ", dir.path().join("registry.test/hosts.toml").display());
    assert!(error.to_string().contains(&place), "{error}");
}
