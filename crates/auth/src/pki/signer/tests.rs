use super::*;
use crate::pki::Pki;

/// A CSR of `/CN=jane/O=devs/O=ops` with names of five kinds.
const MANY: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIIBRjCB7AIBADAsMQ0wCwYDVQQDDARqYW5lMQ0wCwYDVQQKDARkZXZzMQwwCgYD
VQQKDANvcHMwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQ4O3UtpSoigTFTMhS4
RxWNzW48Lj10CjmuEB9B17m7yx1IUN7sG/E+uoA3/nk22Uw2+sISZzdBa+2fRMF/
V+N+oF4wXAYJKoZIhvcNAQkOMU8wTTBLBgNVHREERDBCggxqYW5lLmV4YW1wbGWH
BAoAAAGBDWpAZXhhbXBsZS5jb22GEWh0dHBzOi8veC5leGFtcGxloAoGAyoDBKAD
DAF4MAoGCCqGSM49BAMCA0kAMEYCIQDkidFTLjbQYXyPihXdCEcwQkgheLM6oXNs
y9jNlvYK4gIhAO81WudffE+0xZiz/b8qS20OA+DECvn9XBaqhUbbJ7h3
-----END CERTIFICATE REQUEST-----
";

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn only_subject_key_and_names_are_copied_from_the_request() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::load_or_create(dir.path(), &[], &[]).unwrap();
    let usages = ["client auth", "digital signature"].map(str::to_owned);
    let validity = (time("2026-01-01T00:00:00Z"), time("2050-01-01T00:00:00Z"));
    let signer = CertificateSigner { not_after: Timestamp::MAX, ..pki.signer().unwrap() };
    let issued = signer.issue(MANY.as_bytes(), &usages, validity).unwrap();
    assert!(issued.lines().all(|line| line.len() <= 64) && issued.ends_with("-----END CERTIFICATE-----\n"), "{issued}");
    let (_, pem) = parse_x509_pem(issued.as_bytes()).unwrap();
    let (rest, certificate) = X509Certificate::from_der(&pem.contents).unwrap();
    assert!(rest.is_empty());
    let (_, ca) = parse_x509_pem(pki.ca_pem().as_bytes()).unwrap();
    let (_, ca) = X509Certificate::from_der(&ca.contents).unwrap();
    certificate.verify_signature(Some(ca.public_key())).unwrap();
    assert_eq!(certificate.issuer().as_raw(), ca.subject().as_raw());
    assert_eq!(certificate.subject().to_string(), "CN=jane, O=devs, O=ops");
    let held = (certificate.validity().not_before.timestamp(), certificate.validity().not_after.timestamp());
    assert_eq!(held, (validity.0.as_second(), validity.1.as_second()));
    let names = &certificate.subject_alternative_name().unwrap().unwrap().value.general_names;
    let supported: Vec<SubjectAlternativeName> = names.iter().filter_map(subject_alternative_name).collect();
    assert_eq!((names.len(), supported.len()), (4, 4));
    assert_eq!(supported[1], (7, vec![10, 0, 0, 1]));
    let constraints = certificate.basic_constraints().unwrap().unwrap();
    assert_eq!((constraints.critical, constraints.value.ca), (true, false));
    let usage = certificate.key_usage().unwrap().unwrap();
    assert_eq!((usage.critical, usage.value.flags), (true, 1));
    let extended = certificate.extended_key_usage().unwrap().unwrap().value;
    assert_eq!((extended.client_auth, extended.server_auth, extended.any), (true, false, false));
}

#[test]
fn issued_certificate_does_not_outlive_its_ca() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::load_or_create(dir.path(), &[], &[]).unwrap();
    let not_after = time("2026-06-01T00:00:00Z");
    let clock = |now: &str| {
        Clock::new({
            let now = time(now);
            move || now
        })
    };
    let signer = CertificateSigner { not_after, clock: clock("2026-01-01T00:00:00Z"), ..pki.signer().unwrap() };
    let usages = ["any".to_owned()];
    let issued = signer.issue(MANY.as_bytes(), &usages, (time("2026-01-01T00:00:00Z"), Timestamp::MAX)).unwrap();
    let (_, pem) = parse_x509_pem(issued.as_bytes()).unwrap();
    let (_, certificate) = X509Certificate::from_der(&pem.contents).unwrap();
    assert_eq!(certificate.validity().not_after.timestamp(), not_after.as_second());
    assert!(certificate.key_usage().unwrap().is_none());
    let expired = CertificateSigner { clock: clock("2026-06-01T00:00:00Z"), ..signer };
    let refused = expired.issue(MANY.as_bytes(), &usages, (not_after, Timestamp::MAX)).unwrap_err().to_string();
    let words = "refusing to sign a certificate that expired in the past: NotAfter=2026-06-01 00:00:00 +0000 UTC";
    assert!(refused.contains(words), "{refused}");
}

#[test]
fn request_without_proof_of_its_key_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let signer = Pki::load_or_create(dir.path(), &[], &[]).unwrap().signer().unwrap();
    let validity = (time("2026-01-01T00:00:00Z"), time("2027-01-01T00:00:00Z"));
    let issue = |request: &str, usages: &str| signer.issue(request.as_bytes(), &[usages.to_owned()], validity);
    // The name differs from the signed one.
    assert!(issue(&MANY.replace("DARqYW5l", "DARqYW5m"), "any").is_err());
    assert!(issue("nothing", "any").is_err());
    assert!(issue(MANY, "walking").unwrap_err().to_string().contains("unrecognized usage values"));
}

#[test]
fn request_with_two_common_names_is_not_signed() {
    let dir = tempfile::tempdir().unwrap();
    let signer = Pki::load_or_create(dir.path(), &[], &[]).unwrap().signer().unwrap();
    let (mut params, key) = (rcgen::CertificateParams::default(), KeyPair::generate().unwrap());
    params.distinguished_name.push(rcgen::DnType::CommonName, "system:kube-controller-manager");
    params.distinguished_name.push(rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]), "alice");
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    let validity = (time("2026-01-01T00:00:00Z"), time("2027-01-01T00:00:00Z"));
    let refused = signer.issue(request.as_bytes(), &["client auth".to_owned()], validity).unwrap_err();
    assert!(refused.to_string().contains("more than one common name"), "{refused}");
}
