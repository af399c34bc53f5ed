//! Clients that send malformed data in upgraded streams cause no panic, no memory growth and no failure for others.

use kube::config::Kubeconfig;
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};
use tests::{Cluster, e2e_test};

/// Number of clients that send malformed data.
const CLIENTS: usize = 250;
/// Allowed growth of Podium's resident memory, in bytes.
const MAX_GROWTH: u64 = 48 << 20;

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Connects to a cluster as its administrator.
struct AdminConnector {
    address: String,
    config: Arc<ClientConfig>,
}

impl AdminConnector {
    fn of(cluster: &Cluster) -> Self {
        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
        let server = kubeconfig.clusters[0].cluster.clone().unwrap();
        let user = serde_json::to_value(kubeconfig.auth_infos[0].auth_info.clone().unwrap()).unwrap();
        let pem = |text: &str| base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).unwrap();
        let mut roots = RootCertStore::empty();
        let authority = pem(server.certificate_authority_data.as_deref().unwrap());
        roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
        let certificate = pem(user["client-certificate-data"].as_str().unwrap());
        let key = kubeconfig.auth_infos[0].auth_info.as_ref().unwrap().client_key_data.clone().unwrap();
        let key = pem(secrecy::ExposeSecret::expose_secret(&key));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(&certificate).unwrap()],
                PrivateKeyDer::from_pem_slice(&key).unwrap(),
            )
            .unwrap();
        Self { address: server.server.unwrap().trim_start_matches("https://").to_owned(), config: Arc::new(config) }
    }

    fn connect(&self) -> Tls {
        let socket = TcpStream::connect(&self.address).expect("Podium listens");
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        StreamOwned::new(ClientConnection::new(Arc::clone(&self.config), name).unwrap(), socket)
    }
}

/// Returns a valid request for streams.
fn upgrade_request(random: &mut StdRng) -> String {
    let pod = "/api/v1/namespaces/default/pods/p";
    let exec = format!("{pod}/exec?command=cat&stdin=1&stdout=1&stderr=1");
    let websocket = |path: &str, protocol: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: podium\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
        )
    };
    match random.random_range(0..9) {
        // Fewer exec requests, because each starts a process.
        0 => websocket(&exec, "v5.channel.k8s.io"),
        1 => websocket(&format!("{exec}&tty=1"), "v4.channel.k8s.io"),
        2 => websocket(&exec, "base64.channel.k8s.io"),
        3 | 4 => websocket(&format!("{pod}/portforward"), "SPDY/3.1+portforward.k8s.io"),
        5 | 6 => websocket(&format!("{pod}/portforward?ports=80,81"), "v4.channel.k8s.io"),
        _ => format!(
            "POST {pod}/portforward HTTP/1.1\r\nHost: podium\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
             X-Stream-Protocol-Version: portforward.k8s.io\r\nContent-Length: 0\r\n\r\n"
        ),
    }
}

/// Returns random bytes or nearly valid frames.
fn malformed_bytes(random: &mut StdRng) -> Vec<u8> {
    let mut bytes = vec![0; random.random_range(0..2000)];
    random.fill_bytes(&mut bytes);
    match random.random_range(0..4) {
        0 => bytes,
        // A SPDY frame of a random type, with a correct or wrong length.
        1 => [&[0x80, 3, 0, random.random_range(0..10), 0, 0, random.random(), random.random()], &bytes[..]].concat(),
        // Resize, close and unknown channels.
        2 => [&[random.random_range(0..7)], &br#"{"Width": 99999999, "Height": "x"}"#[..]].concat(),
        _ => vec![255, random.random()],
    }
}

/// Returns a masked WebSocket frame of a random kind, with a length that may be wrong.
fn frame(random: &mut StdRng, payload: &[u8]) -> Vec<u8> {
    let opcode = [0x82, 0x81, 0x80, 0x02, 0x88, 0x89, 0x8a, 0xf3][random.random_range(0..8)];
    let claimed = if random.random_ratio(1, 10) { random.random() } else { payload.len() as u64 };
    let key: [u8; 4] = random.random();
    let masked = payload.iter().zip(key.iter().cycle()).map(|(b, k)| b ^ k);
    let head = [opcode, 0x80 | 127];
    head.into_iter().chain(claimed.to_be_bytes()).chain(key).chain(masked).collect()
}

fn resident(cluster: &Cluster) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", cluster.pid())).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[e2e_test("malformed streams do not disturb other clients")]
fn malformed_streams_do_not_disturb_others() {
    let seed = rand::random();
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    kubectl.args(&["run", "p", "--image", test_images::BUSYBOX, "--", "sleep", "100000"], "").ok();
    kubectl.wait_ready("p");
    let door = AdminConnector::of(&cluster);
    let before = resident(&cluster);
    let (mut clients, mut upgraded) = (0, 0);
    let end = Instant::now() + tests::scaled(Duration::from_secs(300));
    // On a slow machine some responses are late.
    while clients < CLIENTS || upgraded <= CLIENTS / 5 {
        assert!(Instant::now() < end, "only {upgraded} of {clients} clients were upgraded");
        clients += 1;
        let mut stream = door.connect();
        let mut request = upgrade_request(&mut random).into_bytes();
        if random.random_ratio(1, 5) {
            let at = random.random_range(0..request.len());
            request[at] = random.random();
        }
        let mut answer = [0; 1024];
        let sent = stream.write_all(&request).and_then(|()| stream.flush());
        let Ok(n @ 1..) = sent.and_then(|()| stream.read(&mut answer)) else { continue };
        upgraded += usize::from(answer[..n].starts_with(b"HTTP/1.1 101"));
        for _ in 0..random.random_range(1..30) {
            let payload = malformed_bytes(&mut random);
            let bytes = if random.random_ratio(4, 5) { frame(&mut random, &payload) } else { payload };
            if stream.write_all(&bytes).is_err() {
                break;
            }
        }
        // The server may respond, close the connection or wait for more data.
        let _ = stream.read(&mut answer);
    }
    assert_eq!(kubectl.run("exec p -- echo served").ok(), "served\n");
    assert!(!cluster.log().contains("panicked"), "{}", cluster.log());
    let after = resident(&cluster);
    eprintln!("{upgraded} of {CLIENTS} upgraded; {before} bytes before, {after} after");
    assert!(after < before + MAX_GROWTH, "from {before} bytes to {after}");
}
