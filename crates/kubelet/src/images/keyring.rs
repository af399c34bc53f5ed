//! Whose credentials an image is pulled with (upstream's `pkg/credentialprovider/keyring.go`; seed 004, "Interpretation
//! of config.json").

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use runtime::RegistryAuth;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Credentials by the registries, and parts of registries, that they are for (`.dockercfg`; `auths` of `config.json`).
pub(crate) type DockerConfig = BTreeMap<String, Login>;

/// User and password for a registry.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Login {
    pub(crate) username: String,
    pub(crate) password: String,
}

impl std::fmt::Debug for Login {
    /// Never shows a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("username", &self.username).finish_non_exhaustive()
    }
}

impl<'de> Deserialize<'de> for Login {
    /// `auth` holds both, as `base64(user:password)`, and wins.
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
        // What was wrong is not told in the words of the decoder, which may show a part of it.
        let text = auth.trim();
        let engine = if text.ends_with('=') { &STANDARD } else { &STANDARD_NO_PAD };
        let decoded = engine.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let decoded = decoded.ok_or_else(|| D::Error::custom("unable to decode auth field"))?;
        let (username, password) =
            decoded.split_once(':').ok_or_else(|| D::Error::custom("unable to parse auth field"))?;
        Ok(Self { username: username.to_owned(), password: password.to_owned() })
    }
}

/// A Secret of the API, by all that makes it the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(crate) struct SecretId {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Credentials, and where they come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) login: Login,
    /// `None` for those that belong to the node, and so to every Pod on it.
    pub(crate) source: Option<SecretId>,
}

impl Credential {
    /// As the runtime takes it. No server's address is given: for which it is, was decided here.
    pub(crate) fn auth(&self) -> RegistryAuth {
        let Login { username, password } = self.login.clone();
        RegistryAuth { username, password, ..RegistryAuth::default() }
    }

    /// Tells credentials apart without telling them.
    pub(crate) fn hash(&self) -> String {
        let pair = serde_json::json!([self.login.username, self.login.password]).to_string();
        super::hex(&Sha256::digest(pair))
    }
}

/// Credentials from all sources, found by the name of an image.
#[derive(Debug, Default)]
pub(crate) struct Keyring {
    /// By host and path, looked through from the end: the longer of two that begin alike comes first.
    entries: BTreeMap<String, Vec<Credential>>,
}

impl Keyring {
    /// Adds what one source has. Entries that are no addresses are left out.
    pub(crate) fn add(&mut self, source: Option<&SecretId>, config: DockerConfig) {
        for (address, login) in config {
            match Address::of_entry(&address) {
                Some(key) => {
                    let credential = Credential { login, source: source.cloned() };
                    self.entries.entry(key).or_default().push(credential);
                }
                None => tracing::warn!(address, "an entry of a docker config is no address and is left out"),
            }
        }
    }

    /// The credentials for a repository (`Reference::repository`), in the order in which they are tried.
    pub(crate) fn lookup(&self, repository: &str) -> Vec<Credential> {
        let matching = self.entries.iter().rev().filter(|(key, _)| matches(key, repository));
        let found: Vec<Credential> = matching.flat_map(|(_, credentials)| credentials.clone()).collect();
        if found.is_empty() && repository.split('/').next() == Some("docker.io") {
            return self.entries.get("index.docker.io").cloned().unwrap_or_default();
        }
        found
    }
}

/// Host, port and path of a registry, or of a part of one.
#[derive(Debug, PartialEq)]
struct Address<'a> {
    /// Host and port as they are written.
    authority: &'a str,
    /// Of an IPv6 address, what is in the brackets.
    host: &'a str,
    port: &'a str,
    path: &'a str,
}

impl<'a> Address<'a> {
    /// `None` when the port is no number.
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

    /// The key of an entry: without its scheme, and without the `/v1/` or `/v2/` of the registry's API.
    fn of_entry(text: &str) -> Option<String> {
        let text = text.strip_prefix("https://").or(text.strip_prefix("http://")).unwrap_or(text);
        let address = Address::parse(text)?;
        let api = address.path.starts_with("/v1/") || address.path.starts_with("/v2/");
        let path = if api { &address.path[3..] } else { address.path };
        let path = if path == "/" { "" } else { path };
        Some(format!("{}{path}", address.authority))
    }
}

/// Whether a pattern is meant for a repository: as many labels of the host as the repository's has, each of which may
/// have globs; the same port; and the beginning of the path.
pub(crate) fn matches(pattern: &str, repository: &str) -> bool {
    let (Some(pattern), Some(target)) = (Address::parse(pattern), Address::parse(repository)) else { return false };
    let (globs, labels): (Vec<_>, Vec<_>) = (pattern.host.split('.').collect(), target.host.split('.').collect());
    pattern.port == target.port
        && globs.len() == labels.len()
        && target.path.starts_with(pattern.path)
        && globs.iter().zip(labels).all(|(glob, label)| glob_matches(glob.as_bytes(), label.as_bytes()))
}

/// Go's `filepath.Match` for what can stand in a host: `*`, and classes like `[a-c]` and `[^x]`.
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
        (Some(wanted), Some(byte)) => wanted == byte && glob_matches(&glob[1..], &text[1..]),
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
#[path = "keyring_tests.rs"]
mod tests;
