//! The distribution API of a host.

use crate::{
    Digest, PullError, PullErrorKind,
    authorizer::Authorizer,
    client::{Body, display, unexpected_status},
    host_client::{HostClient, Received},
    manifest::ACCEPT_MANIFEST,
    reference::Version,
    retries::Retries,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

/// Maximum number of challenges to a request that are answered.
const MAX_CHALLENGES: u32 = 3;
const DOCKER_CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// A repository at a host.
pub(crate) struct Endpoint {
    pub(crate) http: HostClient,
    pub(crate) authorizer: Authorizer,
    /// Path below the API's root, for example `/library/busybox`.
    pub(crate) path: String,
    /// Query that names the registry to a mirror.
    pub(crate) query: String,
}

/// Content to fetch.
pub(crate) enum Content<'a> {
    Manifest(&'a Version),
    Blob(&'a Digest),
}

/// Manifest, index or config.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) content: Vec<u8>,
    pub(crate) content_type: String,
    /// Computed from the content.
    pub(crate) digest: Digest,
}

impl Content<'_> {
    fn path(&self) -> String {
        match self {
            Self::Manifest(Version::Tag(tag)) => format!("/manifests/{tag}"),
            Self::Manifest(Version::Digest(digest)) => format!("/manifests/{digest}"),
            Self::Blob(digest) => format!("/blobs/{digest}"),
        }
    }

    fn digest(&self) -> Option<&Digest> {
        match self {
            Self::Manifest(Version::Tag(_)) => None,
            Self::Manifest(Version::Digest(digest)) => Some(digest),
            Self::Blob(digest) => Some(digest),
        }
    }
}

impl Endpoint {
    /// Requests content from an offset, and answers challenges.
    ///
    /// # Errors
    /// If the connection fails, or the credentials are refused. Other statuses are no errors.
    pub(crate) async fn get(&self, content: &Content<'_>, offset: u64) -> Result<Received, PullError> {
        let uri = self.http.uri(&format!("{}{}", self.path, content.path()), &self.query)?;
        let mut headers = HeaderMap::new();
        let accept = if matches!(content, Content::Manifest(_)) { ACCEPT_MANIFEST } else { "*/*" };
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        if offset > 0
            && let Ok(range) = HeaderValue::from_str(&format!("bytes={offset}-"))
        {
            headers.insert(header::RANGE, range);
        }
        let mut answered = 0;
        loop {
            let authorization = self.authorizer.header(&self.http).await?;
            let is_verified = content.digest().is_some();
            let received = self.http.get(uri.clone(), &headers, authorization.as_ref(), is_verified).await?;
            let is_challenge = received.is_own && received.response.status() == StatusCode::UNAUTHORIZED;
            if !is_challenge || answered == MAX_CHALLENGES {
                return Ok(received);
            }
            let is_renewed = answered > 0;
            if !self.authorizer.answer(&self.http, &received, authorization.as_ref(), is_renewed).await? {
                return Ok(received);
            }
            answered += 1;
        }
    }

    /// Fetches a manifest or a config of at most `limit` bytes, and verifies its digest.
    ///
    /// # Errors
    /// If the host does not have it, or serves something else.
    pub(crate) async fn fetch(
        &self,
        content: &Content<'_>,
        name: &str,
        limit: u64,
        is_last_host: bool,
    ) -> Result<Fetched, PullError> {
        let mut retries = Retries::new(self.http.timeouts, is_last_host);
        loop {
            let deadline = self.http.timeouts.document;
            let fetched = tokio::time::timeout(deadline, self.fetch_once(content, name, limit)).await;
            let error = match fetched {
                Ok(Ok(fetched)) => return Ok(fetched),
                Ok(Err(error)) => error,
                Err(_) => {
                    let message = format!("failed to fetch {name} within {} s", deadline.as_secs_f64());
                    return Err(PullError::new(PullErrorKind::Timeout, message));
                }
            };
            retries.wait(error).await?;
        }
    }

    async fn fetch_once(&self, content: &Content<'_>, name: &str, limit: u64) -> Result<Fetched, PullError> {
        let received = self.check(self.get(content, 0).await?).await?;
        let response = received.response;
        let header = |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
        let content_type = header(header::CONTENT_TYPE).unwrap_or_default().to_owned();
        let announced = header(DOCKER_CONTENT_DIGEST).and_then(|text| text.parse::<Digest>().ok());
        let body = Body::new(response, self.http.timeouts).read(name, limit).await?;
        let digest = Digest::of(&body);
        match content.digest().copied().or(announced) {
            Some(expected) if expected != digest => Err(digest_mismatch(&digest, &expected)),
            _ => Ok(Fetched { content: body, content_type, digest }),
        }
    }

    /// Turns other statuses than 200 and 206 into errors.
    pub(crate) async fn check(&self, received: Received) -> Result<Received, PullError> {
        let status = received.response.status();
        if status == StatusCode::NOT_FOUND {
            let message = format!("content at {} not found: not found", display(&received.uri));
            return Err(PullError::new(PullErrorKind::NotFound, message));
        }
        if !matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return Err(unexpected_status(&Method::GET, &received.uri, received.response, self.http.timeouts).await);
        }
        let encoding = received.response.headers().get(header::CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| encoding != "identity" && !encoding.is_empty()) {
            let message = format!("unsupported Content-Encoding of {}", display(&received.uri));
            return Err(PullError::new(PullErrorKind::UnexpectedResponse, message));
        }
        Ok(received)
    }
}

/// Returns the error of content with another digest, with containerd's message.
pub(crate) fn digest_mismatch(found: &Digest, expected: &Digest) -> PullError {
    let message = format!("unexpected commit digest {found}, expected {expected}: failed precondition");
    PullError::new(PullErrorKind::DigestMismatch, message)
}
