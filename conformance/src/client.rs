//! One request and its answer, as they are on the wire.

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

/// No answer takes half as long, if it is no watch.
const LONGEST: Duration = Duration::from_secs(30);

/// The ways to a server: as the kubeconfig's user, and as nobody in particular.
#[derive(Clone)]
pub(crate) struct Client {
    user: kube::Client,
    nobody: kube::Client,
}

/// What is sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) identity: Option<Identity>,
}

/// What came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Client {
    /// A client for the current context of this kubeconfig.
    pub(crate) async fn of(kubeconfig: &Path) -> Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig).with_context(|| kubeconfig.display().to_string())?;
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        // A refusal is an answer, also one that says when to ask again.
        config.default_retry = false;
        let mut nobody = config.clone();
        nobody.auth_info = AuthInfo::default();
        Ok(Self { user: kube::Client::try_from(config)?, nobody: kube::Client::try_from(nobody)? })
    }

    /// The answer with its whole body, unpacked.
    pub(crate) async fn ask(&self, sent: Sent) -> Result<Answer> {
        let answer = async {
            let (parts, body) = self.open(sent).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            anyhow::Ok((parts, body))
        };
        let (parts, body) = tokio::time::timeout(LONGEST, answer).await.context("no answer in time")??;
        let packed = parts.headers.get("content-encoding").is_some_and(|e| e == "gzip");
        let body = if packed { unpack(&body)? } else { body };
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// The answer as it begins.
    pub(crate) async fn open(&self, sent: Sent) -> Result<Response<Body>> {
        let mut request = Request::builder().method(sent.method).uri(&sent.path);
        for (name, value) in &sent.headers {
            request = request.header(name, value);
        }
        let client = match &sent.identity {
            None => &self.user,
            Some(Identity::Anonymous) => &self.nobody,
            Some(Identity::Token(token)) => {
                request = request.header("Authorization", format!("Bearer {token}"));
                &self.nobody
            }
            Some(Identity::User(user)) => {
                request = request.header("Impersonate-User", user);
                &self.user
            }
        };
        Ok(client.send(request.body(Body::from(sent.body))?).await?)
    }
}

impl Answer {
    /// The body as JSON, or else as a string.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&self.body).into_owned()))
    }

    /// The values of a header, joined as HTTP allows it.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let all: Vec<_> = self.headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes())).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

fn unpack(body: &[u8]) -> Result<Bytes> {
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(body).read_to_end(&mut unpacked).context("what says that it is gzip is not")?;
    Ok(unpacked.into())
}
