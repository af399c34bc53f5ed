//! Draining of request bodies that handlers do not read to the end.
//!
//! A request can be answered before its body is read, because its path does not exist or because the body is too large.
//! Closing the connection then would lose the response for clients that are still sending, and with HTTP/1.1 the client's
//! next request on the same connection. So the rest of the body is read and discarded, within limits.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::runtime::Handle;

/// Limits of draining, in bytes and time; beyond them the connection is closed.
const MAX_DRAINED: usize = 64 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The body of a request; the rest is drained when it is dropped.
pub(crate) struct DrainedOnDrop(Option<Incoming>);

impl DrainedOnDrop {
    pub(crate) fn new(body: Incoming) -> Self {
        Self(Some(body))
    }
}

impl Body for DrainedOnDrop {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.0.as_mut().map_or(Poll::Ready(None), |body| Pin::new(body).poll_frame(ctx))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for DrainedOnDrop {
    fn drop(&mut self) {
        let rest = self.0.take().filter(|body| !body.is_end_stream());
        if let (Some(rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(DRAIN_TIMEOUT, drain(rest)));
        }
    }
}

async fn drain(mut body: Incoming) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > MAX_DRAINED {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DrainedOnDrop;
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use hyper::{body::Incoming, server::conn::http1, service::service_fn};
    use hyper_util::rt::TokioIo;
    use std::convert::Infallible;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Responds without reading the body.
    async fn refuse(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        drop(request.map(DrainedOnDrop::new));
        Ok(Response::new(Full::from("no")))
    }

    #[tokio::test]
    async fn connection_stays_open_after_unread_body() {
        let (client, server) = tokio::io::duplex(4096);
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(server), service_fn(refuse)));
        let (mut answers, mut requests) = tokio::io::split(client);
        let sent = tokio::spawn(async move {
            for _ in 0..3 {
                requests.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5000000\r\n\r\n").await?;
                requests.write_all(&vec![b'x'; 5_000_000]).await?;
            }
            requests.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await
        });
        let mut text = String::new();
        answers.read_to_string(&mut text).await.unwrap();
        sent.await.unwrap().unwrap();
        assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 4, "{text}");
    }
}
