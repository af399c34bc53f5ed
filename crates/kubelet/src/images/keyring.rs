//! Keyring of image pull credentials (upstream's `pkg/credentialprovider/keyring.go`; documentation page "Images",
//! "Interpretation of config.json").

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use data_encoding::HEXLOWER;
use runtime::RegistryAuth;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Credentials by registry address (`.dockercfg`; `auths` of `config.json`).
pub(crate) type DockerConfig = BTreeMap<String, DockerConfigEntry>;

/// Username and password for a registry.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct DockerConfigEntry {
    pub(crate) username: String,
    pub(crate) password: String,
}

impl std::fmt::Debug for DockerConfigEntry {
    /// Formats without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DockerConfigEntry").field("username", &self.username).finish_non_exhaustive()
    }
}

impl<'de> Deserialize<'de> for DockerConfigEntry {
    /// `auth` is `base64(username:password)` and takes precedence over the separate fields.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Entry {
            username: Option<String>,
            password: Option<String>,
            auth: Option<String>,
        }
        let entry = Entry::deserialize(deserializer)?;
        let Some(auth) = entry.auth.filter(|auth| !auth.is_empty()) else {
            let (username, password) = (entry.username.unwrap_or_default(), entry.password.unwrap_or_default());
            return Ok(Self { username, password });
        };
        // The decoder's error is not shown, because it may contain a part of the secret.
        let text = auth.trim();
        let engine = if text.ends_with('=') { &STANDARD } else { &STANDARD_NO_PAD };
        let decoded = engine.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let decoded = decoded.ok_or_else(|| D::Error::custom("unable to decode auth field"))?;
        let (username, password) =
            decoded.split_once(':').ok_or_else(|| D::Error::custom("unable to parse auth field"))?;
        Ok(Self { username: username.to_owned(), password: password.to_owned() })
    }
}

/// Coordinates of a Secret (`KubernetesSecretCoordinates`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(crate) struct SecretCoordinates {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Credentials with their source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) login: DockerConfigEntry,
    /// Secret; `None` for credentials of the node, which all its Pods may use.
    pub(crate) source: Option<SecretCoordinates>,
}

impl Credential {
    /// Converts to the CRI's form, without a server address: the registry was matched here.
    pub(crate) fn auth(&self) -> RegistryAuth {
        let DockerConfigEntry { username, password } = self.login.clone();
        RegistryAuth { username, password, ..RegistryAuth::default() }
    }

    /// Returns a hash that identifies the credentials without revealing them.
    pub(crate) fn hash(&self) -> String {
        let pair = serde_json::json!([self.login.username, self.login.password]).to_string();
        HEXLOWER.encode(&Sha256::digest(pair))
    }
}

/// Credentials of all sources, looked up by image.
#[derive(Debug, Default)]
pub(crate) struct Keyring {
    /// Credentials by address. They are searched in reverse order, so that the longer of two matching addresses is first.
    entries: BTreeMap<String, Vec<Credential>>,
}

impl Keyring {
    /// Adds the credentials of a source. Invalid addresses are skipped.
    pub(crate) fn add(&mut self, source: Option<&SecretCoordinates>, config: DockerConfig) {
        for (address, login) in config {
            match Address::parse_entry(&address) {
                Some(key) => {
                    let credential = Credential { login, source: source.cloned() };
                    self.entries.entry(key).or_default().push(credential);
                }
                None => tracing::warn!(address, "skipping invalid address in docker config"),
            }
        }
    }

    /// Returns the credentials for a repository (`Reference::repository`), in the order in which they are tried.
    pub(crate) fn lookup(&self, repository: &str) -> Vec<Credential> {
        let matching = self.entries.iter().rev().filter(|(key, _)| urls_match(key, repository));
        let found: Vec<Credential> = matching.flat_map(|(_, credentials)| credentials.clone()).collect();
        if found.is_empty() && repository.split('/').next() == Some("docker.io") {
            return self.entries.get("index.docker.io").cloned().unwrap_or_default();
        }
        found
    }
}

/// Registry address: host, port and path.
#[derive(Debug, PartialEq)]
struct Address<'a> {
    /// Host and port as written.
    authority: &'a str,
    /// Host; an IPv6 address without brackets.
    host: &'a str,
    port: &'a str,
    path: &'a str,
}

impl<'a> Address<'a> {
    /// Parses an address; `None` if the port is not a number.
    fn parse(text: &'a str) -> Option<Self> {
        let text = &text[..text.find(['?', '#']).unwrap_or(text.len())];
        let (authority, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = match authority.rfind(':') {
            Some(at) if !authority[at..].contains(']') => (&authority[..at], &authority[at + 1..]),
            _ => (authority, ""),
        };
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        port.bytes().all(|b| b.is_ascii_digit()).then_some(Self { authority, host, port, path })
    }

    /// Returns the keyring's key for an entry: without scheme, and without `/v1/` or `/v2/` of the registry API.
    fn parse_entry(text: &str) -> Option<String> {
        let text = text.strip_prefix("https://").or(text.strip_prefix("http://")).unwrap_or(text);
        let address = Address::parse(text)?;
        let api = address.path.starts_with("/v1/") || address.path.starts_with("/v2/");
        let path = if api { &address.path[3..] } else { address.path };
        let path = if path == "/" { "" } else { path };
        Some(format!("{}{path}", address.authority))
    }
}

/// Returns whether a pattern matches a repository: the same number of host labels, which may be globs, the same port, and a
/// prefix of the path (upstream's `URLsMatch`).
pub(crate) fn urls_match(pattern: &str, repository: &str) -> bool {
    let (Some(pattern), Some(target)) = (Address::parse(pattern), Address::parse(repository)) else { return false };
    let (globs, labels): (Vec<_>, Vec<_>) = (pattern.host.split('.').collect(), target.host.split('.').collect());
    pattern.port == target.port
        && globs.len() == labels.len()
        && target.path.starts_with(pattern.path)
        && globs.iter().zip(labels).all(|(glob, label)| glob_matches(glob.as_bytes(), label.as_bytes()))
}

/// Matches a glob as Go's `filepath.Match`, with `*` and classes such as `[a-c]` and `[^x]`. Other libraries negate classes
/// with `!`.
fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    match (glob.first(), text.first()) {
        (None, _) => text.is_empty(),
        (Some(b'*'), _) => (0..=text.len()).any(|at| glob_matches(&glob[1..], &text[at..])),
        (Some(b'['), Some(byte)) => {
            let Some(end) = glob.iter().position(|b| *b == b']') else { return false };
            let (negated, class) = match &glob[1..end] {
                [b'^', rest @ ..] => (true, rest),
                class => (false, class),
            };
            in_class(class, *byte) != negated && glob_matches(&glob[end + 1..], &text[1..])
        }
        (Some(expected), Some(byte)) => expected == byte && glob_matches(&glob[1..], &text[1..]),
        (Some(_), None) => false,
    }
}

fn in_class(class: &[u8], byte: u8) -> bool {
    match class {
        [] => false,
        [from, b'-', to, rest @ ..] => (*from..=*to).contains(&byte) || in_class(rest, byte),
        [one, rest @ ..] => *one == byte || in_class(rest, byte),
    }
}

#[cfg(test)]
mod tests;
