use super::*;
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

/// A clock that a test moves.
#[derive(Debug, Clone)]
struct Moved(Arc<AtomicI64>);

impl Moved {
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

impl TimeProvider for Moved {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = self.0.load(Ordering::Relaxed).try_into().ok()?;
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
    }
}

fn load(dir: &Path, moved: &Moved) -> Pki {
    Pki::load_or_create_at(dir, &[], &[], moved.clock()).unwrap()
}

/// The end of a certificate, in days since the start.
fn end(certificate: &[u8]) -> i64 {
    let (_, certificate) = X509Certificate::from_der(certificate).unwrap();
    (certificate.validity().not_after.timestamp() - START) / DAY
}

fn end_of_pem(pem: &str) -> i64 {
    end(&certificates(pem).unwrap()[0])
}

/// The certificate that a server shows in a handshake with a client that trusts an authority and has this one's clock.
async fn shown(server: Arc<ServerConfig>, name: &str, ca: &str, moved: &Moved) -> io::Result<Vec<u8>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificates(ca).unwrap().remove(0)).unwrap();
    let client = ClientConfig::builder_with_details(provider(), Arc::new(moved.clone()));
    let client = client.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let connector = TlsConnector::from(Arc::new(client.with_no_client_auth()));
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let (client, _server) = tokio::join!(connector.connect(name, ours), TlsAcceptor::from(server).accept(theirs));
    Ok(client?.get_ref().1.peer_certificates().unwrap()[0].to_vec())
}

#[tokio::test]
async fn serving_certificates_are_renewed_without_a_restart() {
    let (dir, moved) = (tempfile::tempdir().unwrap(), Moved::new());
    let pki = load(dir.path(), &moved);
    let api = pki.server_tls().unwrap().config;
    let node = pki.node_config("node-1", &[], None).unwrap();
    for (config, name) in [(api, "kubernetes.default.svc"), (node, "node-1")] {
        moved.set_days(0);
        let first = shown(Arc::clone(&config), name, pki.ca_pem(), &moved).await.unwrap();
        assert_eq!(end(&first), 365, "{name}");
        moved.set_days(200);
        assert_eq!(shown(Arc::clone(&config), name, pki.ca_pem(), &moved).await.unwrap(), first, "{name}");
        moved.set_days(335);
        let second = shown(Arc::clone(&config), name, pki.ca_pem(), &moved).await.unwrap();
        assert_eq!(end(&second), 335 + 365, "{name}");
        // A machine that slept for years: the first one would have expired.
        moved.set_days(1500);
        assert_eq!(end(&shown(config, name, pki.ca_pem(), &moved).await.unwrap()), 1500 + 365, "{name}");
    }
}

#[test]
fn client_certificate_of_the_front_proxy_is_renewed() {
    let (dir, moved) = (tempfile::tempdir().unwrap(), Moved::new());
    let front = load(dir.path(), &moved).front_proxy();
    let shown = || end(&front.client.resolve(&[], &[]).unwrap().cert[0]);
    assert_eq!((end_of_pem(&front.authority), shown()), (3650, 365));
    moved.set_days(335);
    assert_eq!(shown(), 335 + 365);
}

fn admin_of(kubeconfig: &Path) -> String {
    let config: serde_json::Value = serde_json::from_str(&fs::read_to_string(kubeconfig).unwrap()).unwrap();
    let data = config["users"][0]["user"]["client-certificate-data"].as_str().unwrap();
    String::from_utf8(STANDARD.decode(data).unwrap()).unwrap()
}

