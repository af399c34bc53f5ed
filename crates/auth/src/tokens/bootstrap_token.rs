//! Authentication of bootstrap tokens, which are stored in Secrets of `kube-system`
//! (`plugin/pkg/auth/authenticator/token/bootstrap`).

use super::{AuthenticateToken, AuthenticatedToken, ISSUER, TokenError, are_for_api_server};
use crate::stored_object;
use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use request::UserInfo;
use serde_json::Value;
use sha2::{Digest, Sha256};
use store::Store;

const TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";

/// Authenticates bootstrap tokens.
pub struct BootstrapTokenAuthenticator {
    /// The store of the Secrets.
    pub store: Store,
}

impl AuthenticateToken for BootstrapTokenAuthenticator {
    fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Option<AuthenticatedToken>, TokenError> {
        if !are_for_api_server(audiences) {
            return Ok(None);
        }
        let user = authenticate(&self.store, token, now);
        Ok(user.map(|user| AuthenticatedToken { user, audiences: vec![ISSUER.to_owned()] }))
    }
}

/// Returns the user of a valid bootstrap token.
fn authenticate(store: &Store, token: &str, now: Timestamp) -> Option<UserInfo> {
    let (id, secret_part) = token.split_once('.')?;
    let is_part =
        |text: &str, length| text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
    if !is_part(id, 6) || !is_part(secret_part, 16) {
        return None;
    }
    let secret = stored_object::get(store, "secrets", "kube-system", &format!("bootstrap-token-{id}"))?;
    if secret["type"] != TYPE || !secret["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let value = |key: &str| text(&secret, key);
    // Errors of the Secret are not returned to clients. The comparison of digests leaks no timing of the secret.
    let is_match = Sha256::digest(value("token-secret")) == Sha256::digest(secret_part);
    if !is_match || value("token-id") != id || value("usage-bootstrap-authentication") != "true" {
        return None;
    }
    let expiration = value("expiration");
    if !expiration.is_empty() && expiration.parse::<Timestamp>().map_or(true, |end| end < now) {
        return None;
    }
    let mut groups = vec![GROUP.to_owned()];
    for group in value("auth-extra-groups").split(',').filter(|g| !g.is_empty()) {
        if !is_valid_group(group) {
            return None;
        }
        groups.push(group.to_owned());
    }
    groups.sort();
    groups.dedup();
    Some(UserInfo { name: format!("system:bootstrap:{id}"), groups, ..UserInfo::default() })
}

fn text(secret: &Value, key: &str) -> String {
    let bytes = STANDARD.decode(secret["data"][key].as_str().unwrap_or("")).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// Whether a group is allowed: `system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]`.
fn is_valid_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
    let plain = |b: u8| b.is_ascii_digit() || b.is_ascii_lowercase();
    let (all, last) = (rest.bytes().all(|b| plain(b) || matches!(b, b':' | b'-')), rest.bytes().next_back());
    all && rest.len() <= 256 && last.is_some_and(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_groups_must_be_bootstrapper_groups() {
        for valid in ["system:bootstrappers:a", "system:bootstrappers:kubeadm:default-node-token"] {
            assert!(is_valid_group(valid), "{valid}");
        }
        let long = format!("system:bootstrappers:{}", "a".repeat(257));
        for invalid in
            ["system:masters", "system:bootstrappers:", "system:bootstrappers:a-", "system:bootstrappers:A", &long]
        {
            assert!(!is_valid_group(invalid), "{invalid}");
        }
    }
}
