//! HTTP requests and responses.

use crate::case::Identity;
use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use kube::{
    Config,
    client::Body,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;
use std::{io::Read, path::Path, time::Duration};

/// Response timeout, except for watches.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Clients of a server: as the kubeconfig's user, and anonymous.
#[derive(Clone)]
pub(crate) struct Client {
    user: kube::Client,
    anonymous: kube::Client,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequest {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) identity: Option<Identity>,
}

/// A response.
#[derive(Debug)]
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
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        Ok(Self { user: kube::Client::try_from(config)?, anonymous: kube::Client::try_from(anonymous)? })
    }

    /// Sends a request and returns the response with its whole decompressed body.
    pub(crate) async fn send(&self, api_request: ApiRequest) -> Result<ApiResponse> {
        let response = async {
            let (parts, body) = self.open(api_request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            anyhow::Ok((parts, body))
        };
        let (parts, body) = tokio::time::timeout(RESPONSE_TIMEOUT, response).await.context("response timeout")??;
        let packed = parts.headers.get("content-encoding").is_some_and(|e| e == "gzip");
        let body = if packed { unpack(&body)? } else { body };
        Ok(ApiResponse { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// Sends a request and returns the response with a streaming body.
    pub(crate) async fn open(&self, api_request: ApiRequest) -> Result<Response<Body>> {
        let mut request = Request::builder().method(api_request.method).uri(&api_request.path);
        for (name, value) in &api_request.headers {
            request = request.header(name, value);
        }
        let client = match &api_request.identity {
            None => &self.user,
            Some(Identity::Anonymous) => &self.anonymous,
            Some(Identity::Token(token)) => {
                request = request.header("Authorization", format!("Bearer {token}"));
                &self.anonymous
            }
            Some(Identity::User(user)) => {
                request = request.header("Impersonate-User", user);
                &self.user
            }
        };
        Ok(client.send(request.body(Body::from(api_request.body))?).await?)
    }
}

impl ApiResponse {
    /// Returns the body as JSON, or else as a string.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&self.body).into_owned()))
    }

    /// Returns the values of a header, joined by commas.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let all: Vec<_> = self.headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes())).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

fn unpack(body: &[u8]) -> Result<Bytes> {
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(body).read_to_end(&mut unpacked).context("failed to decompress the response")?;
    Ok(unpacked.into())
}
