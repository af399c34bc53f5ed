//! Bootstrap tokens: Secrets of `kube-system` by which somebody is let in for the first time
//! (`plugin/pkg/auth/authenticator/token/bootstrap`).

use super::request::stored;
use crate::{UserInfo, service::ApiServer};
use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

const TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";

/// The user that a bootstrap token stands for, if it is one that may be shown here.
pub(super) fn authenticate(server: &ApiServer, token: &str, now: Timestamp) -> Option<UserInfo> {
    let (id, shown) = token.split_once('.')?;
    let of =
        |text: &str, length| text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
    if !of(id, 6) || !of(shown, 16) {
        return None;
    }
    let secret = stored(server, "secrets", "kube-system", &format!("bootstrap-token-{id}"))?;
    if secret["type"] != TYPE || !secret["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let value = |key: &str| text(&secret, key);
    // What is wrong with the Secret is not told to those who show tokens.
    // How long it takes to compare digests says nothing of what they are of.
    let same = Sha256::digest(value("token-secret")) == Sha256::digest(shown);
    if !same || value("token-id") != id || value("usage-bootstrap-authentication") != "true" {
        return None;
    }
    let expiration = value("expiration");
    if !expiration.is_empty() && expiration.parse::<Timestamp>().map_or(true, |end| end < now) {
        return None;
    }
    let mut groups = vec![GROUP.to_owned()];
    for group in value("auth-extra-groups").split(',').filter(|g| !g.is_empty()) {
        if !is_extra(group) {
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

/// Only groups of their own: `system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]`.
fn is_extra(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
    let plain = |b: u8| b.is_ascii_digit() || b.is_ascii_lowercase();
    let (all, last) = (rest.bytes().all(|b| plain(b) || matches!(b, b':' | b'-')), rest.bytes().next_back());
    all && rest.len() <= 256 && last.is_some_and(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_may_not_say_that_it_is_in_any_group() {
        for good in ["system:bootstrappers:a", "system:bootstrappers:kubeadm:default-node-token"] {
            assert!(is_extra(good), "{good}");
        }
        let long = format!("system:bootstrappers:{}", "a".repeat(257));
        for bad in
            ["system:masters", "system:bootstrappers:", "system:bootstrappers:a-", "system:bootstrappers:A", &long]
        {
            assert!(!is_extra(bad), "{bad}");
        }
    }
}
