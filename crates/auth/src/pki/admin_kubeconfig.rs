//! The administrator's certificate, and the kubeconfig that contains it.
//!
//! The certificate is of `system:masters` and cannot be revoked, so there should be few of them. It is stored in a file
//! with its key, and replaced only when it expires soon.

use super::{
    Pki, PkiError,
    ca::{Ca, Credential},
    certificate_profiles, file_error,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::{fs, io::ErrorKind, path::Path};

const FILE: &str = "admin.pem";
const KEY: &str = "-----BEGIN PRIVATE KEY-----";

/// Loads the stored certificate, or issues a new one if it is not of this CA or expires soon.
pub(super) fn load_or_issue(dir: &Path, ca: &Ca) -> Result<Credential, PkiError> {
    let path = dir.join(FILE);
    let stored = match fs::read_to_string(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound && error.kind() != ErrorKind::InvalidData => {
            return Err(file_error(&path)(error));
        }
        text => text.ok().and_then(|text| {
            let (certificate, key) = text.split_at_checked(text.find(KEY)?)?;
            Some(Credential { certificate: certificate.to_owned(), key: key.to_owned() })
        }),
    };
    if let Some(stored) = stored.filter(|stored| ca.is_valid_credential(stored, certificate_profiles::ADMIN)) {
        return Ok(stored);
    }
    let (new, _) = ca.issue(&certificate_profiles::admin())?;
    files::replace_private(&path, (new.certificate.clone() + &new.key).as_bytes()).map_err(file_error(&path))?;
    tracing::info!(path = %path.display(), "issued a certificate for the administrator");
    Ok(new)
}

impl Pki {
    /// Writes the administrator's kubeconfig atomically, readable by its owner only.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_admin_kubeconfig(&self, path: &Path, server: &str) -> Result<(), PkiError> {
        let admin = load_or_issue(&self.dir, &self.ca)?;
        let data = |pem: &str| STANDARD.encode(pem);
        let user = json!({"client-certificate-data": data(&admin.certificate), "client-key-data": data(&admin.key)});
        // JSON is YAML, which every client accepts.
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "podium",
            "clusters": [{"name": "podium", "cluster": {"server": server, "certificate-authority-data": data(&self.ca.pem)}}],
            "users": [{"name": "podium-admin", "user": user}],
            "contexts": [{"name": "podium", "context": {"cluster": "podium", "user": "podium-admin"}}],
        });
        let text = serde_json::to_string_pretty(&config).map_err(super::unusable)?;
        files::replace_private(path, text.as_bytes()).map_err(file_error(path))
    }

    /// Renews the administrator's certificate if it expires soon, and updates a kubeconfig with an older one. Returns
    /// whether it was updated. A kubeconfig that was removed or written by others stays unchanged.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn renew_admin_kubeconfig(&self, path: &Path, server: &str) -> Result<bool, PkiError> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            text => text.map_err(file_error(path))?,
        };
        let admin = load_or_issue(&self.dir, &self.ca)?;
        if !is_admin_kubeconfig(&text) {
            return Ok(false);
        }
        let config = parse(&text).unwrap_or_default();
        if config["users"][0]["user"]["client-certificate-data"] == STANDARD.encode(&admin.certificate) {
            return Ok(false);
        }
        self.write_admin_kubeconfig(path, server)?;
        Ok(true)
    }
}

/// Whether a kubeconfig was written by [`Pki::write_admin_kubeconfig`] for any cluster, and has no other entries.
/// `kubectl config` may have rewritten it in YAML.
#[must_use]
pub fn is_admin_kubeconfig(text: &str) -> bool {
    let Some(config) = parse(text) else { return false };
    [("clusters", "podium"), ("users", "podium-admin"), ("contexts", "podium")].iter().all(|(list, name)| {
        config[list].as_array().is_some_and(|all| matches!(all.as_slice(), [only] if only["name"] == *name))
    })
}

/// Parses a kubeconfig: first as JSON, as it is written here, because the YAML parser is 0.6 MB of an idle Podium's memory.
fn parse(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().or_else(|| serde_saphyr::from_str(text).ok())
}
