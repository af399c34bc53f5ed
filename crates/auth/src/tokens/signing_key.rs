//! Signs and verifies JSON Web Tokens with ES256 and the cluster's key (RFC 7515, RFC 7518).
//!
//! Own code: the crate `jsonwebtoken` has no backend for `ring`, and its others would be a second cryptographic library of
//! 40 crates. A backend of our own would be longer than this, process-wide, and parse the key for each token.

use crate::pki::{CredentialError, PkiError};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey},
};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Algorithm of the signatures (RFC 7518).
pub const ALGORITHM: &str = "ES256";

/// Signing key of service account tokens.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    /// Key ID (`kid`).
    id: String,
    random: SystemRandom,
}

impl std::fmt::Debug for SigningKey {
    /// Omits the private key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Parses a P-256 key in PKCS#8, as [`crate::pki::Pki`] stores it.
    ///
    /// # Errors
    /// When it is another kind of key.
    pub fn from_pem(pem: &str) -> Result<Self, PkiError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(|e| PkiError::SigningKey(e.into()))?;
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_pkcs8_der(), &random)
            .map_err(|error| PkiError::SigningKey(CredentialError::Key(error)))?;
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(pair.public_key().as_ref()));
        Ok(Self { pair, id, random })
    }

    /// Returns a signed token with these claims, or `None` without a source of randomness.
    pub fn sign(&self, claims: &Value) -> Option<String> {
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let text = format!("{}.{}", encode(&json!({"alg": ALGORITHM, "kid": self.id})), encode(claims));
        let signature = self.pair.sign(&self.random, text.as_bytes()).ok()?;
        Some(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Returns the public key as a JSON Web Key (RFC 7517). Its coordinates are the halves of the point after its first
    /// byte.
    pub fn public(&self) -> Value {
        let point = self.pair.public_key().as_ref().get(1..).unwrap_or_default();
        let (x, y) = point.split_at(point.len() / 2);
        let encode = |half: &[u8]| URL_SAFE_NO_PAD.encode(half);
        json!({"use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": ALGORITHM, "x": encode(x), "y": encode(y)})
    }

    /// Returns the claims of a token that this key has signed. Does not check its validity period.
    pub(super) fn verify(&self, token: &str) -> Option<Value> {
        let (text, signature) = token.rsplit_once('.')?;
        let (header, claims) = text.split_once('.')?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
        if header["alg"] != ALGORITHM {
            return None;
        }
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref());
        key.verify(text.as_bytes(), &decode(signature)?).ok()?;
        serde_json::from_slice(&decode(claims)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::hmac;

    fn key() -> SigningKey {
        SigningKey::from_pem(&rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap()
    }

    #[test]
    fn only_tokens_with_a_valid_signature_are_verified() {
        let (key, claims) = (key(), json!({"sub": "x"}));
        let token = key.sign(&claims).unwrap();
        assert_eq!(key.verify(&token), Some(claims));
        let parts: Vec<&str> = token.split('.').collect();
        let forged = URL_SAFE_NO_PAD.encode(json!({"sub": "y"}).to_string());
        let none = URL_SAFE_NO_PAD.encode(json!({"alg": "none"}).to_string());
        let with_public_key_as_secret = {
            let header = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": key.id}).to_string());
            let text = format!("{header}.{}", parts[1]);
            let secret = hmac::Key::new(hmac::HMAC_SHA256, key.pair.public_key().as_ref());
            format!("{text}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&secret, text.as_bytes())))
        };
        for wrong in [
            format!("{}.{forged}.{}", parts[0], parts[2]),
            format!("{none}.{}.", parts[1]),
            with_public_key_as_secret,
            format!("{}.{}", parts[0], parts[1]),
            String::new(),
            "..".to_owned(),
            "\u{e4}.\u{f6}.\u{fc}".to_owned(),
        ] {
            assert_eq!(key.verify(&wrong), None, "{wrong}");
        }
        assert_eq!(self::key().verify(&token), None, "another cluster's key");
    }

    #[test]
    fn other_kind_of_key_is_rejected() {
        assert!(SigningKey::from_pem("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").is_err());
    }
}
