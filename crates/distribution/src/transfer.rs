//! Download of a blob into the blob store.

use crate::{
    Digest, LayerProgress, PullError, PullErrorKind,
    client::Body,
    endpoint::{Content, Endpoint},
    host_client::Received,
    manifest::Blob,
    partial_blob::PartialBlob,
    pull::Progress,
    retries::{Retries, broken},
};
use http::{Response, StatusCode, header};
use hyper::body::{Body as _, Incoming};

/// Bytes after which a transfer has made enough progress to get all attempts again. A registry that closes each
/// connection after some bytes cannot make a pull take forever, even if it cannot resume transfers: bytes that are
/// fetched again are no progress.
const PROGRESS: u64 = 1 << 20;

/// Download of a blob from one host.
pub(crate) struct Transfer<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) blob: &'a Blob,
    pub(crate) progress: Progress<'a>,
    pub(crate) is_last_host: bool,
}

/// End of a download.
pub(crate) enum Outcome {
    /// All bytes are here. The flag tells whether they all came from this host, in this download.
    Complete(PartialBlob, bool),
    /// The host failed; another one may continue.
    Failed(PullError),
}

impl Transfer<'_> {
    /// Downloads the missing bytes, in several attempts.
    ///
    /// # Errors
    /// If the storage fails, or nothing arrives in time: then no other host is tried.
    pub(crate) async fn run(&self, partial: PartialBlob) -> Result<Outcome, PullError> {
        let mut partial = partial;
        let mut is_whole = partial.offset() == 0;
        let mut retries = Retries::new(self.endpoint.http.timeouts, self.is_last_host);
        let (mut is_first, mut progress_at) = (true, partial.offset());
        loop {
            if partial.offset() > self.blob.size {
                partial = partial.truncate().await?;
            }
            if partial.offset() == self.blob.size {
                return Ok(Outcome::Complete(partial, is_whole));
            }
            let error = match self.start(partial.offset()).await {
                Ok(Start { response, is_from_offset }) => {
                    if is_first {
                        is_first = false;
                        retries.reset();
                    }
                    if !is_from_offset && partial.offset() > 0 {
                        partial = partial.truncate().await?;
                        is_whole = true;
                    }
                    let (rest, error) = self.receive(response, partial).await?;
                    partial = rest;
                    match error {
                        None => continue,
                        Some(error) if error.kind() == PullErrorKind::Timeout => return Err(error),
                        Some(error) => error,
                    }
                }
                Err(StartError::Range) => {
                    partial = partial.truncate().await?;
                    is_whole = true;
                    self.report(0);
                    broken("the registry cannot resume the transfer")
                }
                Err(StartError::Other(error)) => error,
            };
            if partial.offset().saturating_sub(progress_at) >= PROGRESS {
                progress_at = partial.offset();
                retries.reset();
            }
            if let Err(error) = retries.wait(error).await {
                return Ok(Outcome::Failed(error));
            }
        }
    }

    /// Requests the bytes from an offset.
    async fn start(&self, offset: u64) -> Result<Start, StartError> {
        let content = Content::Blob(&self.blob.digest);
        let received = self.endpoint.get(&content, offset).await.map_err(StartError::Other)?;
        if offset > 0 && received.response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            return Err(StartError::Range);
        }
        let Received { response, .. } = self.endpoint.check(received).await.map_err(StartError::Other)?;
        let is_partial = response.status() == StatusCode::PARTIAL_CONTENT;
        if is_partial && content_range_start(&response) != Some(offset) {
            return Err(StartError::Range);
        }
        let start = if is_partial { offset } else { 0 };
        let announced = response.body().size_hint().exact().map(|size| start.saturating_add(size));
        match announced {
            Some(size) if size != self.blob.size => Err(StartError::Other(self.size_mismatch(size))),
            _ => Ok(Start { response, is_from_offset: is_partial }),
        }
    }

    /// Stores a body. Returns the error that ended it early.
    async fn receive(
        &self,
        response: Response<Incoming>,
        partial: PartialBlob,
    ) -> Result<(PartialBlob, Option<PullError>), PullError> {
        let mut partial = partial;
        let mut body = Body::new(response, self.endpoint.http.timeouts);
        let error = loop {
            match body.next().await {
                Ok(Some(bytes)) => {
                    let size = partial.offset().saturating_add(bytes.len() as u64);
                    if size > self.blob.size {
                        break Some(self.size_mismatch(size));
                    }
                    let is_written;
                    (partial, is_written) = partial.append(&bytes).await?;
                    if is_written {
                        self.report(partial.offset());
                    }
                    if size == self.blob.size {
                        break None;
                    }
                }
                Ok(None) => break Some(broken("unexpected EOF")),
                Err(error) => break Some(error),
            }
        };
        // What is here is kept, also for a later pull.
        partial = partial.flush().await?;
        self.report(partial.offset());
        Ok((partial, error))
    }

    fn report(&self, received: u64) {
        (self.progress)(LayerProgress { digest: self.blob.digest, received, size: self.blob.size });
    }

    fn size_mismatch(&self, size: u64) -> PullError {
        let Blob { digest, size: expected } = self.blob;
        let message =
            format!("{:?} failed size validation: {size} != {expected}: failed precondition", reference_of(digest));
        PullError::new(PullErrorKind::DigestMismatch, message)
    }
}

struct Start {
    response: Response<Incoming>,
    is_from_offset: bool,
}

enum StartError {
    /// The host cannot continue at the offset.
    Range,
    Other(PullError),
}

/// Returns containerd's name of a layer's download.
pub(crate) fn reference_of(digest: &Digest) -> String {
    format!("layer-{digest}")
}

/// Returns the first byte of `Content-Range: bytes FIRST-LAST/SIZE`.
fn content_range_start(response: &Response<Incoming>) -> Option<u64> {
    let range = response.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    range.trim().strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}
