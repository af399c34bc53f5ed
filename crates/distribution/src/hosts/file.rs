//! `hosts.toml`.

use super::{RegistryHost, Scheme, TlsFiles, configuration};
use crate::PullError;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, uri::Authority};
use jiff::SignedDuration;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use std::{fmt, fs, io::Read, path::Path, time::Duration};

/// Maximum size of a `hosts.toml`.
const MAX_SIZE: u64 = 1 << 20;

/// Tables of the file. The server's options beside them are a [`HostConfig`], parsed separately: `flatten` loses lines.
#[derive(Deserialize)]
struct HostsFile {
    server: Option<Endpoint>,
    #[serde(default)]
    host: Hosts,
}

/// Options of a host, or of the server.
#[derive(Default, Deserialize)]
struct HostConfig {
    #[serde(default)]
    capabilities: Vec<Capability>,
    ca: Option<OneOrMany<String>>,
    client: Option<OneOrMany<ClientPair>>,
    skip_verify: Option<bool>,
    #[serde(default)]
    header: Headers,
    #[serde(default)]
    override_path: bool,
    dial_timeout: Option<DialTimeout>,
}

#[derive(Deserialize, PartialEq)]
#[serde(try_from = "String")]
enum Capability {
    Pull,
    Resolve,
    /// `push` and `referrers`, which a pull does not need.
    Unused,
}

impl TryFrom<String> for Capability {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name.to_lowercase().as_str() {
            "pull" => Ok(Self::Pull),
            "resolve" => Ok(Self::Resolve),
            "push" | "referrers" => Ok(Self::Unused),
            _ => Err(format!("unknown capability {name}")),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or an array")]
enum OneOrMany<T> {
    One(String),
    Many(Vec<T>),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a path or a pair of paths")]
enum ClientPair {
    Certificate(String),
    Pair([String; 2]),
}

/// Hosts in the order of the file.
#[derive(Default)]
struct Hosts(Vec<(Endpoint, HostConfig)>);

impl<'de> Deserialize<'de> for Hosts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HostsVisitor;
        impl<'de> Visitor<'de> for HostsVisitor {
            type Value = Hosts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of hosts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Hosts, A::Error> {
                let mut hosts = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    hosts.push(entry);
                }
                Ok(Hosts(hosts))
            }
        }
        deserializer.deserialize_map(HostsVisitor)
    }
}

#[derive(Default)]
struct Headers(HeaderMap);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = std::collections::BTreeMap::<String, OneOrMany<String>>::deserialize(deserializer)?;
        let mut headers = HeaderMap::new();
        for (name, values) in table {
            let invalid = || D::Error::custom(format!("invalid header {name:?}"));
            let key: HeaderName = name.parse().map_err(|_| invalid())?;
            for value in values.into_vec() {
                let mut value: HeaderValue = value.parse().map_err(|_| invalid())?;
                value.set_sensitive(true);
                headers.append(key.clone(), value);
            }
        }
        Ok(Self(headers))
    }
}

impl OneOrMany<String> {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(value) => vec![value],
            Self::Many(values) => values,
        }
    }
}

/// Duration in Go's notation.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct DialTimeout(Duration);

impl TryFrom<String> for DialTimeout {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let duration = text.parse::<SignedDuration>().ok().and_then(|duration| duration.try_into().ok());
        duration.map(Self).ok_or_else(|| format!("invalid duration {text:?}"))
    }
}

/// URL of a host.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Endpoint {
    scheme: Scheme,
    authority: Authority,
    path: String,
}

impl TryFrom<String> for Endpoint {
    type Error = String;

    fn try_from(url: String) -> Result<Self, String> {
        let full = if url.contains("://") { url.clone() } else { format!("https://{url}") };
        let invalid = || format!("unable to parse server {url:?}");
        let uri: Uri = full.parse().map_err(|_| invalid())?;
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            _ => return Err(invalid()),
        };
        let authority = uri.authority().filter(|a| !a.as_str().contains('@')).ok_or_else(invalid)?;
        let mut path = String::new();
        for part in uri.path().split('/').filter(|part| !part.is_empty() && *part != ".") {
            if part == ".." {
                return Err(invalid());
            }
            path.push('/');
            path.push_str(part);
        }
        Ok(Self { scheme, authority: authority.clone(), path })
    }
}

