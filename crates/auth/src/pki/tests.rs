use super::*;
use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::{
    ClientConfig,
    pki_types::{ServerName, UnixTime},
    time_provider::TimeProvider,
};
use std::{
    os::unix::fs::{PermissionsExt, symlink},
    sync::atomic::{AtomicI64, Ordering},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use x509_parser::prelude::{FromDer, X509Certificate};

const DAY: i64 = 24 * 3600;
/// 2026-01-01.
const START: i64 = 1_767_225_600;

/// A clock that a test sets.
#[derive(Debug, Clone)]
struct TestClock(Arc<AtomicI64>);

impl TestClock {
    fn new() -> Self {
        Self(Arc::new(AtomicI64::new(START)))
    }

    fn set_days(&self, days: i64) {
        self.0.store(START + days * DAY, Ordering::Relaxed);
    }

    fn clock(&self) -> Clock {
        let seconds = Arc::clone(&self.0);
        Clock::new(move || Timestamp::from_second(seconds.load(Ordering::Relaxed)).unwrap())
    }
}

impl TimeProvider for TestClock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = self.0.load(Ordering::Relaxed).try_into().ok()?;
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
    }
}

fn load(dir: &Path, clock: &TestClock) -> Pki {
    Pki::load_or_create_at(dir, &[], &[], clock.clock()).unwrap()
}

/// Returns the expiry of a certificate, in days since the start.
fn expiry(certificate: &[u8]) -> i64 {
    let (_, certificate) = X509Certificate::from_der(certificate).unwrap();
    (certificate.validity().not_after.timestamp() - START) / DAY
}

fn expiry_of_pem(pem: &str) -> i64 {
    expiry(&certificates(pem).unwrap()[0])
}

/// Returns the serving certificate of a handshake with a client that trusts a CA and has this clock.
async fn serving_certificate(
    server: Arc<ServerConfig>,
    name: &str,
    ca: &str,
    clock: &TestClock,
) -> io::Result<Vec<u8>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificates(ca).unwrap().remove(0)).unwrap();
    let client = ClientConfig::builder_with_details(provider(), Arc::new(clock.clone()));
    let client = client.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let connector = TlsConnector::from(Arc::new(client.with_no_client_auth()));
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let (client, _server) = tokio::join!(connector.connect(name, ours), TlsAcceptor::from(server).accept(theirs));
    Ok(client?.get_ref().1.peer_certificates().unwrap()[0].to_vec())
}

#[tokio::test]
async fn serving_certificates_are_renewed_without_a_restart() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    let pki = load(dir.path(), &clock);
    let api = pki.server_tls().unwrap().config;
    let node = pki.node_server_config("node-1", &[], None).unwrap();
    for (config, name) in [(api, "kubernetes.default.svc"), (node, "node-1")] {
        clock.set_days(0);
        let first = serving_certificate(Arc::clone(&config), name, pki.ca_pem(), &clock).await.unwrap();
        assert_eq!(expiry(&first), 365, "{name}");
        clock.set_days(200);
        assert_eq!(
            serving_certificate(Arc::clone(&config), name, pki.ca_pem(), &clock).await.unwrap(),
            first,
            "{name}"
        );
        clock.set_days(335);
        let second = serving_certificate(Arc::clone(&config), name, pki.ca_pem(), &clock).await.unwrap();
        assert_eq!(expiry(&second), 335 + 365, "{name}");
        // After years of suspension the first certificate would have expired.
        clock.set_days(1500);
        assert_eq!(
            expiry(&serving_certificate(config, name, pki.ca_pem(), &clock).await.unwrap()),
            1500 + 365,
            "{name}"
        );
    }
}

#[test]
fn front_proxy_client_certificate_is_renewed() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    let front = load(dir.path(), &clock).front_proxy();
    let serving_certificate = || expiry(&front.client.resolve(&[], &[]).unwrap().cert[0]);
    assert_eq!((expiry_of_pem(&front.ca_pem), serving_certificate()), (3650, 365));
    clock.set_days(335);
    assert_eq!(serving_certificate(), 335 + 365);
}

fn admin_of(kubeconfig: &Path) -> String {
    let config: serde_json::Value = serde_json::from_str(&fs::read_to_string(kubeconfig).unwrap()).unwrap();
    let data = config["users"][0]["user"]["client-certificate-data"].as_str().unwrap();
    String::from_utf8(STANDARD.decode(data).unwrap()).unwrap()
}

