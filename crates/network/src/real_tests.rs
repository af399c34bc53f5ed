//! Tests with the real kernel, in network namespaces. Needs root.

use super::*;
use crate::{Network, Options, PodAttachment, PodConnector};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
};
use std::net::Ipv4Addr;
use tokio::process::Command;

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
            rules += listing.lines().filter(|line| line.contains(bridge)).count();
        }
    }
    rules
}

#[test]
fn network_is_created_taken_over_and_destroyed() {
    in_own_namespaces(async || {
        let dir = tempfile::tempdir().expect("a directory");
        let data_dir = dir.path().join("data");
        if find("iptables").is_some() {
            run("iptables", &["-P", "FORWARD", "DROP"], "").await.expect("Docker's policy");
        }
        let first = Network::prepare(Options::new(&data_dir)).await.expect("a network");
        assert_eq!(first.cidr.to_string(), "10.244.0.0/24");

        let netns = dir.path().join("pod");
        pod_namespace(&netns);
        let attachment = PodAttachment { sandbox: "c1", netns: &netns, port_mappings: &[] };
        assert_eq!(first.attach(attachment).await.expect("connected").ipv4.to_string(), "10.244.0.2");
        let rules = firewall_rules(&first.bridge).await;
        assert!(rules > 2, "{rules}");

        let again = Network::prepare(Options::new(&data_dir)).await.expect("taken over");
        assert_eq!(again, first);
        assert_eq!(firewall_rules(&first.bridge).await, rules, "no rule is added twice");
        let mut other = Options::new(&data_dir);
        other.pod_cidr = Some("10.9.0.0/24".parse().expect("a CIDR"));
        let refused = Network::prepare(other.clone()).await.expect_err("Pods run");
        assert!(matches!(refused, Error::CidrInUse { .. }), "{refused}");

        destroy(&data_dir).await.expect("removed");
        destroy(&data_dir).await.expect("removed twice");
        let machine = Netlink::open().expect("netlink").machine().await.expect("links");
        let left: Vec<_> = machine.links.iter().filter(|l| l.is_bridge || l.name.starts_with("veth")).collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(firewall_rules(&first.bridge).await, 0);
        assert!(!data_dir.join("network").exists());

        let changed = Network::prepare(other).await.expect("no Pod is attached");
        assert_eq!(changed.gateway.to_string(), "10.9.0.1");
        destroy(&data_dir).await.expect("removed");
    });
}

#[test]
fn two_networks_get_disjoint_cidrs() {
    in_own_namespaces(async || {
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
            destroy(&dir.path().join(name)).await.expect("removed");
        }
    });
}

#[test]
fn foreign_bridge_is_an_error() {
    in_own_namespaces(async || {
        let dir = tempfile::tempdir().expect("a directory");
        let names = Names::of(dir.path());
        let mut foreign = names.clone();
        foreign.alias = "another owner".into();
        let netlink = Netlink::open().expect("netlink");
        let address = "10.9.0.1/24".parse().expect("an address");
        netlink.ensure_bridge(&foreign, None, address, false).await.expect("a bridge");
        let refused = Network::prepare(Options::new(dir.path())).await.expect_err("taken");
        assert!(matches!(refused, Error::BridgeTaken { .. }), "{refused}");
        destroy(dir.path()).await.expect("nothing to do");
        let machine = netlink.machine().await.expect("links");
        assert!(machine.link(&names.bridge).is_some(), "a foreign interface is kept");
    });
}

/// The node's gateways are reserved, so that no address pool contains them.
#[test]
fn gateways_are_read_from_routes() {
    in_own_namespaces(|| async {
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

#[test]
fn network_of_cni_has_an_address_of_its_own_and_no_pods() {
    in_own_namespaces(async || {
        let dir = tempfile::tempdir().expect("a directory");
        let options = |name: &str, pods: Option<&str>| {
            let mut options = Options::new(dir.path().join(name));
            options.connector = PodConnector::Cni;
            options.pod_cidr = pods.map(|cidr| cidr.parse().expect("a CIDR"));
            options
        };
        let refused = Network::prepare(options("a", None)).await.expect_err("no CIDR");
        assert!(matches!(refused, Error::PodCidrMissing), "{refused}");
        // Both have the same CIDR: it is not theirs.
        let [a, b] = [options("a", Some("10.9.0.0/16")), options("b", Some("10.9.0.0/16"))];
        let (a, b) =
            (Network::prepare(a.clone()).await.expect("a network"), Network::prepare(b).await.expect("another"));
        assert_eq!((a.gateway.to_string(), b.gateway.to_string()), ("10.99.255.1".into(), "10.99.255.2".into()));
        assert_eq!(a.cidr.to_string(), "10.9.0.0/16");
        // A failed first start is undone only if there is a directory.
        assert!(dir.path().join("a/network").is_dir());
        let again = Network::prepare(options("a", Some("10.9.0.0/24"))).await.expect("taken over");
        assert_eq!((again.gateway, again.cidr.prefix_len()), (a.gateway, 24));
        let machine = Netlink::open().expect("netlink").machine().await.expect("links");
        assert!(machine.routes.iter().all(|(_, net)| !a.cidr.contains(net)), "{:?}", machine.routes);
        assert!(a.peers().contains(Ipv4Addr::new(10, 9, 1, 2).into()));
        a.bind_dns().await.expect("a listener");

        // Another connector: Pods of the first one prevent the change.
        let own = Network::prepare(Options::new(dir.path().join("a"))).await.expect("a network");
        assert_eq!(own.gateway.to_string(), "10.244.0.1");
        let netns = dir.path().join("pod");
        pod_namespace(&netns);
        let attachment = PodAttachment { sandbox: "c1", netns: &netns, port_mappings: &[] };
        own.attach(attachment).await.expect("connected");
        assert!(crate::has_attachments(&dir.path().join("a")).expect("records"));
        let refused = Network::prepare(options("a", Some("10.9.0.0/16"))).await.expect_err("Pods run");
        assert!(matches!(refused, Error::CidrInUse { .. }), "{refused}");
        own.detach("c1").await.expect("disconnected");
        assert!(!crate::has_attachments(&dir.path().join("a")).expect("records"));
        let back = Network::prepare(options("a", Some("10.9.0.0/16"))).await.expect("no Pods");
        assert_eq!(back.gateway, a.gateway);
        let names = if find("nft").is_some() {
            run("nft", &["list", "tables"], "").await.expect("a list")
        } else {
            String::new()
        };
        assert!(!names.contains(&a.bridge), "{names}");
        for name in ["a", "b"] {
            destroy(&dir.path().join(name)).await.expect("removed");
        }
        let machine = Netlink::open().expect("netlink").machine().await.expect("links");
        assert!(machine.links.iter().all(|link| !link.is_bridge), "{:?}", machine.links);
    });
}
