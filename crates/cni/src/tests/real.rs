//! Tests with Debian's CNI plugins.

use super::*;
use nix::sched::setns;
use runtime::PortMapping;
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
};

const PLUGINS: &str = "/usr/lib/cni";

/// Runs a closure in a network namespace.
fn inside<T: Send + 'static>(netns: &Path, work: impl FnOnce() -> T + Send + 'static) -> T {
    let file = fs::File::open(netns).unwrap();
    let thread = std::thread::spawn(move || {
        setns(file, CloneFlags::CLONE_NEWNET).unwrap();
        work()
    });
    thread.join().unwrap()
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn bridge_and_portmap_connect_pods_and_release_addresses() {
    if !["bridge", "host-local", "portmap"].iter().all(|name| Path::new(PLUGINS).join(name).is_file()) {
        println!("skipped: the CNI plugins are not installed");
        return;
    }
    in_own_namespaces(async || {
        let dirs = Dirs::new();
        let addresses = dirs.path("ipam");
        let list = json!({
            "cniVersion": "1.0.0",
            "name": "net",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": true,
                    "ipam": {"type": "host-local", "dataDir": addresses, "ranges": [[{"subnet": "10.9.0.0/24"}]]},
                },
                {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
            ],
        });
        fs::write(dirs.path("conf/10.conflist"), list.to_string()).unwrap();
        run("ip", &["link", "set", "lo", "up"]);
        let options = CniOptions { bin_dirs: vec![PLUGINS.into()], ..dirs.options() };
        let cni = Cni::open(options).unwrap();
        let port = PortMapping { protocol: "TCP".into(), container_port: 80, host_port: 8080, host_ip: String::new() };
        let config = SandboxConfig { port_mappings: vec![port], ..sandbox_config() };
        let netns = namespace();
        let ips = cni.attach("s1", &path_of(&netns), &config).await.unwrap();
        assert_eq!(ips, ["10.9.0.2".parse::<std::net::IpAddr>().unwrap()]);
        let second = attach(&cni, "s2").await.unwrap();
        assert_eq!(second, ["10.9.0.3"]);

        // `lo` is up, too.
        let listener = inside(&path_of(&netns), || TcpListener::bind("0.0.0.0:80").unwrap());
        let server = std::thread::spawn(move || {
            for _ in 0..3 {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(b"served").unwrap();
            }
        });
        let read = |address: &'static str| {
            move || {
                let mut text = String::new();
                TcpStream::connect(address).unwrap().read_to_string(&mut text).unwrap();
                text
            }
        };
        assert_eq!(inside(&path_of(&netns), read("127.0.0.1:80")), "served");
        assert_eq!(inside(&netns::path(&dirs.path("netns"), "s2"), read("10.9.0.2:80")), "served");
        assert_eq!(read("10.9.0.1:8080")(), "served");
        server.join().unwrap();

        let files = || fs::read_dir(addresses.join("net")).unwrap().count();
        let before = files();
        drop(netns);
        cni.detach("s1").await.unwrap();
        cni.detach("s2").await.unwrap();
        assert_eq!((files(), dirs.mounts()), (before - 2, 0));
        let rules = Command::new("iptables").args(["-t", "nat", "-S"]).output().unwrap();
        assert!(!String::from_utf8_lossy(&rules.stdout).contains("10.9.0.2"), "host port is left");
    });
}