#[test]
fn admin_certificate_is_stored_until_it_expires_soon() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    let (pki, config) = (dir.path().join("pki"), dir.path().join("config"));
    let url = "https://127.0.0.1:6443";
    let start = || {
        let loaded = load(&pki, &clock);
        loaded.write_admin_kubeconfig(&config, url).unwrap();
        (loaded, admin_of(&config))
    };
    let (loaded, first) = start();
    assert_eq!((expiry_of_pem(loaded.ca_pem()), expiry_of_pem(&first)), (3650, 365));
    clock.set_days(200);
    assert_eq!(start().1, first);
    assert!(!loaded.renew_admin_kubeconfig(&config, url).unwrap());
    // While it runs.
    clock.set_days(335);
    assert!(loaded.renew_admin_kubeconfig(&config, url).unwrap());
    let second = admin_of(&config);
    assert_eq!(expiry_of_pem(&second), 335 + 365);
    assert_eq!(start().1, second);
    clock.set_days(335 + 300);
    fs::write(&config, "somebody else's").unwrap();
    assert!(!loaded.renew_admin_kubeconfig(&config, url).unwrap());
    assert_eq!(fs::read_to_string(&config).unwrap(), "somebody else's");
    assert_eq!(expiry_of_pem(&start().1), 335 + 300 + 365);
    // A certificate of another CA, one without its key, and an invalid file are replaced.
    let (other, kept) = (tempfile::tempdir().unwrap(), pki.join("admin.pem"));
    load(&other.path().join("pki"), &clock).write_admin_kubeconfig(&other.path().join("config"), url).unwrap();
    let (own, others) =
        (fs::read_to_string(&kept).unwrap(), fs::read_to_string(other.path().join("pki/admin.pem")).unwrap());
    let mixed = own[..own.find("-----BEGIN PRIVATE").unwrap()].to_owned()
        + &others[others.find("-----BEGIN PRIVATE").unwrap()..];
    for useless in [others.as_str(), &mixed, "nonsense", ""] {
        fs::write(&kept, useless).unwrap();
        let issued = start().1;
        assert!(!useless.contains(&issued), "{useless}");
        assert_eq!(expiry_of_pem(&issued), 335 + 300 + 365);
    }
}

/// Writes a CA as early versions of Podium, valid until 4096.
fn write_older_ca(dir: &Path) -> String {
    let key = KeyPair::generate().unwrap();
    let pem = certificate_profiles::authority("podium-ca").self_signed(&key).unwrap().pem();
    fs::write(dir.join("ca.crt"), &pem).unwrap();
    fs::write(dir.join("ca.key"), key.serialize_pem()).unwrap();
    pem
}

#[tokio::test]
async fn ca_of_an_older_podium_is_kept_and_can_be_signed_anew() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    let older = write_older_ca(dir.path());
    let pki = load(dir.path(), &clock);
    assert_eq!((pki.ca_pem(), pki.expiring_cas()), (older.as_str(), Vec::new()));
    let config = dir.path().join("config");
    pki.write_admin_kubeconfig(&config, "https://127.0.0.1:6443").unwrap();
    let (admin, serving) = (admin_of(&config), pki.server_tls().unwrap().config);
    assert_eq!(expiry_of_pem(&admin), 365);
    let first = serving_certificate(serving, "kubernetes", &older, &clock).await.unwrap();
    assert_eq!(expiry(&first), 365);

    fs::remove_file(dir.path().join("ca.crt")).unwrap();
    let renewed = load(dir.path(), &clock);
    assert_eq!(expiry_of_pem(renewed.ca_pem()), 3650);
    renewed.write_admin_kubeconfig(&config, "https://127.0.0.1:6443").unwrap();
    assert_eq!(admin_of(&config), admin, "what the key has signed stays valid");
    let tls = renewed.server_tls().unwrap();
    assert!(tls.verifies(&certificates(&admin).unwrap()));
    // Clients that trust the older certificate or the newer one.
    for ca in [&older, renewed.ca_pem()] {
        serving_certificate(Arc::clone(&tls.config), "kubernetes", ca, &clock).await.unwrap();
    }
    // Without its key, a CA is useless.
    fs::remove_file(dir.path().join("ca.key")).unwrap();
    let another = load(dir.path(), &clock);
    assert!(!another.server_tls().unwrap().verifies(&certificates(&admin).unwrap()));
}

#[test]
fn cas_that_expire_soon_are_reported() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    let pki = load(dir.path(), &clock);
    for (days, count) in [(3000, 0), (3400, 2), (4000, 2)] {
        clock.set_days(days);
        assert_eq!(pki.expiring_cas().len(), count, "{days}");
        // Loading still succeeds.
        assert_eq!(load(dir.path(), &clock).expiring_cas().len(), count, "{days}");
    }
    let (path, not_after) = pki.expiring_cas().remove(0);
    assert_eq!((path, (not_after.as_second() - START) / DAY), (dir.path().join("ca.crt"), 3650));
}

#[test]
fn expired_client_certificate_is_not_verified() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    let pki = load(dir.path(), &clock);
    let (credential, _) = pki.ca.issue(&certificate_profiles::admin()).unwrap();
    let (tls, chain) = (pki.server_tls().unwrap(), certificates(&credential.certificate).unwrap());
    assert!(tls.verifies(&chain));
    clock.set_days(366);
    assert!(!tls.verifies(&chain));
}

#[test]
fn kubeconfig_is_not_written_through_symlinks() {
    let dir = tempfile::tempdir().unwrap();
    let (victim, path) = (dir.path().join("victim"), dir.path().join("config"));
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, &path).unwrap();
    symlink(&victim, path.with_extension("new")).unwrap();
    let pki = Pki::load_or_create(&dir.path().join("pki"), &[], &[]).unwrap();
    pki.write_admin_kubeconfig(&path, "https://127.0.0.1:6443").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    let written = fs::symlink_metadata(&path).unwrap();
    assert!(written.is_file());
    assert_eq!(written.permissions().mode() & 0o777, 0o600);
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir.path().join("pki")), 0o700);
    for entry in fs::read_dir(dir.path().join("pki")).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}
