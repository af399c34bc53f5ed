//! Requests to a host, with redirects. What identifies the client is sent to the host only, never to another one.

use crate::{
    PullError, PullErrorKind, Timeouts,
    client::{HttpClient, display},
    connector::{Connector, Network},
    hosts::{RegistryHost, Scheme, TlsFiles, is_loopback},
    tls_config,
};
use bytes::Bytes;
use fluent_uri::UriRef;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Maximum number of redirects, as Go's.
const MAX_REDIRECTS: usize = 10;

/// Clients for a host, and for the hosts that it refers to.
pub(crate) struct HostClient {
    pub(crate) host: RegistryHost,
    pub(crate) timeouts: Timeouts,
    own: HttpClient,
    /// Without client certificates.
    foreign: HttpClient,
    /// Whether the host turned out to speak no TLS.
    plain_text: Arc<AtomicBool>,
}

/// Response, and where it came from.
pub(crate) struct Received {
    pub(crate) response: Response<Incoming>,
    pub(crate) uri: Uri,
    /// Whether it came from the host itself.
    pub(crate) is_own: bool,
}

impl HostClient {
    /// Creates clients. Reads certificates, which blocks.
    ///
    /// # Errors
    /// If a certificate cannot be read.
    pub(crate) fn new(network: &Network, host: RegistryHost, timeouts: Timeouts) -> Result<Self, PullError> {
        let plain_text = Arc::new(AtomicBool::new(false));
        let may_be_plain = host.scheme == Scheme::HttpsOrHttp;
        let dial_timeout = host.dial_timeout.unwrap_or(timeouts.dial);
        let flag = may_be_plain.then(|| Arc::clone(&plain_text));
        let own = Connector::new(network, tls_config::client_config(&host.tls, true)?, dial_timeout, flag);
        // That certificates of a local registry are not verified says nothing about other hosts.
        let skip_verify = host.tls.skip_verify.filter(|_| !is_loopback(host.authority.host()));
        let files = TlsFiles { skip_verify, ..host.tls.clone() };
        let foreign = Connector::new(network, tls_config::client_config(&files, false)?, timeouts.dial, None);
        let (own, foreign) = (HttpClient::new(network, own, timeouts), HttpClient::new(network, foreign, timeouts));
        Ok(Self { host, timeouts, own, foreign, plain_text })
    }

    /// Returns the URL of a path below the API's root.
    ///
    /// # Errors
    /// If the host's path is invalid.
    pub(crate) fn uri(&self, path: &str, query: &str) -> Result<Uri, PullError> {
        let scheme = if self.host.scheme == Scheme::Http { "http" } else { "https" };
        let uri = format!("{scheme}://{}{}{path}{query}", self.host.authority, self.host.path);
        uri.parse().map_err(|error| PullError::new(PullErrorKind::InvalidConfiguration, format!("{uri:?}: {error}")))
    }

    /// Returns whether requests to the host are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.host.scheme != Scheme::Http && !self.plain_text.load(Ordering::Relaxed)
    }

    /// Sends a GET request to the host, and follows redirects. `is_verified` tells whether the response is compared
    /// with a digest: only then it may come over an unencrypted connection instead of an encrypted one.
    ///
    /// # Errors
    /// If a connection fails, or a redirect is invalid. A status is no error.
    pub(crate) async fn get(
        &self,
        uri: Uri,
        headers: &HeaderMap,
        authorization: Option<&HeaderValue>,
        is_verified: bool,
    ) -> Result<Received, PullError> {
        let mut uri = uri;
        let mut is_own = true;
        for _ in 0..=MAX_REDIRECTS {
            let mut headers = headers.clone();
            if is_own {
                headers.extend(self.host.headers.clone());
            }
            if let Some(authorization) = authorization.filter(|_| is_own) {
                headers.insert(header::AUTHORIZATION, authorization.clone());
            }
            let client = if is_own { &self.own } else { &self.foreign };
            let response = client.send(Method::GET, &uri, headers, Bytes::new()).await?;
            let Some(target) = redirect_target(&response, &uri)? else {
                return Ok(Received { response, uri, is_own });
            };
            let is_downgrade = target.scheme_str() != Some("https") && uri.scheme_str() == Some("https");
            if is_downgrade && !is_verified && (!is_own || self.is_encrypted()) {
                return Err(redirect_error(&uri, "refused a redirect from HTTPS to HTTP"));
            }
            is_own &= same_origin(&uri, &target);
            uri = target;
        }
        Err(redirect_error(&uri, "stopped after 10 redirects"))
    }

    /// Sends a request to the token endpoint, which may be another host, without following redirects.
    ///
    /// # Errors
    /// If the connection fails. A status is no error.
    pub(crate) async fn send_to_token_endpoint(
        &self,
        method: Method,
        uri: &Uri,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, PullError> {
        let is_own = same_origin(uri, &self.uri("", "")?);
        if is_own {
            let configured = self.host.headers.iter().filter(|(name, _)| *name != header::AUTHORIZATION);
            headers.extend(configured.map(|(name, value)| (name.clone(), value.clone())));
        }
        let client = if is_own { &self.own } else { &self.foreign };
        client.send(method, uri, headers, body).await
    }
}

