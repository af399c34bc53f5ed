//! Digests of content: SHA-256 only, as everything that registries serve.

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{fmt, str::FromStr};

/// Prefix of a digest's text: the algorithm.
const ALGORITHM: &str = "sha256:";

/// Number of letters of the hexadecimal part.
const HEX_LETTERS: usize = 64;

/// A text that is not a SHA-256 digest. Contains the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid digest {0:?}: expected sha256: and 64 hexadecimal letters")]
pub struct InvalidDigest(pub String);

/// SHA-256 digest of a blob or an uncompressed layer. Its text is `sha256:<hex>`; the letters are safe in file names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest {
    hex: String,
}

impl Digest {
    /// Returns the digest of these bytes.
    #[must_use]
    pub fn sha256(bytes: &[u8]) -> Self {
        Self { hex: HEXLOWER.encode(&Sha256::digest(bytes)) }
    }

    /// Returns the digest of what was hashed.
    pub(crate) fn finish(hasher: Sha256) -> Self {
        Self { hex: HEXLOWER.encode(&hasher.finalize()) }
    }

    /// Parses the hexadecimal part alone.
    ///
    /// # Errors
    /// If it is not 64 lower-case hexadecimal letters.
    pub fn from_hex(hex: &str) -> Result<Self, InvalidDigest> {
        let is_hex = hex.len() == HEX_LETTERS && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if is_hex { Ok(Self { hex: hex.to_owned() }) } else { Err(InvalidDigest(hex.to_owned())) }
    }

    /// Returns the hexadecimal part.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.hex
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}{}", self.hex)
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let invalid = || InvalidDigest(text.to_owned());
        Self::from_hex(text.strip_prefix(ALGORITHM).ok_or_else(invalid)?).map_err(|_| invalid())
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl TryFrom<&oci_spec::image::Digest> for Digest {
    type Error = InvalidDigest;

    fn try_from(digest: &oci_spec::image::Digest) -> Result<Self, InvalidDigest> {
        digest.as_ref().parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sha256_digests_are_accepted() {
        let hex = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let digest: Digest = format!("sha256:{hex}").parse().unwrap();
        assert_eq!((&digest, digest.hex()), (&Digest::sha256(b""), hex));
        assert_eq!(digest.to_string(), format!("sha256:{hex}"));
        let short = format!("sha256:{}", &hex[1..]);
        let upper = format!("sha256:{}", hex.to_uppercase());
        let path = format!("sha256:../../{}", &hex[6..]);
        let sha512 = format!("sha512:{hex}{hex}");
        for text in ["", "sha256:", hex, &short, &upper, &path, &sha512] {
            assert_eq!(text.parse::<Digest>(), Err(InvalidDigest(text.to_owned())));
        }
        serde_json::from_str::<Digest>(r#""sha256:../x""#).unwrap_err();
    }
}
