//! Image references (`github.com/distribution/reference`): normalized ones, with a tag or a SHA-256 digest.

use crate::{Digest, DigestError, PullError, PullErrorKind};
pub(crate) use runtime::DEFAULT_DOMAIN;
use runtime::{ReferenceError as NameError, ReferenceParts};
use std::fmt;

const DEFAULT_TAG: &str = "latest";

/// Invalid image reference, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Violation of the grammar.
    #[error(transparent)]
    Name(#[from] NameError),
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
        let ReferenceParts { domain, path, tag, digest } = ReferenceParts::parse(name)?;
        let version = match digest {
            Some(digest) => Version::Digest(parse_digest(digest)?),
            None => Version::Tag(tag.unwrap_or(DEFAULT_TAG).to_owned()),
        };
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

/// Parses a digest. The grammar of references requires at least 32 hexadecimal digits.
fn parse_digest(digest: &str) -> Result<Digest, ReferenceError> {
    let (algorithm, hex) = digest.split_once(':').ok_or(NameError::InvalidFormat)?;
    let starts_with_letter = algorithm.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    let is_algorithm =
        starts_with_letter && algorithm.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_+.".contains(&b));
    if !is_algorithm || hex.len() < 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(NameError::InvalidFormat.into());
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
            (&format!("a@sha512:{digits}{digits}"), "unsupported digest algorithm".to_owned()),
            ("a@md5:0123456789abcdef0123456789abcdef", "unsupported digest algorithm".to_owned()),
            ("a@sha256:0123456789abcdef0123456789abcdef", "invalid checksum digest length".to_owned()),
        ] {
            assert_eq!(Reference::parse(name).unwrap_err().to_string(), message);
        }
        for name in ["", "a:", "a@", "a@b", "a@sha256:00"] {
            assert_eq!(Reference::parse(name).unwrap_err().to_string(), "invalid reference format", "{name:?}");
        }
    }
}
