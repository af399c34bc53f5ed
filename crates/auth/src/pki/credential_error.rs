//! Causes for which a certificate, a request or a key cannot be used.

use super::key_usages::UnknownUsages;
use api::certificate::SubjectError;
use ring::error::KeyRejected;
use rustls::{pki_types::pem, server::VerifierBuilderError};
use x509_parser::{
    error::{PEMError, X509Error},
    nom,
};

/// Cause for which a certificate, a request or a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The PEM text is invalid.
    #[error(transparent)]
    Pem(#[from] pem::Error),
    /// The PEM text of a certificate or a request is invalid.
    #[error(transparent)]
    CertificatePem(#[from] nom::Err<PEMError>),
    /// The DER of a certificate or a request is invalid.
    #[error(transparent)]
    Der(#[from] nom::Err<X509Error>),
    /// The signature of a request or a time of a certificate is invalid.
    #[error(transparent)]
    X509(#[from] X509Error),
    /// The TLS library rejects the certificate, or its key does not match.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// No verifier of client certificates can be created.
    #[error(transparent)]
    Verifier(#[from] VerifierBuilderError),
    /// A time is out of range.
    #[error(transparent)]
    Time(#[from] jiff::Error),
    /// The key is invalid or of another kind.
    #[error("{0}")]
    Key(KeyRejected),
    /// The key of the authority is of no supported kind.
    #[error("its key is of no known kind")]
    UnknownKeyKind,
    /// The subject of a request is invalid.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// A request has unknown usages.
    #[error(transparent)]
    Usages(#[from] UnknownUsages),
    /// The kubeconfig cannot be encoded.
    #[error(transparent)]
    Kubeconfig(#[from] serde_json::Error),
}
