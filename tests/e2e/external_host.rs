//! A host outside of the cluster that counts connections: a network namespace behind a veth pair.

use nix::sched::{CloneFlags, setns};
use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddrV4, TcpListener},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

pub(crate) struct ExternalHost {
    name: String,
    address: SocketAddrV4,
    connections: Arc<AtomicUsize>,
}

fn ip(args: &str) {
    let done = Command::new("ip").args(args.split(' ')).status().unwrap();
    assert!(done.success(), "ip {args}");
}

impl ExternalHost {
    pub(crate) fn new() -> Self {
        let id = std::process::id();
        let name = format!("pe2e-{id}");
        // The block for benchmarks (RFC 2544) has no other users.
        let [_, _, third, fourth] = id.to_be_bytes();
        let block = fourth & 0xfc;
        let [near, far] = [1, 2].map(|host| Ipv4Addr::new(198, 18 + third % 2, third, block | host));
        ip(&format!("netns add {name}"));
        ip(&format!("link add {name} type veth peer name far netns {name}"));
        ip(&format!("addr add {near}/30 dev {name}"));
        ip(&format!("link set {name} up"));
        ip(&format!("-n {name} addr add {far}/30 dev far"));
        ip(&format!("-n {name} link set far up"));
        let netns = File::open(format!("/run/netns/{name}")).unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let address = SocketAddrV4::new(far, 8080);
        let listener = std::thread::spawn(move || {
            setns(netns, CloneFlags::CLONE_NEWNET).unwrap();
            TcpListener::bind(address).unwrap()
        });
        let listener = listener.join().unwrap();
        // The thread ends with this process.
        std::thread::spawn(move || {
            for _ in listener.incoming() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { name, address, connections }
    }

    pub(crate) fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for ExternalHost {
    fn drop(&mut self) {
        for args in [["link", "del", &self.name], ["netns", "del", &self.name]] {
            let _ = Command::new("ip").args(args).status();
        }
    }
}
