//! Image references (`github.com/distribution/reference`): those of Pods.

pub(crate) use runtime::ReferenceError;
use runtime::ReferenceParts;

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
        let ReferenceParts { domain, path, tag, digest } = ReferenceParts::parse(name)?;
        if !digest.is_none_or(is_digest) {
            return Err(ReferenceError::InvalidFormat);
        }
        let repository = format!("{domain}/{path}");
        let (canonical, is_untagged) = match (tag, digest) {
            (_, Some(digest)) => (format!("{repository}@{digest}"), false),
            (Some(tag), None) => (format!("{repository}:{tag}"), false),
            (None, None) => (format!("{repository}:latest"), true),
        };
        Ok(Self { canonical, repository, image: if is_untagged { format!("{name}:latest") } else { name.to_owned() } })
    }
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
        for name in ["a b", "a@b", "a@sha256:00", "a@md5:0123456789abcdef0123456789abcdef"] {
            assert_eq!(Reference::parse(name).unwrap_err().to_string(), "invalid reference format", "{name:?}");
        }
    }
}
