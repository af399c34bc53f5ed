//! In-process client transport: components of this process call the server without socket and TLS, with the same semantics.

use crate::ApiServer;
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Request, Response, header};
use request::UserInfo;
use response::{Body, BoxError};
use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

/// A `tower::Service` whose requests are authenticated as one user.
#[derive(Clone)]
pub struct InProcessService {
    /// Shared: each request clones the service.
    server: Arc<ApiServer>,
    user: UserInfo,
    /// Default user agent, from which the field manager is derived.
    agent: HeaderValue,
}

impl ApiServer {
    /// Returns a service for a component of this process.
    #[must_use]
    pub fn local(&self, user: UserInfo) -> InProcessService {
        let agent = HeaderValue::from_str(&user_agent(&user.name)).unwrap_or(HeaderValue::from_static("unknown"));
        InProcessService { server: Arc::new(self.clone()), user, agent }
    }
}

impl<B> tower::Service<Request<B>> for InProcessService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let this = self.clone();
        request.headers_mut().entry(header::USER_AGENT).or_insert_with(|| this.agent.clone());
        async move { Ok(this.server.handle(Some(this.user), request).await) }.boxed()
    }
}

/// User agent of the upstream program that has this user.
fn user_agent(user: &str) -> String {
    match user.strip_prefix("system:") {
        Some(node) if node.starts_with("node:") => "kubelet".to_owned(),
        Some(account) if account.starts_with("serviceaccount:kube-system:") => {
            format!("kube-controller-manager/{user}")
        }
        Some(component) => component.to_owned(),
        None => user.to_owned(),
    }
}
