//! Hosts of a registry: the registry itself, and the mirrors of containerd's `hosts.toml`.
//!
//! <https://github.com/containerd/containerd/blob/main/docs/hosts.md>

mod file;

use crate::{PullError, PullErrorKind, reference::DEFAULT_DOMAIN};
use http::{HeaderMap, uri::Authority};
use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

const DOCKER_HUB: &str = "registry-1.docker.io";
/// Other names of Docker Hub in credentials.
const DOCKER_HUB_ALIASES: [&str; 3] = [DEFAULT_DOMAIN, "index.docker.io", DOCKER_HUB];
/// Directory for the registries without one of their own.
const DEFAULT_DIRECTORY: &str = "_default";

/// Host that serves the content of a registry: the registry, or a mirror.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RegistryHost {
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    /// Root of the API, usually `/v2`; empty or with a leading slash.
    pub(crate) path: String,
    /// Whether the host may map tags to digests.
    pub(crate) can_resolve: bool,
    /// Whether the host may serve content by its digest.
    pub(crate) can_pull: bool,
    /// Whether this is the registry that images name, or its `server`: it gets the registry's credentials.
    pub(crate) is_server: bool,
    pub(crate) headers: HeaderMap,
    pub(crate) tls: TlsFiles,
    /// Time for a connection.
    pub(crate) dial_timeout: Option<Duration>,
}

/// Protocol of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
    /// HTTPS, or HTTP if the host does not speak TLS.
    HttpsOrHttp,
}

/// Files for TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// Certificates of CAs, beside those of the machine.
    pub(crate) ca: Vec<PathBuf>,
    /// Client certificates, and their keys if they are in other files.
    pub(crate) client: Vec<(PathBuf, Option<PathBuf>)>,
    pub(crate) skip_verify: Option<bool>,
}

impl TlsFiles {
    fn is_configured(&self) -> bool {
        *self != Self::default()
    }
}

impl RegistryHost {
    /// Returns whether requests name the registry in the query `ns`, because the host is another one.
    pub(crate) fn is_proxy(&self, domain: &str) -> bool {
        self.authority.as_str() != domain && !(domain == DEFAULT_DOMAIN && self.authority.as_str() == DOCKER_HUB)
    }

    /// Returns the host for a registry without configuration.
    fn of_registry(domain: &str, tls: TlsFiles) -> Result<Self, PullError> {
        let name = if domain == DEFAULT_DOMAIN { DOCKER_HUB } else { domain };
        let authority: Authority = name.parse().map_err(|error| configuration(&format!("host {name:?}: {error}")))?;
        let (mut scheme, mut tls) = (Scheme::Https, tls);
        if is_loopback(authority.host()) {
            let port = authority.port_u16();
            if port == Some(80) {
                scheme = Scheme::Http;
            } else {
                // As containerd: local registries have self-signed certificates, or none.
                tls.skip_verify = Some(true);
                let is_https = port.is_none_or(|port| port == 443);
                scheme = if is_https { Scheme::Https } else { Scheme::HttpsOrHttp };
            }
        }
        Ok(Self {
            scheme,
            authority,
            path: "/v2".to_owned(),
            can_resolve: true,
            can_pull: true,
            is_server: true,
            headers: HeaderMap::new(),
            tls,
            dial_timeout: None,
        })
    }
}

/// Returns the hosts for a registry in the order of use. `dirs` are directories like `/etc/containerd/certs.d`; the
/// first one with a directory for the registry counts.
///
/// # Errors
/// If a file cannot be read or is invalid. The error names the file.
pub(crate) fn registry_hosts(dirs: &[PathBuf], domain: &str) -> Result<Vec<RegistryHost>, PullError> {
    let Some(dir) = dirs.iter().find_map(|root| host_directory(root, domain)) else {
        return Ok(vec![RegistryHost::of_registry(domain, TlsFiles::default())?]);
    };
    let path = dir.join("hosts.toml");
    match file::read(&path)? {
        Some(text) if !text.is_empty() => file::parse(&path, &text, domain),
        _ => Ok(vec![RegistryHost::of_registry(domain, certificate_files(&dir)?)?]),
    }
}

/// Returns the directory for a registry: `HOST_PORT_`, `HOST:PORT` or `_default`.
fn host_directory(root: &Path, domain: &str) -> Option<PathBuf> {
    let with_port = domain.rsplit_once(':').filter(|(host, port)| !host.is_empty() && !port.contains(']'));
    let with_port = with_port.map(|(host, port)| format!("{host}_{port}_"));
    let names = with_port.as_deref().into_iter().chain([domain, DEFAULT_DIRECTORY]);
    names.map(|name| root.join(name)).find(|dir| dir.exists())
}

/// Finds certificates by the names of Docker's `certs.d`: `*.crt` of CAs, `*.cert` and `*.key` of clients.
fn certificate_files(dir: &Path) -> Result<TlsFiles, PullError> {
    let unreadable = |error| configuration(&format!("failed to read {}: {error}", dir.display()));
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        paths.push(entry.map_err(unreadable)?.path());
    }
    paths.sort();
    let mut found = TlsFiles::default();
    for path in paths {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("crt") => found.ca.push(path),
            Some("cert") => {
                let key = path.with_extension("key");
                let key = key.exists().then_some(key);
                found.client.push((path, key));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Returns whether a host is this machine, by its name only.
pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Returns whether the server address of credentials names a host of a registry.
pub(crate) fn is_address_of(server_address: &str, host: &RegistryHost, domain: &str) -> bool {
    let address = server_address.split_once("://").map_or(server_address, |(_, rest)| rest);
    let address = address.split('/').next().unwrap_or_default();
    if address == host.authority.as_str() {
        return true;
    }
    let is_alias = domain == DEFAULT_DOMAIN && DOCKER_HUB_ALIASES.contains(&address);
    host.is_server && (address == domain || is_alias)
}

pub(crate) fn configuration(message: &str) -> PullError {
    PullError::new(PullErrorKind::InvalidConfiguration, message)
}

#[cfg(test)]
mod tests;
