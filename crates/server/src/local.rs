//! The server for components of the same process: no socket, no TLS, the same semantics.

use crate::{ApiServer, Body, BoxError, UserInfo};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use std::{
    convert::Infallible,
    task::{Context, Poll},
};

/// A `tower::Service` that answers as this user.
#[derive(Clone)]
pub struct Local {
    server: ApiServer,
    user: UserInfo,
}

impl ApiServer {
    /// A service for a component of this process.
    #[must_use]
    pub fn local(&self, user: UserInfo) -> Local {
        Local { server: self.clone(), user }
    }
}

impl<B> tower::Service<Request<B>> for Local
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

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let this = self.clone();
        async move { Ok(this.server.handle(Some(this.user), request).await) }.boxed()
    }
}
