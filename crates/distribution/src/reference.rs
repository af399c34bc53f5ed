//! Image references (`github.com/distribution/reference`): parsing and normalization.

use crate::{Digest, DigestError, PullError, PullErrorKind};
use std::fmt;

/// Default registry.
pub(crate) const DEFAULT_DOMAIN: &str = "docker.io";
const DEFAULT_TAG: &str = "latest";
const MAX_REPOSITORY_LENGTH: usize = 255;
const MAX_TAG_LENGTH: usize = 128;

/// Invalid image reference, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// 64 hexadecimal digits, which could be an image ID.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Hexadecimal(String),
    /// Upper-case letters in the repository name.
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    /// Other violation of the grammar.
    #[error("invalid reference format")]
    InvalidFormat,
    /// Repository name above the maximum length.
    #[error("repository name must not be more than {} characters", MAX_REPOSITORY_LENGTH)]
    TooLong,
    /// Digest with another algorithm than SHA-256, or with another length.
    #[error(transparent)]
    Digest(#[from] DigestError),
}

/// Normalized image reference, for example `docker.io/library/busybox:latest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    domain: String,
    path: String,
    version: Version,
}

/// Tag or digest. Of a reference with both, the digest counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Version {
    Tag(String),
    Digest(Digest),
}

impl Reference {
    /// Parses and normalizes a reference (upstream's `ParseDockerRef`).
    ///
    /// # Errors
    /// Fails with upstream's message.
    pub fn parse(name: &str) -> Result<Self, ReferenceError> {
        if name.len() == 64 && name.bytes().all(is_lower_hex) {
            return Err(ReferenceError::Hexadecimal(name.to_owned()));
        }
        let (domain, rest) = split_domain(name);
        let path = &rest[..rest.find([':', '@']).unwrap_or(rest.len())];
        let library = if domain == DEFAULT_DOMAIN && !path.contains('/') { "library/" } else { "" };
        if path.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(ReferenceError::Uppercase(format!("{library}{path}")));
        }
        let (tagged, digest) = rest.split_once('@').map_or((rest, None), |(tagged, digest)| (tagged, Some(digest)));
        let tag = tagged.split_once(':').map(|(_, tag)| tag);
        if !(is_domain(domain) && path.split('/').all(is_path_component) && tag.is_none_or(is_tag)) {
            return Err(ReferenceError::InvalidFormat);
        }
        let version = match digest {
            Some(digest) => Version::Digest(parse_digest(digest)?),
            None => Version::Tag(tag.unwrap_or(DEFAULT_TAG).to_owned()),
        };
        let path = format!("{library}{path}");
        if path.len() > MAX_REPOSITORY_LENGTH {
            return Err(ReferenceError::TooLong);
        }
        Ok(Self { domain: domain.to_owned(), path, version })
    }

    /// Returns the registry with its port, for example `docker.io`.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the path of the repository in the registry, for example `library/busybox`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns registry and path, for example `docker.io/library/busybox`.
    #[must_use]
    pub fn repository(&self) -> String {
        format!("{}/{}", self.domain, self.path)
    }

    /// Returns the digest, if the reference has one.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        match &self.version {
            Version::Digest(digest) => Some(digest),
            Version::Tag(_) => None,
        }
    }

    pub(crate) fn version(&self) -> &Version {
        &self.version
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (domain, path) = (&self.domain, &self.path);
        match &self.version {
            Version::Tag(tag) => write!(f, "{domain}/{path}:{tag}"),
            Version::Digest(digest) => write!(f, "{domain}/{path}@{digest}"),
        }
    }
}

impl PullError {
    /// Converts an error of a reference, with the message of containerd's CRI plugin.
    pub(crate) fn invalid_reference(name: &str, error: &ReferenceError) -> Self {
        let message = format!("failed to parse image reference {:?}: {error}", crate::error::printable(name));
        Self::new(PullErrorKind::InvalidReference, message)
    }
}

