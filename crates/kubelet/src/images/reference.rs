//! Image references (`github.com/distribution/reference`): parsing and normalization.

/// Default registry.
const DEFAULT_DOMAIN: &str = "docker.io";
const MAX_REPOSITORY_LENGTH: usize = 255;

/// Invalid image reference, with upstream's message.
#[derive(Debug, thiserror::Error)]
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

/// Parsed image reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Registry and path, for example `docker.io/library/busybox`: the key for credentials.
    pub(crate) repository: String,
    /// Repository with tag or digest: the runtime's name of the image.
    pub(crate) canonical: String,
    /// Image for requests to the runtime: the name as written, with `:latest` if it has neither tag nor digest.
    pub(crate) image: String,
}

impl Reference {
    /// Parses a reference.
    ///
    /// # Errors
    /// Fails with upstream's message.
    pub(crate) fn parse(name: &str) -> Result<Self, ReferenceError> {
        let is_hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        if name.len() == 64 && name.bytes().all(is_hex) {
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
        let valid = is_domain(&domain)
            && path.split('/').all(is_path_component)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(is_digest);
        if !valid {
            return Err(ReferenceError::InvalidFormat);
        }
        let repository = format!("{domain}/{library}{path}");
        if repository.len() > MAX_REPOSITORY_LENGTH {
            return Err(ReferenceError::TooLong);
        }
        let (canonical, is_untagged) = match (tag, digest) {
            (_, Some(digest)) => (format!("{repository}@{digest}"), false),
            (Some(tag), None) => (format!("{repository}:{tag}"), false),
            (None, None) => (format!("{repository}:latest"), true),
        };
        Ok(Self { canonical, repository, image: if is_untagged { format!("{name}:latest") } else { name.to_owned() } })
    }
}

/// Splits off the first component if it looks like a host.
fn split_domain(name: &str) -> (String, &str) {
    match name.split_once('/') {
        Some((host, rest))
            if host.contains(['.', ':']) || host == "localhost" || host.bytes().any(|b| b.is_ascii_uppercase()) =>
        {
            let host = if host == "index.docker.io" { DEFAULT_DOMAIN } else { host };
            (host.to_owned(), rest)
        }
        _ => (DEFAULT_DOMAIN.to_owned(), name),
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
    let separators = part.split(|c: char| u8::try_from(c).is_ok_and(is_word)).filter(|s| !s.is_empty());
    ends(part.bytes().next())
        && ends(part.bytes().last())
        && separators.into_iter().all(|s| matches!(s, "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let is_rest = |b: u8| is_word(b) || b == b'.' || b == b'-';
    tag.len() <= 128 && tag.bytes().next().is_some_and(is_word) && tag.bytes().all(is_rest)
}

fn is_digest(digest: &str) -> bool {
    let length = match digest.split_once(':').map(|(algorithm, _)| algorithm) {
        Some("sha256") => 64,
        Some("sha384") => 96,
        Some("sha512") => 128,
        _ => return false,
    };
    let hex = digest.split_once(':').map_or("", |(_, hex)| hex);
    hex.len() == length && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::Reference;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[track_caller]
    fn check(name: &str, canonical: &str, image: &str) {
        let found = Reference::parse(name).unwrap();
        assert_eq!((found.canonical.as_str(), found.image.as_str()), (canonical, image));
        let rest = canonical.strip_prefix(&found.repository).unwrap();
        assert!(rest.starts_with([':', '@']) && !rest.contains('/'), "{found:?}");
    }

    #[test]
    fn image_names_are_normalized() {
        for (name, canonical, image) in [
            ("busybox", "docker.io/library/busybox:latest", "busybox:latest"),
            ("busybox:1.28", "docker.io/library/busybox:1.28", "busybox:1.28"),
            ("docker.io/library/busybox:1.28", "docker.io/library/busybox:1.28", "docker.io/library/busybox:1.28"),
            ("docker.io/busybox", "docker.io/library/busybox:latest", "docker.io/busybox:latest"),
            ("index.docker.io/a/b", "docker.io/a/b:latest", "index.docker.io/a/b:latest"),
            ("a/b/c", "docker.io/a/b/c:latest", "a/b/c:latest"),
            ("127.0.0.1:9/nothing:1", "127.0.0.1:9/nothing:1", "127.0.0.1:9/nothing:1"),
            ("localhost/a", "localhost/a:latest", "localhost/a:latest"),
            ("HOST/a", "HOST/a:latest", "HOST/a:latest"),
            ("[::1]:5000/a_b__c---d.e", "[::1]:5000/a_b__c---d.e:latest", "[::1]:5000/a_b__c---d.e:latest"),
        ] {
            check(name, canonical, image);
        }
        for tag in ["", ":1"] {
            let name = format!("quay.io/a/b{tag}@{DIGEST}");
            check(&name, &format!("quay.io/a/b@{DIGEST}"), &name);
        }
    }

    #[test]
    fn invalid_image_name_is_rejected_with_upstreams_message() {
        for (name, message) in [
            ("Busybox", "invalid reference format: repository name (library/Busybox) must be lowercase"),
            ("a/Bc:1", "invalid reference format: repository name (a/Bc) must be lowercase"),
            (
                &DIGEST[7..],
                &format!("invalid repository name ({}), cannot specify 64-byte hexadecimal strings", &DIGEST[7..]),
            ),
            (&format!("a/{}", "b".repeat(300)), "repository name must not be more than 255 characters"),
        ] {
            assert_eq!(Reference::parse(name).unwrap_err().to_string(), message);
        }
        for name in [
            "",
            " ",
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
            "a@md5:0123456789abcdef0123456789abcdef",
        ] {
            assert_eq!(Reference::parse(name).unwrap_err().to_string(), "invalid reference format", "{name:?}");
        }
    }
}
