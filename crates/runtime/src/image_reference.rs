//! Image references (`github.com/distribution/reference`): grammar and normalization of names and tags.

/// Default registry.
pub const DEFAULT_DOMAIN: &str = "docker.io";
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
}

/// Parts of an image reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferenceParts<'a> {
    /// Registry with its port, for example `docker.io`.
    pub domain: &'a str,
    /// Path of the repository in the registry, for example `library/busybox`.
    pub path: String,
    /// Tag, if the reference has one.
    pub tag: Option<&'a str>,
    /// Digest, if the reference has one. It is not checked: callers differ in the algorithms that they know.
    pub digest: Option<&'a str>,
}

impl<'a> ReferenceParts<'a> {
    /// Parses and normalizes a reference (upstream's `ParseDockerRef`).
    ///
    /// # Errors
    /// Fails with upstream's message.
    pub fn parse(name: &'a str) -> Result<Self, ReferenceError> {
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
        let path = format!("{library}{path}");
        if path.len() > MAX_REPOSITORY_LENGTH {
            return Err(ReferenceError::TooLong);
        }
        Ok(Self { domain, path, tag, digest })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_references_are_normalized() {
        for (name, expected) in [
            ("busybox", ("docker.io", "library/busybox", None, None)),
            ("index.docker.io/a/b:1", ("docker.io", "a/b", Some("1"), None)),
            ("[::1]:5000/a@x:y", ("[::1]:5000", "a", None, Some("x:y"))),
            ("HOST/a__b/c--d.e:V1.0_x@d", ("HOST", "a__b/c--d.e", Some("V1.0_x"), Some("d"))),
        ] {
            let parts = ReferenceParts::parse(name).unwrap();
            assert_eq!((parts.domain, parts.path.as_str(), parts.tag, parts.digest), expected);
        }
    }

    #[test]
    fn invalid_reference_is_rejected_with_upstreams_message() {
        let digits = "0123456789abcdef".repeat(4);
        for (name, message) in [
            ("Busybox", "invalid reference format: repository name (library/Busybox) must be lowercase".to_owned()),
            ("a/Bc:1", "invalid reference format: repository name (a/Bc) must be lowercase".to_owned()),
            (&digits, format!("invalid repository name ({digits}), cannot specify 64-byte hexadecimal strings")),
            (&"a".repeat(250), "repository name must not be more than 255 characters".to_owned()),
            (&format!("a/{}", "b".repeat(300)), "repository name must not be more than 255 characters".to_owned()),
        ] {
            assert_eq!(ReferenceParts::parse(name).unwrap_err().to_string(), message);
        }
        for name in [
            "", " ", ":", "a:x/y:", "x.y:z/a", "a/b/", "a_.b", "a b", "a:", "a/", "/a", "a//b", "a:b:c", "a..b",
            "a___b", "-a", "a-", "a:-b", "host:x/a", "a.-b.c/d", "../a", "a/../b", "é", "a\0",
        ] {
            assert_eq!(ReferenceParts::parse(name).unwrap_err().to_string(), "invalid reference format", "{name:?}");
        }
    }
}
