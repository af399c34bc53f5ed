//! Signs certificate signing requests (PKCS #10) with the cluster's CA (`pkg/controller/certificates/authority`).
//!
//! Subject and key are copied from the request byte by byte. `rcgen`, which issues the cluster's own certificates,
//! supports each attribute of a subject only once, but a client may have several organizations: its groups. `yasna` writes
//! the rest, because `rcgen` uses it, too: `x509-cert` would add eight crates and replace none.

use super::{Clock, CredentialError, PkiError, ca::Ca, key_usages};
use jiff::Timestamp;
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{KeyPair, SigningKey};
use x509_parser::{
    certification_request::X509CertificationRequest,
    extensions::{GeneralName, ParsedExtension},
    pem::parse_x509_pem,
    prelude::{FromDer, X509Certificate},
};
use yasna::{DERWriter, Tag, models::ObjectIdentifier, tags};

const AUTHORITY_KEY_IDENTIFIER: &[u64] = &[2, 5, 29, 35];
const BASIC_CONSTRAINTS: &[u64] = &[2, 5, 29, 19];
const KEY_USAGE: &[u64] = &[2, 5, 29, 15];
const EXTENDED_KEY_USAGE: &[u64] = &[2, 5, 29, 37];
const SUBJECT_ALTERNATIVE_NAME: &[u64] = &[2, 5, 29, 17];

/// Signer of certificate signing requests.
pub struct CertificateSigner {
    /// Subject of the CA, in DER.
    subject: Vec<u8>,
    /// Subject key identifier of the CA.
    key_id: Option<Vec<u8>>,
    /// Expiry of the CA, which limits the issued certificates.
    not_after: Timestamp,
    clock: Clock,
    key: KeyPair,
    /// OID of the signature algorithm, and whether it has a NULL parameter.
    algorithm: (&'static [u64], bool),
}

impl std::fmt::Debug for CertificateSigner {
    /// Omits the private key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateSigner").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

/// Tag and bytes of a subject alternative name.
type SubjectAlternativeName = (u64, Vec<u8>);

/// The parts of a request that are copied to the certificate.
struct CertificateRequest {
    subject: Vec<u8>,
    has_subject: bool,
    key: Vec<u8>,
    names: Vec<SubjectAlternativeName>,
}

fn unusable_authority(error: impl Into<CredentialError>) -> PkiError {
    PkiError::Authority(error.into())
}

fn unusable_request(error: impl Into<CredentialError>) -> PkiError {
    PkiError::Request(error.into())
}

impl CertificateSigner {
    pub(super) fn new(ca: &Ca) -> Result<Self, PkiError> {
        let (_, pem) = parse_x509_pem(ca.pem.as_bytes()).map_err(unusable_authority)?;
        let (_, parsed) = X509Certificate::from_der(&pem.contents).map_err(unusable_authority)?;
        let key_id = parsed.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        let not_after = Timestamp::from_second(parsed.validity().not_after.timestamp()).unwrap_or(Timestamp::MAX);
        let key = KeyPair::from_pem(&ca.key)?;
        let (algorithm, clock) = (algorithm(&key)?, ca.clock.clone());
        Ok(Self { subject: parsed.subject().as_raw().to_vec(), key_id, not_after, clock, key, algorithm })
    }

    /// Issues a certificate (PEM) for a request (PEM), with usages of `certificates.k8s.io`. Only subject, key and
    /// subject alternative names are copied from the request.
    ///
    /// # Errors
    /// When the request is invalid or not signed by its key, a usage is unknown, or the CA has expired.
    pub fn issue(
        &self,
        request: &[u8],
        usages: &[String],
        (from, until): (Timestamp, Timestamp),
    ) -> Result<String, PkiError> {
        let request = CertificateRequest::parse(request)?;
        let usages = key_usages::KeyUsages::parse(usages).map_err(unusable_request)?;
        if self.clock.now() >= self.not_after {
            let expiry = self.not_after.strftime("%Y-%m-%d %H:%M:%S +0000 UTC");
            return Err(PkiError::Expired(expiry.to_string()));
        }
        let until = until.min(self.not_after);
        let mut serial: [u8; 16] = rand::random();
        // A positive integer of full length.
        serial[0] = serial[0] & 0x7f | 0x40;
        let body = yasna::construct_der(|writer| {
            writer.write_sequence(|fields| {
                fields.next().write_tagged(Tag::context(0), |version| version.write_u8(2));
                fields.next().write_bigint_bytes(&serial, true);
                self.write_algorithm(fields.next());
                fields.next().write_der(&self.subject);
                fields.next().write_sequence(|validity| {
                    write_time(validity.next(), from);
                    write_time(validity.next(), until);
                });
                fields.next().write_der(&request.subject);
                fields.next().write_der(&request.key);
                let all = self.extensions(&request, &usages);
                fields.next().write_tagged(Tag::context(3), |list| {
                    list.write_sequence(|list| all.iter().for_each(|one| one.write(list.next())));
                });
            });
        });
        let signature = self.key.sign(&body)?;
        let whole = yasna::construct_der(|writer| {
            writer.write_sequence(|fields| {
                fields.next().write_der(&body);
                self.write_algorithm(fields.next());
                fields.next().write_bitvec_bytes(&signature, signature.len() * 8);
            });
        });
        Ok(pem::encode_config(&Pem::new("CERTIFICATE", whole), EncodeConfig::new().set_line_ending(LineEnding::LF)))
    }

    fn write_algorithm(&self, writer: DERWriter<'_>) {
        let (oid, has_null) = self.algorithm;
        writer.write_sequence(|fields| {
            fields.next().write_oid(&ObjectIdentifier::from_slice(oid));
            if has_null {
                fields.next().write_null();
            }
        });
    }

