//! HTTP requests and responses.

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::BodyExt;
use kube::{
    Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::{io::Read, path::Path, time::Duration};
use tokio::time::timeout;

/// Timeout for the start of a response, and for its end except for watches.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Duration of a watch.
const WATCH_DURATION: Duration = Duration::from_millis(1500);

/// A client of the server.
#[derive(Clone)]
pub(crate) struct Client(kube::Client);

/// A request.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiRequest {
    pub(crate) method: &'static str,
    /// Path with query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    /// Whether the response may be endless.
    pub(crate) watches: bool,
}

/// A response.
#[derive(Debug, Default)]
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Client {
    /// Returns a client for the current context of a kubeconfig.
    pub(crate) async fn of(kubeconfig: &Path) -> Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig).with_context(|| kubeconfig.display().to_string())?;
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        // Errors are results too, so that requests are not retried after a 429.
        config.default_retry = false;
        Ok(Self(kube::Client::try_from(config)?))
    }

    /// Sends a request and returns the response, with its body unless that is endless.
    ///
    /// # Errors
    /// When the response does not arrive in time, or when the connection is closed before.
    pub(crate) async fn send(&self, api_request: &ApiRequest) -> Result<ApiResponse> {
        let response =
            timeout(RESPONSE_TIMEOUT, self.0.send(api_request.request()?)).await.context("response timeout")??;
        let (parts, mut body) = response.into_parts();
        let mut read = BytesMut::new();
        let limit = if api_request.watches { WATCH_DURATION } else { RESPONSE_TIMEOUT };
        let reading = async {
            while let Some(frame) = body.frame().await {
                if let Some(data) = frame.context("the connection was closed within the response")?.data_ref() {
                    read.extend_from_slice(data);
                }
            }
            anyhow::Ok(())
        };
        match timeout(limit, reading).await {
            Ok(ended) => ended?,
            Err(_) if api_request.watches => {}
            Err(late) => return Err(late).context("timeout of the response body"),
        }
        let packed = parts.headers.get("content-encoding").is_some_and(|e| e == "gzip");
        // The body of a watch may be cut off.
        let body = if packed && !api_request.watches { unpacked(&read)? } else { read.freeze() };
        Ok(ApiResponse { status: parts.status.as_u16(), headers: parts.headers, body })
    }
}

fn unpacked(body: &[u8]) -> Result<Bytes> {
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(body).read_to_end(&mut unpacked).context("failed to decompress the response")?;
    Ok(unpacked.into())
}

impl ApiRequest {
    /// Returns whether this is a valid HTTP request.
    pub(crate) fn is_possible(&self) -> bool {
        self.request().is_ok()
    }

    fn request(&self) -> Result<Request<Body>> {
        let mut request = Request::builder().method(self.method).uri(&self.path);
        for (name, value) in &self.headers {
            request = request.header(*name, HeaderValue::from_bytes(value)?);
        }
        Ok(request.body(Body::from(self.body.clone()))?)
    }

    /// Returns a curl command of the request; `$API` is the address of a `kubectl proxy`.
    pub(crate) fn curl(&self) -> String {
        let mut line = format!("curl -sS -i -X {}", self.method);
        for (name, value) in &self.headers {
            line.push_str(&format!(" -H {}", quoted(&[name.as_bytes(), b": ", value].concat())));
        }
        if !self.body.is_empty() {
            line = format!("printf '{}' | {line} --data-binary @-", printed(&self.body));
        }
        format!("{line} \"$API\"{}", quoted(self.path.as_bytes()))
    }
}

/// Escapes bytes for `printf`, because arguments cannot have zero bytes.
fn printed(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'%' => text.push_str("%%"),
            b' '..=b'~' if !b"'\\".contains(byte) => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text
}

/// Quotes bytes for Bash, including non-printable ones.
fn quoted(bytes: &[u8]) -> String {
    let mut text = "$'".to_owned();
    for byte in bytes {
        match byte {
            b'\'' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::ApiRequest;

    #[test]
    fn curl_command_repeats_the_request() {
        let api_request = ApiRequest {
            method: "PUT",
            path: "/api/v1/x?a='".into(),
            headers: vec![("accept", b"*/*".to_vec())],
            body: b"{\"a\": \"\n\xff\"}".to_vec(),
            watches: false,
        };
        let expected = r#"printf '{"a": "\012\377"}' | curl -sS -i -X PUT -H $'accept: */*' --data-binary @- "$API"$'/api/v1/x?a=\''"#;
        assert_eq!(api_request.curl(), expected);
    }
}
