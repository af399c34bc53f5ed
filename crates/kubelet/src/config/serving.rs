//! HTTPS server settings of the KubeletConfiguration.

use super::{InvalidValueError, KubeletConfiguration};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

/// HTTPS server settings of the kubelet.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServingSettings {
    /// Listen address; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Listen port; 0 disables the server (docs/deviations/kubelet.md).
    pub port: u16,
    read_only_port: u16,
    /// Whether files below `/var/log` are served at `/logs/`.
    pub enable_system_log_handler: bool,
}

impl Default for ServingSettings {
    fn default() -> Self {
        Self { address: None, port: 0, read_only_port: 0, enable_system_log_handler: true }
    }
}

impl KubeletConfiguration {
    /// Returns the listen address of the HTTPS server, if enabled.
    #[must_use]
    pub fn endpoint(&self) -> Option<SocketAddr> {
        let address = self.serving.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        (self.serving.port != 0).then(|| SocketAddr::new(address, self.serving.port))
    }

    /// Returns the client CA file (`authentication.x509.clientCAFile`); `None` for the cluster's CA.
    #[must_use]
    pub fn client_ca_file(&self) -> Option<PathBuf> {
        let file = self.rest.get("authentication")?.pointer("/x509/clientCAFile").and_then(Value::as_str)?;
        (!file.is_empty()).then(|| file.into())
    }

    pub(super) fn check_serving(&self) -> Result<(), InvalidValueError> {
        if self.serving.read_only_port == 0 { Ok(()) } else { Err(InvalidValueError::ReadOnlyPort) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{parse, refuses};

    #[test]
    fn https_server_listens_only_if_configured() {
        for (body, endpoint) in [
            ("", None),
            ("port: 0\nreadOnlyPort: 0\naddress: \"\"", None),
            ("address: 127.0.0.1", None),
            ("port: 10250", Some("0.0.0.0:10250")),
            ("port: 1234\naddress: 127.0.0.1", Some("127.0.0.1:1234")),
            ("port: 1234\naddress: \"::\"", Some("[::]:1234")),
        ] {
            let found = parse(body).unwrap().endpoint().map(|endpoint| endpoint.to_string());
            assert_eq!(found.as_deref(), endpoint, "{body}");
        }
        refuses("port: 65536", "cannot be read");
        refuses("address: everywhere", "cannot be read");
        refuses("readOnlyPort: 10255", "readOnlyPort is not served");
    }

    #[test]
    fn client_ca_file_is_configurable() {
        let file = |body: &str| parse(body).unwrap().client_ca_file();
        assert_eq!(file("authentication: {x509: {clientCAFile: /ca.crt}}").unwrap().to_str(), Some("/ca.crt"));
        assert_eq!(file("authentication: {x509: {clientCAFile: \"\"}}"), None);
        let config = parse("authentication: {x509: {clientCAFile: /ca.crt}}").unwrap();
        assert_eq!(config.unused().count(), 0);
    }
}
