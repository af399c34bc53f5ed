//! Kernel tests of anti-spoofing, with a Pod that has `CAP_NET_ADMIN`.

use super::*;
use crate::{
    Network, Options, PodAttachment,
    attach::{connector::Connector, tables, veth},
    command::{find, run},
    destroy::real_tests::{in_own_namespaces, inside, pod_namespace},
};
use expect_test::expect;
use std::{
    net::UdpSocket,
    path::Path,
    time::{Duration, Instant},
};

const DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn table_checks_the_ports_it_knows() {
    let port = Port { veth: "veth1".into(), mac: "0a:00:00:00:00:01".into(), ip: Ipv4Addr::new(10, 0, 0, 2) };
    expect![[r#"
        add table bridge t
        delete table bridge t
        add table bridge t
        add set bridge t ports { type ifname ; }
        add set bridge t senders { type ifname . ether_addr ; }
        add set bridge t addresses { type ifname . ether_addr . ipv4_addr ; }
        add chain bridge t prerouting { type filter hook prerouting priority -300 ; }
        add rule bridge t prerouting iifname != @ports accept
        add rule bridge t prerouting iifname . ether saddr != @senders drop
        add rule bridge t prerouting ether type ip iifname . ether saddr . ip saddr != @addresses drop
        add rule bridge t prerouting ether type arp iifname . arp saddr ether . arp saddr ip != @addresses drop
        add rule bridge t prerouting ether type ip6 icmpv6 type { nd-router-advert, nd-redirect } drop
        add rule bridge t prerouting ether type != { ip, arp, ip6 } drop
        add element bridge t ports { "veth1" }
        add element bridge t senders { "veth1" . 0a:00:00:00:00:01 }
        add element bridge t addresses { "veth1" . 0a:00:00:00:00:01 . 10.0.0.2 }
    "#]]
    .assert_eq(&table("t", [&port].into_iter()));
}

fn ip(args: &str) {
    let done = std::process::Command::new("ip").args(args.split(' ')).status().expect("ip runs");
    assert!(done.success(), "ip {args}");
}

/// Sends from an address, by default the Pod's own.
fn send(netns: &Path, from: Option<Ipv4Addr>, to: (Ipv4Addr, u16), text: &'static str) {
    inside(netns, move || {
        let socket = UdpSocket::bind((from.unwrap_or(Ipv4Addr::UNSPECIFIED), 0)).expect("a socket");
        socket.send_to(text.as_bytes(), to).expect("sent");
    });
}

/// Receives the next packet.
fn received(socket: &UdpSocket) -> String {
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer).expect("a packet in time");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

/// Returns the node's neighbour table entry.
async fn neighbour(ip: Ipv4Addr) -> String {
    run("ip", &["neigh", "show", &ip.to_string()], "").await.expect("a list")
}

#[test]
fn pod_cannot_send_with_an_address_of_another() {
    in_own_namespaces(async || {
        if find("nft").is_none() || find("ip").is_none() {
            println!("skipped: nft or ip is not installed");
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let network = Network::prepare(Options::new(dir.path().join("data"))).await.expect("a network");
        if !network.has_anti_spoofing {
            println!("skipped: no nftables for bridges here");
            return;
        }
        let netns = dir.path().join("attacker");
        pod_namespace(&netns);
        let attachment = PodAttachment { sandbox: "c1", netns: &netns, port_mappings: &[] };
        let own = network.attach(attachment).await.expect("connected").ipv4;
        let node = UdpSocket::bind((network.gateway, 0)).expect("a socket");
        node.set_read_timeout(Some(DEADLINE)).expect("a time");
        let to = (network.gateway, node.local_addr().expect("an address").port());
        let spoofed = Ipv4Addr::new(10, 244, 0, 77);

        send(&netns, None, to, "as itself");
        assert_eq!(received(&node), "as itself");
        // Packets of one port keep their order.
        inside(&netns, move || ip(&format!("addr add {spoofed}/24 dev eth0")));
        send(&netns, Some(spoofed), to, "as another");
        send(&netns, None, to, "as itself again");
        assert_eq!(received(&node), "as itself again");

        // It has configured the address, but must not be reachable there.
        let socket = UdpSocket::bind((network.gateway, 0)).expect("a socket");
        let end = Instant::now() + DEADLINE;
        // Once: another packet would restart neighbour discovery, and hide its failure.
        socket.send_to(b"?", (spoofed, 9)).expect("sent");
        loop {
            let entry = neighbour(spoofed).await;
            assert!(!entry.contains("lladdr"), "{entry}");
            if entry.contains("FAILED") {
                break;
            }
            assert!(Instant::now() < end, "{entry}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }

        let own = veth::mac(own).map(|byte| format!("{byte:02x}")).join(":");
        inside(&netns, || ip("link set eth0 address 0a:00:00:00:00:99"));
        send(&netns, None, to, "with another MAC");
        inside(&netns, move || ip(&format!("link set eth0 address {own}")));
        send(&netns, None, to, "with its own MAC");
        assert_eq!(received(&node), "with its own MAC");

        // A removed table is installed again.
        run("nft", &["flush", "ruleset"], "").await.expect("nothing is left");
        tables::install(&Connector::of(&network)).await.expect("installed");
        send(&netns, Some(spoofed), to, "as another");
        send(&netns, None, to, "as itself at last");
        assert_eq!(received(&node), "as itself at last");
        crate::destroy::destroy(&dir.path().join("data")).await.expect("removed");
        let tables = run("nft", &["list", "tables"], "").await.expect("a list");
        assert!(!tables.contains(&network.bridge), "{tables}");
    });
}
