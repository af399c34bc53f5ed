//! Vectors were made by other implementations, with the bytes 0, 1, 2, … as the key and 0x40, 0x41, … as the nonce:
//! AES by Python's `cryptography` 48 (OpenSSL 3.0: `Cipher(AES, CBC)` with `PKCS7`, `AESGCM`); secretbox by XSalsa20 and
//! Poly1305 written in Python from their papers, checked with the vector of "Cryptography in NaCl", section 10.

use super::*;

const DATA: &[u8] = br#"{"kind":"Secret","data":{"k":"dg=="}}"#;
const STORAGE_KEY: &str = "/registry/secrets/default/s";

fn cipher(algorithm: Algorithm, length: u8) -> Cipher {
    Cipher::new(algorithm, Zeroizing::new((0..length).collect()))
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[track_caller]
fn check_vector(algorithm: Algorithm, length: u8, hex: &str) {
    let (cipher, stored) = (cipher(algorithm, length), bytes(hex));
    let nonce = &stored[..cipher.nonce_len()];
    let encrypted = cipher.encrypt_with(nonce, DATA, STORAGE_KEY).unwrap();
    assert!([nonce, &encrypted].concat() == stored, "{length}");
    assert_eq!(cipher.decrypt(&stored, STORAGE_KEY).unwrap(), DATA);
}

#[test]
fn aescbc_format_matches_upstream() {
    let check = |length, hex| check_vector(Algorithm::AesCbc, length, hex);
    check(
        16,
        "404142434445464748494a4b4c4d4e4f15874c915e6e2636414e7e9eef2973498bb9e485918a78237eb503c5ee7071520774bc2269cfa21f127c9681ac54df46",
    );
    check(
        24,
        "404142434445464748494a4b4c4d4e4fc085fd35c756881b15c5db1e7c61501481988c67af7a0eface2ed973d2dd5760ce1622f78f225136f1e6287c6f26acc1",
    );
    check(
        32,
        "404142434445464748494a4b4c4d4e4f3ef6a0b1627b519d157f350f7bb7827d421d6ceed4ec5450d05043d35d931d964ed0a89ce4e05a64257ac5df8276b6af",
    );
}

#[test]
fn aesgcm_format_matches_upstream() {
    let check = |length, hex| check_vector(Algorithm::AesGcm, length, hex);
    check(
        16,
        "404142434445464748494a4b420b02a3032fdb8aaeea267c8c4209da605fdd0a69b3b7a4c062a30346fe676e30e77a17e65b877cba4056d8a64046effce4bf14c5",
    );
    check(
        24,
        "404142434445464748494a4b5d2e3713ff337a8fcf40e0df2f566748a4d962fbb05a5da2b46d8a8df61e4203a2d0c7eafc8b65a68fe67f472978cd4a16c93ce33c",
    );
    check(
        32,
        "404142434445464748494a4b999bc54a4858a539ef977255e901677955e4363dc3542d190c6525c7ad3189bca535d1d1a33ae6fc21f7fe4a27f26328c09bb5f88e",
    );
}

#[test]
fn secretbox_format_matches_upstream() {
    check_vector(
        Algorithm::Secretbox,
        32,
        "404142434445464748494a4b4c4d4e4f5051525354555657de2566ec859b07b71604dbecdeca38d731353e1054359910e40a14021aec2ed3e215223519227df29ff749e8c3fbe733e9094b6c93",
    );
}

#[test]
fn nonces_are_unique() {
    for algorithm in [Algorithm::AesCbc, Algorithm::AesGcm, Algorithm::Secretbox] {
        let cipher = cipher(algorithm, 32);
        let encrypt = || cipher.encrypt("p:", DATA, STORAGE_KEY).unwrap();
        let (one, other) = (encrypt(), encrypt());
        let nonce = |stored: &[u8]| stored[2..2 + cipher.nonce_len()].to_vec();
        assert!(nonce(&one) != nonce(&other) && one.starts_with(b"p:"));
        assert_eq!(cipher.decrypt(&one[2..], STORAGE_KEY).unwrap(), DATA);
    }
}

/// Checks the error of decrypting modified data.
#[track_caller]
fn check_refused(algorithm: Algorithm, change: impl Fn(&mut Vec<u8>), expected: &str) {
    let cipher = cipher(algorithm, 32);
    let mut stored = cipher.encrypt("", DATA, STORAGE_KEY).unwrap();
    change(&mut stored);
    assert_eq!(cipher.decrypt(&stored, STORAGE_KEY).unwrap_err().0, expected);
}

#[test]
fn modified_data_is_rejected_with_upstream_errors() {
    let short = "the stored data was shorter than the required size";
    check_refused(Algorithm::AesCbc, |stored| stored.truncate(15), short);
    check_refused(Algorithm::AesCbc, |stored| stored.truncate(16), "invalid PKCS7 data (empty or not padded)");
    check_refused(
        Algorithm::AesCbc,
        |stored| stored.truncate(33),
        "the stored data is not a multiple of the block size",
    );
    check_refused(Algorithm::AesGcm, |stored| stored.truncate(11), short);
    check_refused(Algorithm::AesGcm, |stored| stored.truncate(12), "cipher: message authentication failed");
    check_refused(Algorithm::AesGcm, |stored| stored[20] ^= 1, "cipher: message authentication failed");
    check_refused(Algorithm::Secretbox, |stored| stored.truncate(39), short);
    check_refused(Algorithm::Secretbox, |stored| stored[50] ^= 1, "output array was not large enough for encryption");
}

#[test]
fn aesgcm_rejects_data_of_another_object() {
    let cipher = cipher(Algorithm::AesGcm, 32);
    let stored = cipher.encrypt("", DATA, STORAGE_KEY).unwrap();
    assert!(cipher.decrypt(&stored, "/registry/secrets/default/other").is_err());
}
