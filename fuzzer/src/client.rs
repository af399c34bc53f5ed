//! One request and its answer, as they are on the wire.

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

/// No answer may begin later, and none but a watch may end later.
pub(crate) const LONGEST: Duration = Duration::from_secs(10);
/// How long a watch is listened to.
const LISTEN: Duration = Duration::from_millis(1500);

/// The way to a server.
#[derive(Clone)]
pub(crate) struct Client(kube::Client);

/// What is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) method: &'static str,
    /// With its query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    /// Whether the answer may go on for ever.
    pub(crate) watches: bool,
}

/// What came.
#[derive(Debug, Default)]
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
        Ok(Self(kube::Client::try_from(config)?))
    }

    /// The answer, with its body unless that goes on for ever.
    ///
    /// # Errors
    /// When it does not come in time, or when the connection ends before.
    pub(crate) async fn ask(&self, sent: &Sent) -> Result<Answer> {
        let response = timeout(LONGEST, self.0.send(sent.request()?)).await.context("no answer in time")??;
        let (parts, mut body) = response.into_parts();
        let mut read = BytesMut::new();
        let limit = if sent.watches { LISTEN } else { LONGEST };
        let reading = async {
            while let Some(frame) = body.frame().await {
                if let Some(data) = frame.context("the connection ended within the answer")?.data_ref() {
                    read.extend_from_slice(data);
                }
            }
            anyhow::Ok(())
        };
        match timeout(limit, reading).await {
            Ok(ended) => ended?,
            Err(_) if sent.watches => {}
            Err(late) => return Err(late).context("the answer did not end in time"),
        }
        let packed = parts.headers.get("content-encoding").is_some_and(|e| e == "gzip");
        // A watch that is listened to no longer ends in the middle.
        let body = if packed && !sent.watches { unpacked(&read)? } else { read.freeze() };
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }
}

fn unpacked(body: &[u8]) -> Result<Bytes> {
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(body).read_to_end(&mut unpacked).context("what says that it is gzip is not")?;
    Ok(unpacked.into())
}

impl Sent {
    /// Whether HTTP knows such a request at all.
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

    /// The same request for a shell; `$API` is the address of a `kubectl proxy`.
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

/// What makes `printf` print any bytes: an argument cannot hold all of them.
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

/// In Bash's form, for what is no plain text too.
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
    use super::Sent;

    #[test]
    fn a_request_can_be_made_again_in_a_shell() {
        let sent = Sent {
            method: "PUT",
            path: "/api/v1/x?a='".into(),
            headers: vec![("accept", b"*/*".to_vec())],
            body: b"{\"a\": \"\n\xff\"}".to_vec(),
            watches: false,
        };
        let expected = r#"printf '{"a": "\012\377"}' | curl -sS -i -X PUT -H $'accept: */*' --data-binary @- "$API"$'/api/v1/x?a=\''"#;
        assert_eq!(sent.curl(), expected);
    }
}
