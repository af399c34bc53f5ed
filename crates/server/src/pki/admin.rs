//! The administrator's certificate, and the kubeconfig that holds it.
//!
//! The certificate is of `system:masters` and cannot be revoked: there should be few of them. So it is kept over starts, in
//! one file with its key, and issued anew only when it ends soon.

use super::{
    Pki, PkiError,
    ca::{Ca, Credential},
    file, profile,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::{fs, io::ErrorKind, path::Path};

const FILE: &str = "admin.pem";
const KEY: &str = "-----BEGIN PRIVATE KEY-----";

/// The certificate that is kept in a directory, if it is this authority's and valid for long enough, else a new one.
pub(super) fn load_or_issue(dir: &Path, ca: &Ca) -> Result<Credential, PkiError> {
    let path = dir.join(FILE);
    let kept = match fs::read_to_string(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound && error.kind() != ErrorKind::InvalidData => {
            return Err(file(&path)(error));
        }
        text => text.ok().and_then(|text| {
            let (certificate, key) = text.split_at_checked(text.find(KEY)?)?;
            Some(Credential { certificate: certificate.to_owned(), key: key.to_owned() })
        }),
    };
    if let Some(kept) = kept.filter(|kept| ca.holds(kept, profile::ADMIN)) {
        return Ok(kept);
    }
    let (new, _) = ca.issue(&profile::admin())?;
    files::replace_private(&path, (new.certificate.clone() + &new.key).as_bytes()).map_err(file(&path))?;
    tracing::info!(path = %path.display(), "issued a certificate for the administrator");
    Ok(new)
}

impl Pki {
    /// Writes the administrator's kubeconfig, whole or not at all, for its owner's eyes only.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_admin_kubeconfig(&self, path: &Path, server: &str) -> Result<(), PkiError> {
        let admin = load_or_issue(&self.dir, &self.ca)?;
        let data = |pem: &str| STANDARD.encode(pem);
        let user = json!({"client-certificate-data": data(&admin.certificate), "client-key-data": data(&admin.key)});
        // JSON is YAML, and every client reads it.
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "podium",
            "clusters": [{"name": "podium", "cluster": {"server": server, "certificate-authority-data": data(&self.ca.pem)}}],
            "users": [{"name": "podium-admin", "user": user}],
            "contexts": [{"name": "podium", "context": {"cluster": "podium", "user": "podium-admin"}}],
        });
        let text = serde_json::to_string_pretty(&config).map_err(super::unusable)?;
        files::replace_private(path, text.as_bytes()).map_err(file(path))
    }

    /// Renews the administrator's certificate if it ends soon, and writes the kubeconfig again that holds an older one. Gives
    /// whether it did. A kubeconfig that somebody removed or wrote stays as it is.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn renew_admin_kubeconfig(&self, path: &Path, server: &str) -> Result<bool, PkiError> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            text => text.map_err(file(path))?,
        };
        let admin = load_or_issue(&self.dir, &self.ca)?;
        if !is_admin_kubeconfig(&text) {
            return Ok(false);
        }
        let config = serde_saphyr::from_str::<Value>(&text).unwrap_or_default();
        if config["users"][0]["user"]["client-certificate-data"] == STANDARD.encode(&admin.certificate) {
            return Ok(false);
        }
        self.write_admin_kubeconfig(path, server)?;
        Ok(true)
    }
}

/// Whether this is what [`Pki::write_admin_kubeconfig`] writes, of whatever cluster, and nothing of anybody else. `kubectl
/// config` may have written it again, in YAML.
#[must_use]
pub fn is_admin_kubeconfig(text: &str) -> bool {
    let Ok(config) = serde_saphyr::from_str::<Value>(text) else { return false };
    [("clusters", "podium"), ("users", "podium-admin"), ("contexts", "podium")].iter().all(|(list, name)| {
        config[list].as_array().is_some_and(|all| matches!(all.as_slice(), [only] if only["name"] == *name))
    })
}