/// Splits off the first component if it looks like a host.
fn split_domain(name: &str) -> (&str, &str) {
    match name.split_once('/') {
        Some(("index.docker.io", rest)) => (DEFAULT_DOMAIN, rest),
        Some((host, rest))
            if host.contains(['.', ':']) || host == "localhost" || host.bytes().any(|b| b.is_ascii_uppercase()) =>
        {
            (host, rest)
        }
        _ => (DEFAULT_DOMAIN, name),
    }
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rfind(':') {
        Some(at) if !domain[at..].contains(']') => (&domain[..at], Some(&domain[at + 1..])),
        _ => (domain, None),
    };
    let is_label = |label: &str| {
        let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = label.as_bytes();
        ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    let is_ipv6 = |host: &str| {
        let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        inner.is_some_and(|i| !i.is_empty() && i.bytes().all(|b| b.is_ascii_hexdigit() || b == b':'))
    };
    let port_ok = port.is_none_or(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
    port_ok && (is_ipv6(host) || host.split('.').all(is_label))
}

/// Returns whether a path component is valid: lower-case letters and digits, separated by `.`, `_`, `__` or dashes.
fn is_path_component(part: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = |b: Option<u8>| b.is_some_and(is_word);
    let mut separators = part.split(|c: char| u8::try_from(c).is_ok_and(is_word)).filter(|s| !s.is_empty());
    ends(part.bytes().next())
        && ends(part.bytes().last())
        && separators.all(|s| matches!(s, "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let is_rest = |b: u8| is_word(b) || b == b'.' || b == b'-';
    tag.len() <= MAX_TAG_LENGTH && tag.bytes().next().is_some_and(is_word) && tag.bytes().all(is_rest)
}

fn is_lower_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

/// Parses a digest. The grammar of references requires at least 32 hexadecimal digits.
fn parse_digest(digest: &str) -> Result<Digest, ReferenceError> {
    let (algorithm, hex) = digest.split_once(':').ok_or(ReferenceError::InvalidFormat)?;
    let starts_with_letter = algorithm.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    let is_algorithm =
        starts_with_letter && algorithm.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_+.".contains(&b));
    if !is_algorithm || hex.len() < 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(ReferenceError::InvalidFormat);
    }
    Ok(digest.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn references_are_normalized() {
        for (name, normalized, repository) in [
            ("busybox", "docker.io/library/busybox:latest", "docker.io/library/busybox"),
            ("busybox:1.28", "docker.io/library/busybox:1.28", "docker.io/library/busybox"),
            ("docker.io/library/busybox", "docker.io/library/busybox:latest", "docker.io/library/busybox"),
            ("docker.io/busybox", "docker.io/library/busybox:latest", "docker.io/library/busybox"),
            ("index.docker.io/a/b", "docker.io/a/b:latest", "docker.io/a/b"),
            ("a/b/c", "docker.io/a/b/c:latest", "docker.io/a/b/c"),
            ("127.0.0.1:9/nothing:1", "127.0.0.1:9/nothing:1", "127.0.0.1:9/nothing"),
            ("localhost/a", "localhost/a:latest", "localhost/a"),
            ("HOST/a", "HOST/a:latest", "HOST/a"),
            ("index.docker.io/busybox", "docker.io/library/busybox:latest", "docker.io/library/busybox"),
            ("localhost:5000/a:b", "localhost:5000/a:b", "localhost:5000/a"),
            ("[::1]:5000/a", "[::1]:5000/a:latest", "[::1]:5000/a"),
            ("quay.io/a__b/c--d.e:V1.0_x", "quay.io/a__b/c--d.e:V1.0_x", "quay.io/a__b/c--d.e"),
            ("[::1]:5000/a_b__c---d.e", "[::1]:5000/a_b__c---d.e:latest", "[::1]:5000/a_b__c---d.e"),
        ] {
            let reference = Reference::parse(name).unwrap();
            assert_eq!((reference.to_string(), reference.repository()), (normalized.to_owned(), repository.to_owned()));
            assert_eq!(Reference::parse(normalized).unwrap(), reference);
        }
        for tag in ["", ":1"] {
            let reference = Reference::parse(&format!("quay.io/a/b{tag}@{DIGEST}")).unwrap();
            assert_eq!(reference.to_string(), format!("quay.io/a/b@{DIGEST}"));
            assert_eq!(reference.digest().unwrap().to_string(), DIGEST);
        }
    }

    #[test]
    fn invalid_reference_is_rejected_with_upstreams_message() {
        let digits = &DIGEST[7..];
        for (name, message) in [
            ("Busybox", "invalid reference format: repository name (library/Busybox) must be lowercase".to_owned()),
            ("a/Bc:1", "invalid reference format: repository name (a/Bc) must be lowercase".to_owned()),
            (digits, format!("invalid repository name ({digits}), cannot specify 64-byte hexadecimal strings")),
            (&"a".repeat(250), "repository name must not be more than 255 characters".to_owned()),
            (&format!("a/{}", "b".repeat(300)), "repository name must not be more than 255 characters".to_owned()),
            (&format!("a@sha512:{digits}{digits}"), "unsupported digest algorithm".to_owned()),
            ("a@md5:0123456789abcdef0123456789abcdef", "unsupported digest algorithm".to_owned()),
            ("a@sha256:0123456789abcdef0123456789abcdef", "invalid checksum digest length".to_owned()),
        ] {
            assert_eq!(Reference::parse(name).unwrap_err().to_string(), message);
        }
        for name in [
            "",
            " ",
            ":",
            "a@",
            "a:x/y:",
            "x.y:z/a",
            "a/b/",
            "a_.b",
            "a b",
            "a:",
            "a/",
            "/a",
            "a//b",
            "a@b",
            "a:b:c",
            "a..b",
            "a___b",
            "-a",
            "a-",
            "a:-b",
            "host:x/a",
            "a.-b.c/d",
            "a@sha256:00",
            "../a",
            "a/../b",
            "é",
            "a\0",
        ] {
            assert_eq!(Reference::parse(name).unwrap_err().to_string(), "invalid reference format", "{name:?}");
        }
    }
}