#[test]
fn admin_certificate_is_kept_over_starts_until_it_ends_soon() {
    let (dir, moved) = (tempfile::tempdir().unwrap(), Moved::new());
    let (pki, config) = (dir.path().join("pki"), dir.path().join("config"));
    let url = "https://127.0.0.1:6443";
    let start = || {
        let loaded = load(&pki, &moved);
        loaded.write_admin_kubeconfig(&config, url).unwrap();
        (loaded, admin_of(&config))
    };
    let (loaded, first) = start();
    assert_eq!((end_of_pem(loaded.ca_pem()), end_of_pem(&first)), (3650, 365));
    moved.set_days(200);
    assert_eq!(start().1, first);
    assert!(!loaded.renew_admin_kubeconfig(&config, url).unwrap());
    // While it runs.
    moved.set_days(335);
    assert!(loaded.renew_admin_kubeconfig(&config, url).unwrap());
    let second = admin_of(&config);
    assert_eq!(end_of_pem(&second), 335 + 365);
    assert_eq!(start().1, second);
    moved.set_days(335 + 300);
    fs::write(&config, "somebody else's").unwrap();
    assert!(!loaded.renew_admin_kubeconfig(&config, url).unwrap());
    assert_eq!(fs::read_to_string(&config).unwrap(), "somebody else's");
    assert_eq!(end_of_pem(&start().1), 335 + 300 + 365);
    // One of another authority, one without its key, and a file that makes no sense, are of no use.
    let (other, kept) = (tempfile::tempdir().unwrap(), pki.join("admin.pem"));
    load(&other.path().join("pki"), &moved).write_admin_kubeconfig(&other.path().join("config"), url).unwrap();
    let (own, others) =
        (fs::read_to_string(&kept).unwrap(), fs::read_to_string(other.path().join("pki/admin.pem")).unwrap());
    let mixed = own[..own.find("-----BEGIN PRIVATE").unwrap()].to_owned()
        + &others[others.find("-----BEGIN PRIVATE").unwrap()..];
    for useless in [others.as_str(), &mixed, "nonsense", ""] {
        fs::write(&kept, useless).unwrap();
        let issued = start().1;
        assert!(!useless.contains(&issued), "{useless}");
        assert_eq!(end_of_pem(&issued), 335 + 300 + 365);
    }
}

/// An authority as Podium made them first, valid until 4096.
fn write_older_authority(dir: &Path) -> String {
    let key = KeyPair::generate().unwrap();
    let pem = profile::authority("podium-ca").self_signed(&key).unwrap().pem();
    fs::write(dir.join("ca.crt"), &pem).unwrap();
    fs::write(dir.join("ca.key"), key.serialize_pem()).unwrap();
    pem
}

#[tokio::test]
async fn authority_of_an_older_podium_stays_and_can_be_signed_anew() {
    let (dir, moved) = (tempfile::tempdir().unwrap(), Moved::new());
    let older = write_older_authority(dir.path());
    let pki = load(dir.path(), &moved);
    assert_eq!((pki.ca_pem(), pki.ending_authorities()), (older.as_str(), Vec::new()));
    let config = dir.path().join("config");
    pki.write_admin_kubeconfig(&config, "https://127.0.0.1:6443").unwrap();
    let (admin, serving) = (admin_of(&config), pki.server_tls().unwrap().config);
    assert_eq!(end_of_pem(&admin), 365);
    let first = shown(serving, "kubernetes", &older, &moved).await.unwrap();
    assert_eq!(end(&first), 365);

    fs::remove_file(dir.path().join("ca.crt")).unwrap();
    let renewed = load(dir.path(), &moved);
    assert_eq!(end_of_pem(renewed.ca_pem()), 3650);
    renewed.write_admin_kubeconfig(&config, "https://127.0.0.1:6443").unwrap();
    assert_eq!(admin_of(&config), admin, "what the key has signed stays valid");
    let tls = renewed.server_tls().unwrap();
    assert!(tls.knows(&certificates(&admin).unwrap()));
    // Clients that know the older certificate, or the newer one.
    for ca in [&older, renewed.ca_pem()] {
        shown(Arc::clone(&tls.config), "kubernetes", ca, &moved).await.unwrap();
    }
    // Without its key an authority is of no use.
    fs::remove_file(dir.path().join("ca.key")).unwrap();
    let another = load(dir.path(), &moved);
    assert!(!another.server_tls().unwrap().knows(&certificates(&admin).unwrap()));
}

#[test]
fn authorities_that_end_soon_are_named() {
    let (dir, moved) = (tempfile::tempdir().unwrap(), Moved::new());
    let pki = load(dir.path(), &moved);
    for (days, count) in [(3000, 0), (3400, 2), (4000, 2)] {
        moved.set_days(days);
        assert_eq!(pki.ending_authorities().len(), count, "{days}");
        // It starts nonetheless: what it says would not be heard otherwise.
        assert_eq!(load(dir.path(), &moved).ending_authorities().len(), count, "{days}");
    }
    let (path, ends) = pki.ending_authorities().remove(0);
    assert_eq!((path, (ends.as_second() - START) / DAY), (dir.path().join("ca.crt"), 3650));
}

#[test]
fn expired_client_certificates_are_unknown() {
    let (dir, moved) = (tempfile::tempdir().unwrap(), Moved::new());
    let pki = load(dir.path(), &moved);
    let (credential, _) = pki.ca.issue(&profile::admin()).unwrap();
    let (tls, chain) = (pki.server_tls().unwrap(), certificates(&credential.certificate).unwrap());
    assert!(tls.knows(&chain));
    moved.set_days(366);
    assert!(!tls.knows(&chain));
}

#[test]
fn kubeconfig_does_not_write_through_links() {
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
