//! Tests with the real kernel and CNI plugins, in network namespaces. Needs root.

use super::*;
use crate::{Network, Options};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
};
use serde_json::{Value, json};
use std::{net::Ipv4Addr, process::Stdio};
use tokio::{io::AsyncWriteExt, process::Command};

/// Runs `test` as [`in_own_namespaces`], if the CNI plugins are installed.
pub(crate) fn in_a_namespace<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let missing = ["/usr/lib/cni/bridge", "/usr/lib/cni/host-local"].into_iter().find(|p| !Path::new(p).is_file());
    match missing {
        Some(missing) => println!("skipped: {missing} is not installed"),
        None => in_own_namespaces(test),
    }
}

/// Runs `test` on a thread with its own network and mount namespaces, or prints why this is not possible.
pub(crate) fn in_own_namespaces<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let thread = std::thread::spawn(move || {
        if let Err(e) = unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS) {
            println!("skipped: no network namespaces here ({e})");
            return;
        }
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
            .expect("private mounts");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(test());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Creates a network namespace that is mounted on a file, as containerd does.
pub(crate) fn pod_namespace(file: &Path) {
    fs::write(file, "").expect("writable");
    let file = file.to_path_buf();
    let made = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a namespace");
        let own = format!("/proc/self/task/{}/ns/net", nix::unistd::gettid());
        mount(Some(own.as_str()), &file, None::<&str>, MsFlags::MS_BIND, None::<&str>).expect("mounted");
    });
    made.join().expect("a namespace");
}

/// Runs a closure in a Pod's network namespace.
pub(crate) fn inside<T: Send + 'static>(netns: &Path, work: impl FnOnce() -> T + Send + 'static) -> T {
    let file = fs::File::open(netns).expect("a namespace");
    let thread = std::thread::spawn(move || {
        setns(file, CloneFlags::CLONE_NEWNET).expect("entered");
        work()
    });
    thread.join().expect("it ends")
}

/// Connects a Pod as a container runtime does: runs the plugins and stores the result in libcni's cache.
pub(crate) async fn add_pod(network: &Network, cni_paths: &CniPaths, netns: &Path, id: &str, host_port: u16) -> Value {
    let file = network.conf_dir.join("10-podium.conflist");
    let list: Value = serde_json::from_slice(&fs::read(file).expect("a list")).expect("JSON");
    let mut result = Value::Null;
    for plugin in list["plugins"].as_array().expect("plugins") {
        let mut config = plugin.clone();
        config["cniVersion"] = list["cniVersion"].clone();
        config["name"] = list["name"].clone();
        if !result.is_null() {
            config["prevResult"] = result;
            let mapping = json!({ "hostPort": host_port, "containerPort": 80, "protocol": "tcp" });
            config["runtimeConfig"] = json!({ "portMappings": [mapping] });
        }
        result = run_plugin(network, netns, id, &config).await;
    }
    fs::create_dir_all(&cni_paths.cni_cache).expect("a directory");
    let entry = json!({ "containerId": id, "networkName": network.bridge, "result": result });
    let name = format!("{}-{id}-eth0", network.bridge);
    fs::write(cni_paths.cni_cache.join(name), entry.to_string()).expect("writable");
    result
}

