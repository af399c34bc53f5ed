//! In-memory server for tests, and a client of it.

use crate::{
    ApiServer,
    proxy::node_dialer::{DialedStream, NodeDialer},
};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use request::UserInfo;
use serde_json::Value;
use std::{io, sync::Arc};

struct NoNodes;

impl NodeDialer for NoNodes {
    fn dial<'a>(&'a self, _node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn DialedStream>>> {
        Box::pin(async { Err(io::ErrorKind::NotFound.into()) })
    }
}

/// A response with its whole body.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("")
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }
}

/// Returns a server with the system namespaces.
pub(crate) async fn server() -> ApiServer {
    server_of(store::Store::open(store::MemoryEngine::new(), store::Options::default()).unwrap()).await
}

/// Returns a server of a store.
pub(crate) async fn server_of(store: store::Store) -> ApiServer {
    let server = ApiServer::new(store, Arc::new(NoNodes));
    server.bootstrap().await;
    server
}

/// Builds a request.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(Bytes::copy_from_slice(body))).unwrap()
}

/// Sends a request as administrator and reads the whole response.
pub(crate) async fn send(
    server: &ApiServer,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    send_as(server, UserInfo::component("kubernetes-admin"), method, path, headers, body).await
}

/// Sends a request as a user and reads the whole response.
pub(crate) async fn send_as(
    server: &ApiServer,
    user: UserInfo,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let response = server.handle(Some(user), request(method, path, headers, body)).await;
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { code: head.status.as_u16(), headers: head.headers, body }
}