/// Returns whether two URLs have the same scheme, host and port.
fn same_origin(a: &Uri, b: &Uri) -> bool {
    let port = |uri: &Uri| uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    a.scheme() == b.scheme()
        && port(a) == port(b)
        && a.host().zip(b.host()).is_some_and(|(a, b)| a.eq_ignore_ascii_case(b))
}

/// Returns the target of a redirect; `None` if the response is none.
fn redirect_target(response: &Response<Incoming>, uri: &Uri) -> Result<Option<Uri>, PullError> {
    let is_redirect = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let Some(location) = response.headers().get(header::LOCATION).filter(|_| is_redirect) else { return Ok(None) };
    let target = location.to_str().ok().and_then(|location| resolve(location, uri));
    target.map(Some).ok_or_else(|| redirect_error(uri, "failed to parse Location header"))
}

/// Resolves a redirect. Storage services sign URLs exactly as they are, so an absolute one is not changed.
fn resolve(location: &str, base: &Uri) -> Option<Uri> {
    let target: Uri = if location.starts_with("https://") || location.starts_with("http://") {
        location.parse().ok()?
    } else {
        let base = base.to_string();
        let base = fluent_uri::Uri::parse(base.as_str()).ok()?;
        UriRef::parse(location).ok()?.resolve_against(&base).ok()?.as_str().parse().ok()?
    };
    let is_http = matches!(target.scheme_str(), Some("http" | "https"));
    let authority = target.authority().filter(|authority| !authority.as_str().contains('@'));
    (is_http && authority.is_some()).then_some(target)
}

fn redirect_error(uri: &Uri, problem: &str) -> PullError {
    let message = format!("failed to do request: Get \"{}\": {problem}", display(uri));
    PullError::new(PullErrorKind::UnexpectedResponse, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_resolved() {
        let base: Uri = "https://r.test:5000/v2/a/blobs/b?c=d".parse().unwrap();
        for (location, expected) in [
            ("https://cdn.test/x?sig=a%2Fb|c", Some("https://cdn.test/x?sig=a%2Fb|c")),
            ("/y?z", Some("https://r.test:5000/y?z")),
            ("../z", Some("https://r.test:5000/v2/a/z")),
            ("//cdn.test/x", Some("https://cdn.test/x")),
            ("ftp://cdn.test/x", None),
            ("file:///etc/passwd", None),
            ("https://u:p@cdn.test/x", None),
            ("https://", None),
            ("http:x", None),
        ] {
            let target = resolve(location, &base).map(|uri| uri.to_string());
            assert_eq!(target.as_deref(), expected, "{location}");
        }
    }

    #[test]
    fn origins_differ_by_scheme_host_and_port() {
        let same = |a: &str, b: &str| same_origin(&a.parse().unwrap(), &b.parse().unwrap());
        assert!(same("https://r.test/a", "https://R.test:443/b"));
        assert!(same("http://r.test:80", "http://r.test"));
        assert!(!same("https://r.test", "http://r.test"));
        assert!(!same("https://r.test", "https://r.test:5000"));
        assert!(!same("https://r.test", "https://r.test.evil"));
    }
}
