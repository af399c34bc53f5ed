use super::*;
use crate::Pki;

/// `/CN=jane/O=devs/O=ops` with names of five kinds.
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
fn subject_key_and_names_are_those_of_the_request_and_nothing_else_is() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::load_or_create(dir.path(), &[], &[]).unwrap();
    let uses = ["client auth", "digital signature"].map(str::to_owned);
    let validity = (time("2026-01-01T00:00:00Z"), time("2050-01-01T00:00:00Z"));
    let authority = Authority { ends: Timestamp::MAX, ..pki.authority().unwrap() };
    let issued = authority.issue(MANY.as_bytes(), &uses, validity).unwrap();
    assert!(issued.lines().all(|line| line.len() <= 64) && issued.ends_with("-----END CERTIFICATE-----\n"), "{issued}");
    let (_, pem) = parse_x509_pem(issued.as_bytes()).unwrap();
    let (rest, certificate) = X509Certificate::from_der(&pem.contents).unwrap();
    assert!(rest.is_empty());
    let (_, authority) = parse_x509_pem(pki.ca_pem().as_bytes()).unwrap();
    let (_, authority) = X509Certificate::from_der(&authority.contents).unwrap();
    certificate.verify_signature(Some(authority.public_key())).unwrap();
    assert_eq!(certificate.issuer().as_raw(), authority.subject().as_raw());
    assert_eq!(certificate.subject().to_string(), "CN=jane, O=devs, O=ops");
    let held = (certificate.validity().not_before.timestamp(), certificate.validity().not_after.timestamp());
    assert_eq!(held, (validity.0.as_second(), validity.1.as_second()));
    let names = &certificate.subject_alternative_name().unwrap().unwrap().value.general_names;
    let told: Vec<Name> = names.iter().filter_map(name).collect();
    assert_eq!((names.len(), told.len()), (4, 4));
    assert_eq!(told[1], (7, vec![10, 0, 0, 1]));
    let constraints = certificate.basic_constraints().unwrap().unwrap();
    assert_eq!((constraints.critical, constraints.value.ca), (true, false));
    let usage = certificate.key_usage().unwrap().unwrap();
    assert_eq!((usage.critical, usage.value.flags), (true, 1));
    let extended = certificate.extended_key_usage().unwrap().unwrap().value;
    assert_eq!((extended.client_auth, extended.server_auth, extended.any), (true, false, false));
}

#[test]
fn nothing_holds_for_longer_than_the_authority() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::load_or_create(dir.path(), &[], &[]).unwrap();
    let ends = time("2026-06-01T00:00:00Z");
    let clock = |now: &str| {
        Clock::new({
            let now = time(now);
            move || now
        })
    };
    let authority = Authority { ends, clock: clock("2026-01-01T00:00:00Z"), ..pki.authority().unwrap() };
    let uses = ["any".to_owned()];
    let issued = authority.issue(MANY.as_bytes(), &uses, (time("2026-01-01T00:00:00Z"), Timestamp::MAX)).unwrap();
    let (_, pem) = parse_x509_pem(issued.as_bytes()).unwrap();
    let (_, certificate) = X509Certificate::from_der(&pem.contents).unwrap();
    assert_eq!(certificate.validity().not_after.timestamp(), ends.as_second());
    assert!(certificate.key_usage().unwrap().is_none());
    let expired = Authority { clock: clock("2026-06-01T00:00:00Z"), ..authority };
    let refused = expired.issue(MANY.as_bytes(), &uses, (ends, Timestamp::MAX)).unwrap_err().to_string();
    let words = "refusing to sign a certificate that expired in the past: NotAfter=2026-06-01 00:00:00 +0000 UTC";
    assert!(refused.contains(words), "{refused}");
}

#[test]
fn who_does_not_hold_the_key_gets_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Pki::load_or_create(dir.path(), &[], &[]).unwrap().authority().unwrap();
    let validity = (time("2026-01-01T00:00:00Z"), time("2027-01-01T00:00:00Z"));
    let ask = |request: &str, uses: &str| authority.issue(request.as_bytes(), &[uses.to_owned()], validity);
    // Another letter of the name than was signed.
    assert!(ask(&MANY.replace("DARqYW5l", "DARqYW5m"), "any").is_err());
    assert!(ask("nothing", "any").is_err());
    assert!(ask(MANY, "walking").unwrap_err().to_string().contains("unrecognized usage values"));
}

#[test]
fn request_with_two_common_names_is_not_signed() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Pki::load_or_create(dir.path(), &[], &[]).unwrap().authority().unwrap();
    let (mut params, key) = (rcgen::CertificateParams::default(), KeyPair::generate().unwrap());
    params.distinguished_name.push(rcgen::DnType::CommonName, "system:kube-controller-manager");
    params.distinguished_name.push(rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]), "alice");
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    let validity = (time("2026-01-01T00:00:00Z"), time("2027-01-01T00:00:00Z"));
    let refused = authority.issue(request.as_bytes(), &["client auth".to_owned()], validity).unwrap_err();
    assert!(refused.to_string().contains("more than one common name"), "{refused}");
}
