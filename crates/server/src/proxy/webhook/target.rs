//! Target of a webhook: `clientConfig`.

use base64::{DecodeError, Engine, engine::general_purpose::STANDARD};
use http::{Uri, uri::InvalidUri};
use serde_json::Value;
use std::num::TryFromIntError;

/// Error of an invalid `clientConfig`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebhookTargetError {
    #[error("webhook configuration must have either service or URL")]
    NoTarget,
    #[error("Unparsable URL: {0}")]
    Url(#[from] InvalidUri),
    #[error(transparent)]
    CaBundle(#[from] DecodeError),
    #[error(transparent)]
    Port(#[from] TryFromIntError),
}

/// Target of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebhookTarget {
    url: String,
    peer: Peer,
}

/// Key of pooled connections: Service and certificate authorities.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    /// Certificates in PEM; empty for the system's roots.
    pub(super) ca_bundle: Vec<u8>,
    pub(super) service: Option<Service>,
}

/// A Service, and one of its ports.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Service {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) port: u16,
}

impl WebhookTarget {
    /// Reads `clientConfig`.
    ///
    /// # Errors
    /// When the configuration is invalid.
    pub(crate) fn parse(config: &Value) -> Result<Self, WebhookTargetError> {
        let ca_bundle = STANDARD.decode(config["caBundle"].as_str().unwrap_or(""))?;
        let service = &config["service"];
        if service.is_null() {
            let url = config["url"].as_str().unwrap_or("");
            let parsed: Uri = url.parse()?;
            let authority = parsed.authority().ok_or(WebhookTargetError::NoTarget)?;
            let url = format!("https://{authority}{}", parsed.path());
            return Ok(Self { url, peer: Peer { ca_bundle, service: None } });
        }
        let text = |field: &str| service[field].as_str().unwrap_or("").to_owned();
        let port = u16::try_from(service["port"].as_u64().unwrap_or(443))?;
        let service = Service { namespace: text("namespace"), name: text("name"), port };
        let path = config["service"]["path"].as_str().unwrap_or("").trim_start_matches('/');
        let url = format!("https://{}.{}.svc:{port}/{path}", service.name, service.namespace);
        url.parse::<Uri>()?;
        Ok(Self { url, peer: Peer { ca_bundle, service: Some(service) } })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn webhook_target_is_a_url_or_a_service() {
        let check = |config: Value, url: &str| assert_eq!(WebhookTarget::parse(&config).unwrap().url(), url);
        check(json!({"url": "https://example.com/path"}), "https://example.com/path");
        check(json!({"url": "https://127.0.0.1:9443"}), "https://127.0.0.1:9443/");
        check(json!({"service": {"name": "s", "namespace": "n"}}), "https://s.n.svc:443/");
        check(
            json!({"service": {"name": "s", "namespace": "n", "port": 9443, "path": "/a/b"}}),
            "https://s.n.svc:9443/a/b",
        );
        for invalid in [json!({}), json!({"url": "https://"}), json!({"url": "https://a", "caBundle": "%"})] {
            assert!(WebhookTarget::parse(&invalid).is_err(), "{invalid}");
        }
    }
}
