//! Ciphers (`k8s.io/apiserver/pkg/storage/value/encrypt`), with upstream's formats and errors.

use aes::{
    Aes128, Aes192, Aes256,
    cipher::{
        BlockDecryptMut, BlockEncryptMut, KeyIvInit,
        block_padding::{NoPadding, Pkcs7},
    },
};
use aes_gcm::{
    Aes128Gcm, Aes256Gcm, AesGcm,
    aead::{Aead, KeyInit, Nonce, Payload, consts::U12},
};
use crypto_secretbox::XSalsa20Poly1305;
use ring::rand::{SecureRandom, SystemRandom};
use store::TransformError;
use zeroize::Zeroizing;

/// The `aes-gcm` crate has no alias for 24-byte keys.
type Aes192Gcm = AesGcm<Aes192, U12>;

const BLOCK_SIZE: usize = 16;
const GCM_NONCE: usize = 12;
const SECRETBOX_NONCE: usize = 24;
const SECRETBOX_TAG: usize = 16;

/// Encryption algorithm.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// A random IV, then AES in CBC mode with PKCS#7 padding. Not authenticated.
    AesCbc,
    /// A random nonce, then AES in GCM mode with its tag. The object's storage key is authenticated, too.
    AesGcm,
    /// A random nonce, then `NaCl`'s secretbox: XSalsa20 and Poly1305.
    Secretbox,
}

/// Algorithm with a key of a valid length.
pub(crate) struct Cipher {
    algorithm: Algorithm,
    key: Zeroizing<Vec<u8>>,
}

impl Cipher {
    pub(crate) fn new(algorithm: Algorithm, key: Zeroizing<Vec<u8>>) -> Self {
        Self { algorithm, key }
    }

    /// Encrypts data behind a prefix.
    pub(crate) fn encrypt(&self, prefix: &str, data: &[u8], storage_key: &str) -> Result<Vec<u8>, TransformError> {
        let mut nonce = vec![0; self.nonce_len()];
        SystemRandom::new().fill(&mut nonce).map_err(|_| transform_error("unable to read sufficient random bytes"))?;
        let encrypted = self.encrypt_with(&nonce, data, storage_key)?;
        Ok([prefix.as_bytes(), &nonce, &encrypted].concat())
    }

    /// Decrypts data after the prefix.
    pub(crate) fn decrypt(&self, stored: &[u8], storage_key: &str) -> Result<Vec<u8>, TransformError> {
        let min_len = match self.algorithm {
            Algorithm::AesCbc | Algorithm::AesGcm => self.nonce_len(),
            Algorithm::Secretbox => SECRETBOX_NONCE + SECRETBOX_TAG,
        };
        let parts = stored.split_at_checked(self.nonce_len()).filter(|_| stored.len() >= min_len);
        let (nonce, encrypted) =
            parts.ok_or_else(|| transform_error("the stored data was shorter than the required size"))?;
        let (key, aad) = (&*self.key, storage_key.as_bytes());
        match (self.algorithm, key.len()) {
            (Algorithm::AesCbc, _) => self.decrypt_cbc(nonce, encrypted),
            (Algorithm::AesGcm, 16) => open::<Aes128Gcm>(key, nonce, encrypted, aad),
            (Algorithm::AesGcm, 24) => open::<Aes192Gcm>(key, nonce, encrypted, aad),
            (Algorithm::AesGcm, _) => open::<Aes256Gcm>(key, nonce, encrypted, aad),
            (Algorithm::Secretbox, _) => open::<XSalsa20Poly1305>(key, nonce, encrypted, &[]),
        }
        .map_err(|error| match self.algorithm {
            // Upstream's text for an authentication failure.
            Algorithm::Secretbox => transform_error("output array was not large enough for encryption"),
            Algorithm::AesCbc | Algorithm::AesGcm => error,
        })
    }

    fn nonce_len(&self) -> usize {
        match self.algorithm {
            Algorithm::AesCbc => BLOCK_SIZE,
            Algorithm::AesGcm => GCM_NONCE,
            Algorithm::Secretbox => SECRETBOX_NONCE,
        }
    }