    fn extensions(&self, request: &CertificateRequest, usages: &key_usages::KeyUsages) -> Vec<Extension> {
        let mut all = Vec::new();
        if let Some((bytes, bits)) = usages.bits() {
            let value = yasna::construct_der(|writer| writer.write_bitvec_bytes(&bytes, bits));
            all.push(Extension { oid: KEY_USAGE, critical: true, value });
        }
        if !usages.extended.is_empty() {
            let write = |writer: DERWriter<'_>| {
                writer.write_sequence(|list| {
                    usages.extended.iter().for_each(|oid| list.next().write_oid(&ObjectIdentifier::from_slice(oid)));
                });
            };
            all.push(Extension { oid: EXTENDED_KEY_USAGE, critical: false, value: yasna::construct_der(write) });
        }
        // Not a CA: `false` is the default, which is omitted.
        let value = yasna::construct_der(|writer| writer.write_sequence(|_| {}));
        all.push(Extension { oid: BASIC_CONSTRAINTS, critical: true, value });
        if let Some(id) = &self.key_id {
            let value = yasna::construct_der(|writer| {
                writer.write_sequence(|fields| {
                    fields.next().write_tagged_implicit(Tag::context(0), |writer| writer.write_bytes(id));
                });
            });
            all.push(Extension { oid: AUTHORITY_KEY_IDENTIFIER, critical: false, value });
        }
        if !request.names.is_empty() {
            let value = yasna::construct_der(|writer| {
                writer.write_sequence(|list| {
                    for (tag, name) in &request.names {
                        list.next().write_tagged_implicit(Tag::context(*tag), |writer| writer.write_bytes(name));
                    }
                });
            });
            all.push(Extension { oid: SUBJECT_ALTERNATIVE_NAME, critical: !request.has_subject, value });
        }
        all
    }
}

/// An X.509 extension.
struct Extension {
    oid: &'static [u64],
    critical: bool,
    value: Vec<u8>,
}

impl Extension {
    fn write(&self, writer: DERWriter<'_>) {
        writer.write_sequence(|fields| {
            fields.next().write_oid(&ObjectIdentifier::from_slice(self.oid));
            if self.critical {
                fields.next().write_bool(true);
            }
            fields.next().write_bytes(&self.value);
        });
    }
}

impl CertificateRequest {
    fn parse(request: &[u8]) -> Result<Self, PkiError> {
        let (_, pem) = parse_x509_pem(request).map_err(unusable_request)?;
        let (_, request) = X509CertificationRequest::from_der(&pem.contents).map_err(unusable_request)?;
        request.verify_signature().map_err(unusable_request)?;
        let info = &request.certification_request_info;
        api::certificate::subject_user(&info.subject).map_err(unusable_request)?;
        let mut names = Vec::new();
        for extension in request.requested_extensions().into_iter().flatten() {
            if let ParsedExtension::SubjectAlternativeName(all) = extension {
                names.extend(all.general_names.iter().filter_map(subject_alternative_name));
            }
        }
        Ok(Self {
            subject: info.subject.as_raw().to_vec(),
            has_subject: info.subject.iter().next().is_some(),
            key: info.subject_pki.raw.to_vec(),
            names,
        })
    }
}

/// Returns a subject alternative name of a supported kind, with its tag (RFC 5280, 4.2.1.6).
fn subject_alternative_name(name: &GeneralName<'_>) -> Option<SubjectAlternativeName> {
    Some(match name {
        GeneralName::RFC822Name(text) => (1, text.as_bytes().to_vec()),
        GeneralName::DNSName(text) => (2, text.as_bytes().to_vec()),
        GeneralName::URI(text) => (6, text.as_bytes().to_vec()),
        GeneralName::IPAddress(bytes) => (7, bytes.to_vec()),
        _ => return None,
    })
}

/// Writes a time: UTCTime before 2050, GeneralizedTime from then on (RFC 5280, 4.1.2.5).
fn write_time(writer: DERWriter<'_>, time: Timestamp) {
    let is_generalized = time.as_second() >= 2_524_608_000;
    let (tag, form) = if is_generalized {
        (tags::TAG_GENERALIZEDTIME, "%Y%m%d%H%M%SZ")
    } else {
        (tags::TAG_UTCTIME, "%y%m%d%H%M%SZ")
    };
    writer.write_tagged_implicit(tag, |writer| writer.write_bytes(time.strftime(form).to_string().as_bytes()));
}

fn algorithm(key: &KeyPair) -> Result<(&'static [u64], bool), PkiError> {
    let key_algorithm = key.algorithm();
    let known: [(_, &'static [u64], bool); 6] = [
        (&rcgen::PKCS_ECDSA_P256_SHA256, &[1, 2, 840, 10045, 4, 3, 2], false),
        (&rcgen::PKCS_ECDSA_P384_SHA384, &[1, 2, 840, 10045, 4, 3, 3], false),
        (&rcgen::PKCS_ED25519, &[1, 3, 101, 112], false),
        (&rcgen::PKCS_RSA_SHA256, &[1, 2, 840, 113_549, 1, 1, 11], true),
        (&rcgen::PKCS_RSA_SHA384, &[1, 2, 840, 113_549, 1, 1, 12], true),
        (&rcgen::PKCS_RSA_SHA512, &[1, 2, 840, 113_549, 1, 1, 13], true),
    ];
    let found = known.into_iter().find(|(algorithm, ..)| *algorithm == key_algorithm);
    found.map(|(_, oid, has_null)| (oid, has_null)).ok_or(PkiError::Authority(CredentialError::UnknownKeyKind))
}

#[cfg(test)]
mod tests;