async fn run_plugin(network: &Network, netns: &Path, id: &str, config: &Value) -> Value {
    let mut child = tokio::process::Command::new(network.bin_dir.join(config["type"].as_str().expect("a type")))
        .env("CNI_COMMAND", "ADD")
        .env("CNI_CONTAINERID", id)
        .env("CNI_IFNAME", "eth0")
        .env("CNI_NETNS", netns)
        .env("CNI_PATH", &network.bin_dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the plugin starts");
    let mut stdin = child.stdin.take().expect("stdin");
    stdin.write_all(config.to_string().as_bytes()).await.expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().await.expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    serde_json::from_str(&text).expect("a result")
}

/// Returns the rules of a network: masquerading, forwarding, and one host port.
async fn firewall_rules(bridge: &str) -> usize {
    let mut rules = 0;
    for (program, args) in [
        ("nft", &["list", "tables"][..]),
        ("iptables", &["-t", "nat", "-S"][..]),
        ("iptables", &["-t", "filter", "-S"][..]),
    ] {
        if find(program).is_some() {
            let listing = run(program, args, "").await.expect("a listing");
            rules += listing.lines().filter(|line| line.contains(bridge) || line.contains("CNI-DN-")).count();
        }
    }
    rules
}

#[test]
fn network_is_created_taken_over_and_destroyed() {
    in_a_namespace(async || {
        let dir = tempfile::tempdir().expect("a directory");
        let data_dir = dir.path().join("data");
        let cni_paths = CniPaths { cni_cache: dir.path().join("cache"), namespaces: vec![dir.path().to_path_buf()] };
        if find("iptables").is_some() {
            run("iptables", &["-P", "FORWARD", "DROP"], "").await.expect("Docker's policy");
        }
        let first = Network::prepare(Options::new(&data_dir)).await.expect("a network");
        assert_eq!(first.cidr.to_string(), "10.244.0.0/24");

        let netns = dir.path().join("cni-1");
        pod_namespace(&netns);
        let result = add_pod(&first, &cni_paths, &netns, "c1", 8080).await;
        assert_eq!(result["ips"][0]["address"], "10.244.0.2/24");
        assert_eq!(result["ips"][0]["gateway"], "10.244.0.1");
        let rules = firewall_rules(&first.bridge).await;
        assert!(find("iptables").is_none() || rules > 4, "{rules}");

        let again = Network::prepare(Options::new(&data_dir)).await.expect("taken over");
        assert_eq!(again, first);
        assert_eq!(firewall_rules(&first.bridge).await, rules, "no rule is added twice");
        let mut other = Options::new(&data_dir);
        other.pod_cidr = Some("10.9.0.0/24".parse().expect("a CIDR"));
        let refused = Network::prepare(other.clone()).await.expect_err("Pods run");
        assert!(matches!(refused, Error::CidrInUse { .. }), "{refused}");

        destroy(&data_dir, &cni_paths).await.expect("removed");
        destroy(&data_dir, &cni_paths).await.expect("removed twice");
        let machine = Netlink::open().expect("netlink").machine().await.expect("links");
        let left: Vec<_> = machine.links.iter().filter(|l| l.is_bridge || l.name.starts_with("veth")).collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(firewall_rules(&first.bridge).await, 0);
        assert!(!netns.exists() && !data_dir.join("network").exists());
        assert_eq!(fs::read_dir(&cni_paths.cni_cache).expect("the cache").count(), 0);

        let changed = Network::prepare(other).await.expect("no Pod is attached");
        assert_eq!(changed.gateway.to_string(), "10.9.0.1");
        destroy(&data_dir, &cni_paths).await.expect("removed");
    });
}

#[test]
fn two_networks_get_disjoint_cidrs() {
    in_a_namespace(async || {
        let dir = tempfile::tempdir().expect("a directory");
        let options = |name: &str| Options::new(dir.path().join(name));
        let (a, b) = tokio::join!(Network::prepare(options("a")), Network::prepare(options("b")));
        let (a, b) = (a.expect("a network"), b.expect("another"));
        assert_ne!(a.cidr, b.cidr);
        assert_ne!(a.bridge, b.bridge);

        let mut taken = options("c");
        taken.pod_cidr = Some(a.cidr);
        let refused = Network::prepare(taken).await.expect_err("the CIDR is taken");
        assert_eq!(refused.to_string(), format!("the Pod CIDR {} overlaps with {} on {}", a.cidr, a.cidr, a.bridge));

        // The bridge is missing after a reboot: the CIDR stays the same.
        let netlink = Netlink::open().expect("netlink");
        let machine = netlink.machine().await.expect("links");
        netlink.delete(machine.link(&b.bridge).expect("the bridge")).await.expect("deleted");
        assert_eq!(Network::prepare(options("b")).await.expect("a network").cidr, b.cidr);
        for name in ["a", "b", "c"] {
            destroy(&dir.path().join(name), &CniPaths::default()).await.expect("removed");
        }
    });
}

#[test]
fn foreign_bridge_is_an_error() {
    in_a_namespace(async || {
        let dir = tempfile::tempdir().expect("a directory");
        let names = Names::of(dir.path());
        let mut foreign = names.clone();
        foreign.alias = "another owner".into();
        let netlink = Netlink::open().expect("netlink");
        let address = "10.9.0.1/24".parse().expect("an address");
        netlink.ensure_bridge(&foreign, None, address, false).await.expect("a bridge");
        let refused = Network::prepare(Options::new(dir.path())).await.expect_err("taken");
        assert!(matches!(refused, Error::BridgeTaken { .. }), "{refused}");
        destroy(dir.path(), &CniPaths::default()).await.expect("nothing to do");
        let machine = netlink.machine().await.expect("links");
        assert!(machine.link(&names.bridge).is_some(), "a foreign interface is kept");
    });
}

/// The node's gateways are reserved, so that no address pool contains them.
#[test]
fn gateways_are_read_from_routes() {
    in_a_namespace(|| async {
        let run_ip = async |args: &str| {
            let done = Command::new("ip").args(args.split(' ')).status().await.expect("ip runs");
            assert!(done.success(), "{args}");
        };
        assert_eq!(Network::gateways().await.expect("routes"), Vec::<Ipv4Addr>::new());
        run_ip("link add d0 type bridge").await;
        run_ip("addr add 192.0.2.2/24 dev d0").await;
        run_ip("link set d0 up").await;
        run_ip("route add default via 192.0.2.1").await;
        run_ip("route add 198.51.100.0/24 via 192.0.2.77").await;
        let mut gateways = Network::gateways().await.expect("routes");
        gateways.sort_unstable();
        assert_eq!(gateways, [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 77)]);
    });
}