/// Reads a file; `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<String>, PullError> {
    let failed = |error| configuration(&format!("failed to read {}: {error}", path.display()));
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    file.take(MAX_SIZE + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_SIZE {
        return Err(configuration(&format!("failed to read {}: larger than {MAX_SIZE} bytes", path.display())));
    }
    Ok(Some(text))
}

/// Parses the hosts of a registry from a `hosts.toml`.
pub(super) fn parse(path: &Path, text: &str, domain: &str) -> Result<Vec<RegistryHost>, PullError> {
    let failed = |error: toml::de::Error| {
        let line = error.span().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count() + 1);
        let line = line.map_or(String::new(), |line| format!("line {line}: "));
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        configuration(&format!("failed to decode {}: {line}{message}", path.display()))
    };
    let file: HostsFile = toml::from_str(text).map_err(failed)?;
    let server: HostConfig = toml::from_str(text).map_err(failed)?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    let mut hosts: Vec<RegistryHost> =
        file.host.0.into_iter().map(|(endpoint, config)| config.into_host(endpoint, dir, false)).collect();
    hosts.push(match file.server {
        Some(endpoint) => server.into_host(endpoint, dir, true),
        None => {
            // The options before the first table are those of the server, also if it is the registry itself.
            let tls = server.tls_files(dir);
            let explicit = tls.skip_verify;
            let mut host = RegistryHost::of_registry(domain, tls)?;
            host.tls.skip_verify = explicit.or(host.tls.skip_verify);
            host.headers = server.header.0;
            host.dial_timeout = server.dial_timeout.map(|timeout| timeout.0);
            host
        }
    });
    Ok(hosts)
}

impl HostConfig {
    fn into_host(self, endpoint: Endpoint, dir: &Path, is_server: bool) -> RegistryHost {
        let Endpoint { mut scheme, authority, mut path } = endpoint;
        let tls = self.tls_files(dir);
        let can = |capability| self.capabilities.is_empty() || self.capabilities.contains(&capability);
        let (can_resolve, can_pull) = (can(Capability::Resolve), can(Capability::Pull));
        if !self.override_path && !path.ends_with("/v2") {
            path.push_str("/v2");
        }
        // As containerd: a host with options for TLS gets TLS first, although its URL names HTTP.
        if scheme == Scheme::Http && tls.is_configured() && authority.port_u16().is_some_and(|port| port != 80) {
            scheme = Scheme::HttpsOrHttp;
        }
        RegistryHost {
            scheme,
            authority,
            path,
            can_resolve,
            can_pull,
            is_server,
            headers: self.header.0,
            tls,
            dial_timeout: self.dial_timeout.map(|timeout| timeout.0),
        }
    }

    /// Returns the files for TLS. Relative paths are relative to the directory of the `hosts.toml`.
    fn tls_files(&self, dir: &Path) -> TlsFiles {
        let absolute = |path: &String| dir.join(path);
        let ca = match &self.ca {
            None => Vec::new(),
            Some(OneOrMany::One(path)) => vec![absolute(path)],
            Some(OneOrMany::Many(paths)) => paths.iter().map(absolute).collect(),
        };
        let pair = |pair: &ClientPair| match pair {
            ClientPair::Certificate(path) => (absolute(path), None),
            ClientPair::Pair([certificate, key]) if key.is_empty() => (absolute(certificate), None),
            ClientPair::Pair([certificate, key]) => (absolute(certificate), Some(absolute(key))),
        };
        let client = match &self.client {
            None => Vec::new(),
            Some(OneOrMany::One(path)) => vec![(absolute(path), None)],
            Some(OneOrMany::Many(pairs)) => pairs.iter().map(pair).collect(),
        };
        TlsFiles { ca, client, skip_verify: self.skip_verify }
    }
}
