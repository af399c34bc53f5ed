//! Go's text of TLS errors.

use rustls::{CertificateError, Error};
use std::io;

/// Returns Go's text of a failed handshake.
#[must_use]
pub fn go_error_text(error: &io::Error) -> String {
    let cause = match error.get_ref().and_then(|e| e.downcast_ref::<Error>()) {
        // The server does not have the certificate's key.
        Some(Error::InvalidCertificate(CertificateError::BadSignature)) => {
            return "tls: invalid signature by the server certificate".to_owned();
        }
        Some(Error::InvalidCertificate(cause)) => cause,
        Some(Error::InvalidMessage(_)) => return "http: server gave HTTP response to HTTPS client".to_owned(),
        _ if error.kind() == io::ErrorKind::UnexpectedEof => return "EOF".to_owned(),
        _ => return error.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {}", certificate_error_text(cause))
}

fn certificate_error_text(error: &CertificateError) -> String {
    let unknown_authority = || "certificate signed by unknown authority".to_owned();
    match error {
        CertificateError::UnknownIssuer => unknown_authority(),
        // The certificate of a CA that is not trusted.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => unknown_authority(),
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => "certificate has expired or is not yet valid".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| unquote_name(name)).collect();
            format!("certificate is valid for {}, not {}", names.join(", "), expected.to_str())
        }
        other => other.to_string(),
    }
}

/// Returns the name in `DnsName("name")`, rustls' debug form of a subject alternative name.
fn unquote_name(certificate: &str) -> &str {
    certificate.split('"').nth(1).unwrap_or(certificate)
}
