//! SHA-256 digests of content.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{fmt, str::FromStr};

/// SHA-256 digest: `sha256:` and 64 lower-case hexadecimal digits, which are safe in file names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// Invalid digest, with the message of `github.com/opencontainers/go-digest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// No algorithm, or digits that are not lower-case hexadecimal.
    #[error("invalid checksum digest format")]
    Format,
    /// Another number of digits than the algorithm has.
    #[error("invalid checksum digest length")]
    Length,
    /// Another algorithm than SHA-256.
    #[error("unsupported digest algorithm")]
    Algorithm,
}

impl Digest {
    /// Computes the digest of content.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// Returns the digest of everything that was hashed.
    #[must_use]
    pub fn finish(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }

    /// Parses the hexadecimal digits alone.
    ///
    /// # Errors
    /// If they are not 64 lower-case hexadecimal digits.
    pub fn from_hex(hex: &str) -> Result<Self, DigestError> {
        if hex.len() != 64 {
            return Err(DigestError::Length);
        }
        if hex.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(DigestError::Format);
        }
        let bytes = HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).map_err(|_| DigestError::Format)?;
        bytes.try_into().map(Self).map_err(|_| DigestError::Length)
    }

    /// Returns the hexadecimal digits, without the algorithm.
    #[must_use]
    pub fn hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let (algorithm, hex) = text.split_once(':').ok_or(DigestError::Format)?;
        if algorithm != "sha256" {
            let is_word = !algorithm.is_empty() && algorithm.bytes().all(|b| b.is_ascii_alphanumeric());
            return Err(if is_word { DigestError::Algorithm } else { DigestError::Format });
        }
        Self::from_hex(hex)
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_content_is_parsed_back() {
        let digest = Digest::of(b"");
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest.to_string(), text);
        assert_eq!((text.parse(), Digest::from_hex(&text[7..])), (Ok(digest), Ok(digest)));
        assert_eq!(digest.hex(), text[7..]);
        assert_eq!(Digest::finish(Sha256::new_with_prefix(b"")), digest);
        let json = serde_json::to_string(&digest).unwrap();
        assert_eq!((json.as_str(), serde_json::from_str(&json).unwrap()), (&*format!("{text:?}"), digest));
    }

    #[test]
    fn invalid_digest_is_rejected() {
        let hex = Digest::of(b"").hex();
        for (text, error) in [
            (String::new(), DigestError::Format),
            (hex.clone(), DigestError::Format),
            ("sha256:".to_owned(), DigestError::Length),
            (format!("sha256:{}", &hex[1..]), DigestError::Length),
            (format!(":{hex}"), DigestError::Format),
            (format!("sha256:{}", hex.to_uppercase()), DigestError::Format),
            (format!("sha256:{}g", &hex[1..]), DigestError::Format),
            (format!("sha256:../{}", &hex[3..]), DigestError::Format),
            (format!("sha256:../../{}", &hex[6..]), DigestError::Format),
            ("sha256:00".to_owned(), DigestError::Length),
            (format!("sha256:{hex}0"), DigestError::Length),
            (format!("sha512:{hex}{hex}"), DigestError::Algorithm),
        ] {
            assert_eq!(text.parse::<Digest>(), Err(error), "{text}");
            assert!(text.strip_prefix("sha256:").is_none_or(|hex| Digest::from_hex(hex) == Err(error)), "{text}");
            serde_json::from_value::<Digest>(text.into()).unwrap_err();
        }
    }
}
