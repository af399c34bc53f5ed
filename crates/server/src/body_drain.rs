//! Bodies that nobody reads to their end: what is left of them is read and thrown away, for a while.
//!
//! A request can be answered before its body is read, because its path leads nowhere or because it is too large. Ending the
//! connection then would take the answer from clients that are still sending, and with HTTP/1.1 the client's next request,
//! which is on its way over a connection that it believes to be good.

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

/// How much is thrown away at most, in bytes, and for how long. Who sends more loses the connection.
const MOST: usize = 64 << 20;
const LONGEST: Duration = Duration::from_secs(5);

/// The body of a request, which may be dropped at any time.
pub(crate) struct Dropped(Option<Incoming>);

impl Dropped {
    pub(crate) fn later(body: Incoming) -> Self {
        Self(Some(body))
    }
}

impl Body for Dropped {
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

impl Drop for Dropped {
    fn drop(&mut self) {
        let rest = self.0.take().filter(|body| !body.is_end_stream());
        if let (Some(rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(LONGEST, throw_away(rest)));
        }
    }
}

async fn throw_away(mut body: Incoming) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > MOST {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Dropped;
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use hyper::{body::Incoming, server::conn::http1, service::service_fn};
    use hyper_util::rt::TokioIo;
    use std::convert::Infallible;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Answers at once, and reads nothing.
    async fn refuse(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        drop(request.map(Dropped::later));
        Ok(Response::new(Full::from("no")))
    }

    #[tokio::test]
    async fn a_connection_stays_although_a_body_was_not_read() {
        let (client, server) = tokio::io::duplex(4096);
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(server), service_fn(refuse)));
        let (mut answers, mut requests) = tokio::io::split(client);
        let asked = tokio::spawn(async move {
            for _ in 0..3 {
                requests.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5000000\r\n\r\n").await?;
                requests.write_all(&vec![b'x'; 5_000_000]).await?;
            }
            requests.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await
        });
        let mut text = String::new();
        answers.read_to_string(&mut text).await.unwrap();
        asked.await.unwrap().unwrap();
        assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 4, "{text}");
    }
}
