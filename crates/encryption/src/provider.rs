//! Providers (`prefixTransformers`): the prefix of encrypted data names the provider and the key.

use crate::{
    cipher::{Algorithm, Cipher},
    config::{KeyConfiguration, ProviderConfiguration},
    validate::key_bytes,
};
use serde::de::IgnoredAny;
use std::sync::Arc;
use store::{StoredForm, TransformError};

/// Prefix of all encrypted data.
const ENCRYPTED: &[u8] = b"k8s:enc:";
const AES_CBC: &str = "k8s:enc:aescbc:v1:";
const AES_GCM: &str = "k8s:enc:aesgcm:v1:";
const SECRETBOX: &str = "k8s:enc:secretbox:v1:";

/// Encryption provider of an `EncryptionConfiguration`.
pub(crate) enum Provider {
    /// Stores data unencrypted.
    Identity,
    /// Encrypts with the first key, and decrypts with any key.
    Encrypting {
        /// Prefix of the encrypted data: provider and version.
        prefix: &'static str,
        keys: Vec<NamedKey>,
        /// Error text for data whose key is not configured.
        no_key: &'static str,
    },
}

pub(crate) struct NamedKey {
    /// The key's name and a colon.
    prefix: String,
    cipher: Cipher,
}

impl Provider {
    /// Creates the provider of a validated configuration.
    pub(crate) fn new(configuration: &ProviderConfiguration) -> Self {
        let ProviderConfiguration { aesgcm, aescbc, secretbox, .. } = configuration;
        let aes = "no matching key was found for the provided AES transformer";
        let provider = |algorithm, prefix, keys: &[KeyConfiguration], no_key| {
            let cipher = |key| Cipher::new(algorithm, key_bytes(key).unwrap_or_default());
            let keys = keys.iter().map(|key| NamedKey { prefix: format!("{}:", key.name), cipher: cipher(key) });
            Self::Encrypting { prefix, keys: keys.collect(), no_key }
        };
        match (aesgcm, aescbc, secretbox) {
            (Some(keys), _, _) => provider(Algorithm::AesGcm, AES_GCM, keys, aes),
            (_, Some(keys), _) => provider(Algorithm::AesCbc, AES_CBC, keys, aes),
            (_, _, Some(keys)) => provider(
                Algorithm::Secretbox,
                SECRETBOX,
                keys,
                "no matching key was found for the provided Secretbox transformer",
            ),
            _ => Self::Identity,
        }
    }

    pub(crate) fn encrypts(&self) -> bool {
        matches!(self, Self::Encrypting { .. })
    }

    /// Encrypts data. Returns `None` if the data is stored unencrypted.
    pub(crate) fn encrypt(&self, data: &[u8], storage_key: &str) -> Result<Option<Vec<u8>>, TransformError> {
        let Self::Encrypting { prefix, keys, no_key } = self else { return Ok(None) };
        let key = keys.first().ok_or_else(|| TransformError((*no_key).to_owned()))?;
        key.cipher.encrypt(&format!("{prefix}{}", key.prefix), data, storage_key).map(Some)
    }

    /// Decrypts stored data. Returns `None` if its prefix is not the provider's.
    fn decrypt(&self, stored: &[u8], storage_key: &str) -> Option<Result<StoredForm, TransformError>> {
        let Self::Encrypting { prefix, keys, no_key } = self else {
            return (!stored.starts_with(ENCRYPTED)).then(|| Ok(StoredForm::default()));
        };
        let stored = stored.strip_prefix(prefix.as_bytes())?;
        let mut errors = Vec::new();
        for (i, key) in keys.iter().enumerate() {
            let Some(encrypted) = stored.strip_prefix(key.prefix.as_bytes()) else { continue };
            match key.cipher.decrypt(encrypted, storage_key).and_then(is_json) {
                Ok(data) => return Some(Ok(StoredForm { data: Some(data), is_stale: i > 0 })),
                Err(error) => errors.push(error),
            }
        }
        Some(Err(aggregate(errors, no_key)))
    }
}

/// Decrypts with the first provider that succeeds. The data is stale if that is not the provider that encrypts.
pub(crate) fn decrypt(
    providers: &[Arc<Provider>],
    stored: &[u8],
    storage_key: &str,
) -> Result<StoredForm, TransformError> {
    let mut errors = Vec::new();
    for (i, provider) in providers.iter().enumerate() {
        match provider.decrypt(stored, storage_key) {
            Some(Ok(form)) => return Ok(StoredForm { is_stale: form.is_stale || i > 0, ..form }),
            Some(Err(error)) => errors.push(error),
            None => {}
        }
    }
    Err(aggregate(errors, "no matching prefix found"))
}

/// Reads data of a resource without a configuration, which must not be encrypted.
pub(crate) fn read_unencrypted(stored: &[u8]) -> Result<StoredForm, TransformError> {
    let error = || TransformError("identity transformer tried to read encrypted data".to_owned());
    if stored.starts_with(ENCRYPTED) { Err(error()) } else { Ok(StoredForm::default()) }
}

/// Checks that decrypted data is JSON: AES-CBC is not authenticated, so a wrong key may yield arbitrary bytes.
fn is_json(data: Vec<u8>) -> Result<Vec<u8>, TransformError> {
    match serde_json::from_slice::<IgnoredAny>(&data) {
        Ok(IgnoredAny) => Ok(data),
        Err(_) => Err(TransformError("unable to decode the decrypted data".to_owned())),
    }
}

/// Aggregates distinct errors, or returns the text if there are none.
fn aggregate(errors: Vec<TransformError>, none: &str) -> TransformError {
    let mut texts: Vec<String> = Vec::new();
    for TransformError(text) in errors {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [] => TransformError(none.to_owned()),
        [one] => TransformError(one.clone()),
        all => TransformError(format!("[{}]", all.join(", "))),
    }
}

/// Returns the prefix with provider and key for error messages: `k8s:enc:aescbc:v1:key1:`.
pub(crate) fn display_prefix(stored: &[u8]) -> Option<String> {
    const MAX: usize = 128;
    let begin = stored.get(..stored.len().min(MAX)).filter(|begin| begin.starts_with(ENCRYPTED))?;
    let colons = begin.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at);
    let prefix = begin.get(..=colons.take(5).last()?)?;
    let text = std::str::from_utf8(prefix).ok()?;
    (!text.contains(char::is_control)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests;
