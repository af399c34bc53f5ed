//! Tests with the real kernel, in namespaces of their own. Need root, nft and ip.

mod connections;
mod host_ports;
mod measurements;
mod recovery;

use super::{connector::Connector, veth::host_interface, *};
use crate::{
    Options, Protocol,
    command::{find, run},
    destroy::real_tests::{in_own_namespaces, inside, pod_namespace},
};
use nix::mount::{MntFlags, umount2};
use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(60);
/// Time after which a packet counts as lost.
const RESEND: Duration = Duration::from_secs(1);
const PORT: u16 = 8000;
/// Number of packets of [`udp`].
static SENT: AtomicU32 = AtomicU32::new(0);

/// Data directory with its network, and the namespaces of Pods.
struct Node {
    dir: TempDir,
    network: Network,
}

impl Node {
    async fn new(pod_cidr: &str) -> Self {
        // Traffic of the node to itself.
        ip("link set lo up");
        let dir = tempfile::tempdir().unwrap();
        let network = prepare(dir.path(), pod_cidr).await;
        Self { dir, network }
    }

    /// Creates a namespace.
    fn namespace(&self, name: &str) -> PathBuf {
        let file = self.dir.path().join(name);
        pod_namespace(&file);
        file
    }

    /// Creates a namespace and connects it.
    async fn pod(&self, sandbox: &str, ports: &[PortMapping]) -> (PathBuf, Ipv4Addr) {
        let netns = self.namespace(sandbox);
        let ip = self.attach(sandbox, &netns, ports).await.expect("connected");
        (netns, ip)
    }

    async fn attach(&self, sandbox: &str, netns: &Path, port_mappings: &[PortMapping]) -> Result<Ipv4Addr, Error> {
        let attached = self.network.attach(PodAttachment { sandbox, netns, port_mappings }).await;
        attached.map(|addresses| addresses.ipv4)
    }

    fn connector(&self) -> Connector {
        Connector::of(&self.network)
    }

    async fn destroy(self) {
        Network::destroy(&self.dir.path().join("data")).await.expect("removed");
        let tables = run("nft", &["list", "tables"], "").await.expect("a list");
        assert!(!tables.contains(&self.network.bridge), "{tables}");
        assert!(!self.network.names.dir().exists());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for file in std::fs::read_dir(self.dir.path()).into_iter().flatten().flatten() {
            // Only namespaces are mounts.
            let _ = umount2(&file.path(), MntFlags::MNT_DETACH);
        }
    }
}

async fn prepare(dir: &Path, pod_cidr: &str) -> Network {
    let mut options = Options::new(dir.join("data"));
    options.pod_cidr = Some(pod_cidr.parse().expect("a CIDR"));
    Network::prepare(options).await.expect("a network")
}

/// Runs a test in namespaces of its own, if nft and ip are installed.
fn test<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    match ["nft", "ip"].into_iter().find(|program| find(program).is_none()) {
        Some(missing) => println!("skipped: {missing} is not installed"),
        None => in_own_namespaces(test),
    }
}

fn ip(args: &str) {
    let done = std::process::Command::new("ip").args(args.split(' ')).status().expect("ip runs");
    assert!(done.success(), "ip {args}");
}

fn ip_output(args: &str) -> String {
    let done = std::process::Command::new("ip").args(args.split(' ')).output().expect("ip runs");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Runs a closure in a namespace, or in the node's.
fn within<T: Send + 'static>(netns: Option<&Path>, work: impl FnOnce() -> T + Send + 'static) -> T {
    match netns {
        Some(netns) => inside(netns, work),
        None => std::thread::spawn(work).join().expect("it ends"),
    }
}

/// Removes a namespace. Its interfaces vanish with it, but only when the kernel has removed others of the machine.
async fn remove_namespace(netns: &Path, pod: Ipv4Addr) {
    umount2(netns, MntFlags::MNT_DETACH).unwrap();
    // Fails if the kernel was faster.
    ip_output(&format!("link delete {}", host_interface(pod)));
    wait_for_removal(pod).await;
}

/// Waits until the interfaces of a Pod are deleted.
async fn wait_for_removal(ip: Ipv4Addr) {
    let end = Instant::now() + DEADLINE;
    while !ip_output(&format!("link show {}", host_interface(ip))).is_empty() {
        assert!(Instant::now() < end, "the interface is still there");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn tcp_listener(netns: Option<&Path>, port: u16) -> TcpListener {
    within(netns, move || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).expect("a listener"))
}

/// Connects from a namespace to an address; returns the client's address as the listener sees it.
fn tcp(from: Option<&Path>, to: (Ipv4Addr, u16), listener: &TcpListener) -> Ipv4Addr {
    let client = within(from, move || TcpStream::connect_timeout(&SocketAddr::from(to), DEADLINE));
    let client = client.unwrap_or_else(|e| panic!("{to:?}: {e}"));
    let (server, peer) = listener.accept().expect("a connection");
    assert_eq!(server.local_addr().unwrap().port(), listener.local_addr().unwrap().port());
    drop(client);
    v4(peer)
}

/// Returns the error of a connection that must fail.
fn tcp_error(from: Option<&Path>, to: (Ipv4Addr, u16)) -> io::ErrorKind {
    within(from, move || TcpStream::connect_timeout(&SocketAddr::from(to), DEADLINE)).expect_err("refused").kind()
}

fn udp_socket(netns: Option<&Path>, port: u16) -> UdpSocket {
    let socket = within(netns, move || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).expect("a socket"));
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket
}

/// Sends a packet and the answer, until they arrive; returns the client's address as the server sees it.
fn udp(client: &UdpSocket, to: (Ipv4Addr, u16), server: &UdpSocket) -> Ipv4Addr {
    // Answers from another address are not received.
    client.connect(to).unwrap();
    let token = SENT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let end = Instant::now() + DEADLINE;
    while Instant::now() < end {
        // The error is that of an earlier packet.
        let _ = client.send(&token);
        let Some(peer) = receive(server, token) else { continue };
        server.send_to(&token, peer).unwrap();
        if receive(client, token).is_some() {
            return v4(peer);
        }
    }
    panic!("no answer of {to:?}");
}

/// Waits for this packet, and drops others; returns its sender.
fn receive(socket: &UdpSocket, token: [u8; 4]) -> Option<SocketAddr> {
    socket.set_read_timeout(Some(RESEND)).unwrap();
    let end = Instant::now() + RESEND;
    let mut buffer = [0; 8];
    while Instant::now() < end {
        if let Ok((length, peer)) = socket.recv_from(&mut buffer)
            && buffer[..length] == token
        {
            return Some(peer);
        }
    }
    None
}

fn v4(address: SocketAddr) -> Ipv4Addr {
    match address.ip() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) => panic!("{ip}"),
    }
}

fn mapping(protocol: Protocol, host_port: u16, host_ip: Option<&str>) -> PortMapping {
    let host_ip = host_ip.map(|ip| ip.parse().unwrap());
    PortMapping { protocol, host_port, container_port: PORT, host_ip }
}