    fn encrypt_with(&self, nonce: &[u8], data: &[u8], storage_key: &str) -> Result<Vec<u8>, TransformError> {
        let (key, aad) = (&*self.key, storage_key.as_bytes());
        match (self.algorithm, key.len()) {
            (Algorithm::AesCbc, 16) => encrypt_cbc::<cbc::Encryptor<Aes128>>(key, nonce, data),
            (Algorithm::AesCbc, 24) => encrypt_cbc::<cbc::Encryptor<Aes192>>(key, nonce, data),
            (Algorithm::AesCbc, _) => encrypt_cbc::<cbc::Encryptor<Aes256>>(key, nonce, data),
            (Algorithm::AesGcm, 16) => seal::<Aes128Gcm>(key, nonce, data, aad),
            (Algorithm::AesGcm, 24) => seal::<Aes192Gcm>(key, nonce, data, aad),
            (Algorithm::AesGcm, _) => seal::<Aes256Gcm>(key, nonce, data, aad),
            (Algorithm::Secretbox, _) => seal::<XSalsa20Poly1305>(key, nonce, data, &[]),
        }
    }

    fn decrypt_cbc(&self, iv: &[u8], encrypted: &[u8]) -> Result<Vec<u8>, TransformError> {
        if !encrypted.len().is_multiple_of(BLOCK_SIZE) {
            return Err(transform_error("the stored data is not a multiple of the block size"));
        }
        let key = &*self.key;
        let mut data = match key.len() {
            16 => decrypt_cbc::<cbc::Decryptor<Aes128>>(key, iv, encrypted),
            24 => decrypt_cbc::<cbc::Decryptor<Aes192>>(key, iv, encrypted),
            _ => decrypt_cbc::<cbc::Decryptor<Aes256>>(key, iv, encrypted),
        }?;
        let padding = data.last().copied().unwrap_or_default();
        let length = data.len().checked_sub(usize::from(padding)).filter(|_| padding > 0);
        let length = length.ok_or_else(|| transform_error("invalid PKCS7 data (empty or not padded)"))?;
        if data.iter().skip(length).any(|byte| *byte != padding) {
            return Err(transform_error("invalid padding on input"));
        }
        data.truncate(length);
        Ok(data)
    }
}

fn transform_error(text: &str) -> TransformError {
    TransformError(text.to_owned())
}

fn bad_key<E>(_: E) -> TransformError {
    transform_error("the key or nonce is of a wrong length")
}

fn seal<A: Aead + KeyInit>(key: &[u8], nonce: &[u8], data: &[u8], aad: &[u8]) -> Result<Vec<u8>, TransformError> {
    let cipher = A::new_from_slice(key).map_err(bad_key)?;
    let payload = Payload { msg: data, aad };
    cipher.encrypt(Nonce::<A>::from_slice(nonce), payload).map_err(|_| transform_error("failed to encrypt the data"))
}

fn open<A: Aead + KeyInit>(key: &[u8], nonce: &[u8], data: &[u8], aad: &[u8]) -> Result<Vec<u8>, TransformError> {
    let cipher = A::new_from_slice(key).map_err(bad_key)?;
    let payload = Payload { msg: data, aad };
    cipher
        .decrypt(Nonce::<A>::from_slice(nonce), payload)
        .map_err(|_| transform_error("cipher: message authentication failed"))
}

fn encrypt_cbc<E: KeyIvInit + BlockEncryptMut>(key: &[u8], iv: &[u8], data: &[u8]) -> Result<Vec<u8>, TransformError> {
    Ok(E::new_from_slices(key, iv).map_err(bad_key)?.encrypt_padded_vec_mut::<Pkcs7>(data))
}

fn decrypt_cbc<D: KeyIvInit + BlockDecryptMut>(key: &[u8], iv: &[u8], data: &[u8]) -> Result<Vec<u8>, TransformError> {
    let decryptor = D::new_from_slices(key, iv).map_err(bad_key)?;
    decryptor.decrypt_padded_vec_mut::<NoPadding>(data).map_err(|_| transform_error("invalid padding on input"))
}

#[cfg(test)]
mod tests;
