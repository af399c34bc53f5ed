//! Image references, normalized as containerd does (`github.com/distribution/reference`, `ParseDockerRef`).

use crate::Digest;
use std::fmt;

/// Maximum number of letters of a repository's name, as upstream (`RepositoryNameTotalLengthMax`).
const MAX_NAME: usize = 255;
/// Maximum number of letters of a tag.
const MAX_TAG: usize = 128;
const DEFAULT_DOMAIN: &str = "docker.io";
const LEGACY_DEFAULT_DOMAIN: &str = "index.docker.io";

/// A malformed image reference. The texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReference {
    /// Not a reference.
    #[error("invalid reference format")]
    Format,
    /// The repository has capital letters.
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    NotLowercase(String),
    /// The repository's name is too long.
    #[error("repository name must not be more than {MAX_NAME} characters")]
    TooLong,
    /// The reference is an image ID.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Hexadecimal(String),
}

/// Tag or digest of a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// `:tag`.
    Tag(String),
    /// `@sha256:…`.
    Digest(Digest),
}

/// A normalized reference: `docker.io/library/busybox:latest`. With a tag and a digest, only the digest is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Registry and repository.
    pub repository: String,
    /// Tag or digest.
    pub selector: Selector,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.selector {
            Selector::Tag(tag) => write!(f, "{}:{tag}", self.repository),
            Selector::Digest(digest) => write!(f, "{}@{digest}", self.repository),
        }
    }
}

impl Reference {
    /// Parses and normalizes a reference.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn parse(text: &str) -> Result<Self, InvalidReference> {
        if Digest::from_hex(text).is_ok() {
            return Err(InvalidReference::Hexadecimal(text.to_owned()));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse().map_err(|_| InvalidReference::Format)?)),
            None => (text, None),
        };
        // A colon after the last slash begins a tag; before it, a port.
        let last = rest.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match rest.get(last..).and_then(|part| part.find(':')) {
            Some(colon) => (&rest[..last + colon], Some(&rest[last + colon + 1..])),
            None => (rest, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(InvalidReference::Format);
        }
        let (domain, path) = split_domain(name);
        if path.chars().any(|c| c.is_ascii_uppercase()) {
            return Err(InvalidReference::NotLowercase(path));
        }
        if !is_domain(domain) || !path.split('/').all(is_path_component) {
            return Err(InvalidReference::Format);
        }
        let repository = format!("{domain}/{path}");
        if repository.len() > MAX_NAME {
            return Err(InvalidReference::TooLong);
        }
        let selector = digest.map_or_else(|| Selector::Tag(tag.unwrap_or("latest").to_owned()), Selector::Digest);
        Ok(Self { repository, selector })
    }
}

/// Splits the registry from the repository (`splitDockerDomain`).
fn split_domain(name: &str) -> (&str, String) {
    let is_registry =
        |part: &str| part.contains(['.', ':']) || part == "localhost" || part.chars().any(|c| c.is_ascii_uppercase());
    let (domain, path) = match name.split_once('/') {
        Some((domain, path)) if is_registry(domain) => (domain, path),
        _ => (DEFAULT_DOMAIN, name),
    };
    let domain = if domain == LEGACY_DEFAULT_DOMAIN { DEFAULT_DOMAIN } else { domain };
    if domain == DEFAULT_DOMAIN && !path.contains('/') {
        return (domain, format!("library/{path}"));
    }
    (domain, path.to_owned())
}

fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=MAX_TAG).contains(&tag.len())
        && tag.bytes().all(|b| is_word(b) || b == b'.' || b == b'-')
        && tag.bytes().next().is_some_and(is_word)
}

/// Host name, IPv4 address or IPv6 address in brackets, with an optional port.
fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            let is_address = !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
            return is_address && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
        }
        None => domain.split_once(':').map_or((domain, None), |(host, port)| (host, Some(port))),
    };
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().zip(bytes.last()).is_some_and(|(a, z)| a.is_ascii_alphanumeric() && z.is_ascii_alphanumeric())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_port(port: &str) -> bool {
    !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
}

/// `[a-z0-9]+` groups, separated by `.`, `_`, `__` or any number of `-`.
fn is_path_component(component: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut separators = component.split(is_letter).filter(|separator| !separator.is_empty());
    let is_separator = |s: &str| matches!(s, "." | "_" | "__") || s.bytes().all(|b| b == b'-');
    component.starts_with(is_letter) && component.ends_with(is_letter) && separators.all(is_separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn references_are_normalized_as_containerd_does() {
        let pinned = format!("a/b:1@sha256:{HEX}");
        let normal = format!("docker.io/a/b@sha256:{HEX}");
        for (text, expected) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1.28", "docker.io/library/busybox:1.28"),
            ("index.docker.io/busybox", "docker.io/library/busybox:latest"),
            ("docker.io/a/b", "docker.io/a/b:latest"),
            ("localhost/a", "localhost/a:latest"),
            ("localhost:5000/a:b", "localhost:5000/a:b"),
            ("[::1]:5000/a", "[::1]:5000/a:latest"),
            ("registry.k8s.io/a__b/c--d.e:V1.0_x", "registry.k8s.io/a__b/c--d.e:V1.0_x"),
            (&pinned, &normal),
        ] {
            assert_eq!(Reference::parse(text).unwrap().to_string(), expected, "{text}");
            assert_eq!(Reference::parse(expected).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn malformed_references_are_refused_in_upstreams_words() {
        for text in ["", ":", "a:", "a@", "a b", "a/../b", "/a", "a//b", "a_.b", "-a", "a:x/y:", "x.y:z/a", "é", "a/b/"]
        {
            assert_eq!(Reference::parse(text), Err(InvalidReference::Format), "{text}");
        }
        let upper = Reference::parse("Busybox").unwrap_err().to_string();
        assert_eq!(upper, "invalid reference format: repository name (library/Busybox) must be lowercase");
        assert_eq!(Reference::parse(HEX), Err(InvalidReference::Hexadecimal(HEX.to_owned())));
        assert_eq!(Reference::parse(&"a".repeat(250)), Err(InvalidReference::TooLong));
        assert_eq!(Reference::parse(&format!("a@sha512:{HEX}{HEX}")), Err(InvalidReference::Format));
    }
}
