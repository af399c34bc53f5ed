//! Validation of the certificate and key of a TLS Secret, with the errors of Go's `tls.X509KeyPair`.

use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    sign::CertifiedKey,
};

/// Returns the error of Go's `tls.X509KeyPair` for a certificate and a key in PEM.
pub(super) fn x509_key_pair_error(certificate: &[u8], key: &[u8]) -> Option<&'static str> {
    let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(certificate).collect();
    let Ok(chain) = chain else { return Some("x509: malformed certificate") };
    if chain.is_empty() {
        return Some(match PrivateKeyDer::from_pem_slice(certificate) {
            Ok(_) => {
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched"
            }
            Err(_) => "tls: failed to find any PEM data in certificate input",
        });
    }
    let key = match PrivateKeyDer::from_pem_slice(key) {
        Ok(key) => key,
        Err(pem::Error::NoItemsFound) if CertificateDer::from_pem_slice(key).is_ok() => {
            return Some("tls: found a certificate rather than a key in the PEM for the private key");
        }
        Err(pem::Error::NoItemsFound) => return Some("tls: failed to find any PEM data in key input"),
        Err(_) => return Some("tls: failed to parse private key"),
    };
    let Ok(key) = ring::default_provider().key_provider.load_private_key(key) else {
        return Some("tls: failed to parse private key");
    };
    match CertifiedKey::new(chain, key).keys_match() {
        // A key that does not expose its public key cannot be compared.
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => None,
        Err(rustls::Error::InconsistentKeys(_)) => Some("tls: private key does not match public key"),
        Err(_) => Some("x509: malformed certificate"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mismatched_certificate_and_key_are_reported() {
        let generate = || rcgen::generate_simple_self_signed(["a.example.com".to_owned()]).expect("a certificate");
        let (one, other) = (generate(), generate());
        let (certificate, key) = (one.cert.pem(), one.signing_key.serialize_pem());
        let check = |certificate: &str, key: &str, expected: Option<&str>| {
            assert_eq!(x509_key_pair_error(certificate.as_bytes(), key.as_bytes()), expected);
        };
        check(&certificate, &key, None);
        let others = other.signing_key.serialize_pem();
        check(&certificate, &others, Some("tls: private key does not match public key"));
        check("", &key, Some("tls: failed to find any PEM data in certificate input"));
        check(&certificate, "", Some("tls: failed to find any PEM data in key input"));
        let switched = "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched";
        check(&key, &certificate, Some(switched));
        let certificate_as_key = "tls: found a certificate rather than a key in the PEM for the private key";
        check(&certificate, &certificate, Some(certificate_as_key));
        let malformed = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        check(&certificate, malformed, Some("tls: failed to parse private key"));
    }
}
