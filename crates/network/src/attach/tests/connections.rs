//! Interfaces, addresses and connectivity.

use super::*;
use std::net::Ipv4Addr as Ip;

const GATEWAY: Ip = Ip::new(10, 9, 0, 1);

#[test]
fn pods_reach_node_each_other_and_other_networks() {
    test(async || {
        let node = Node::new("10.9.0.0/24").await;
        let (a, a_ip) = node.pod("a", &[]).await;
        let (b, b_ip) = node.pod("b", &[]).await;
        assert_eq!((a_ip, b_ip), (Ip::new(10, 9, 0, 2), Ip::new(10, 9, 0, 3)));

        let on_node = tcp_listener(None, PORT);
        assert_eq!(tcp(Some(&a), (GATEWAY, PORT), &on_node), a_ip);
        let on_b = tcp_listener(Some(&b), PORT);
        assert_eq!(tcp(Some(&a), (b_ip, PORT), &on_b), a_ip);
        assert_eq!(tcp(None, (b_ip, PORT), &on_b), GATEWAY);
        assert_eq!(tcp(Some(&b), (Ip::LOCALHOST, PORT), &on_b), Ip::LOCALHOST);

        // The node forwards to another network, and masquerades.
        let outside = node.namespace("outside");
        connect_outside(&outside).await;
        let on_outside = tcp_listener(Some(&outside), PORT);
        assert_eq!(tcp(Some(&a), (Ip::new(192, 0, 2, 2), PORT), &on_outside), Ip::new(192, 0, 2, 1));

        let port = ip_output("-d link show veth0a090002");
        assert!(port.contains("hairpin on") && port.contains(&format!("master {}", node.network.bridge)), "{port}");
        let in_pod = inside(&a, || ip_output("addr show"));
        assert!(in_pod.contains("link/ether 0a:58:0a:09:00:02") && in_pod.contains("inet 10.9.0.2/24"), "{in_pod}");
        node.destroy().await;
    });
}

/// Connects a namespace as another machine of the node's network, and waits until packets pass.
pub(super) async fn connect_outside(outside: &Path) {
    ip(&format!("link add up0 type veth peer name up1 netns {}", outside.display()));
    ip("addr add 192.0.2.1/24 dev up0");
    ip("link set up0 up");
    inside(outside, || {
        ip("addr add 192.0.2.2/24 dev up1");
        ip("link set up1 up");
    });
    let end = Instant::now() + DEADLINE;
    for (netns, interface) in [(None, "up0"), (Some(outside), "up1")] {
        while !within(netns, move || ip_output(&format!("link show {interface}"))).contains("state UP") {
            assert!(Instant::now() < end, "{interface} has no carrier");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[test]
fn interfaces_have_the_mtu_of_the_default_route() {
    test(async || {
        ip("link add up0 mtu 1400 type veth peer name up1");
        ip("addr add 192.0.2.1/24 dev up0");
        ip("link set up1 up");
        ip("link set up0 up");
        ip("route add default via 192.0.2.2");
        let node = Node::new("10.9.0.0/24").await;
        let (a, _) = node.pod("a", &[]).await;
        let (on_node, in_pod) = (ip_output("link show veth0a090002"), inside(&a, || ip_output("link show eth0")));
        assert!(on_node.contains("mtu 1400") && in_pod.contains("mtu 1400"), "{on_node} {in_pod}");
    });
}

#[test]
fn attach_and_detach_are_idempotent() {
    test(async || {
        let node = Node::new("10.9.0.0/24").await;
        let (a, a_ip) = node.pod("a", &[]).await;
        assert_eq!(node.attach("a", &a, &[]).await.unwrap(), a_ip);
        assert_eq!(node.network.attached().unwrap(), ["a"]);
        // Another instance of Podium takes over.
        let again = prepare(node.dir.path(), "10.9.0.0/24").await;
        assert_eq!(again, node.network);
        assert_eq!(again.attached().unwrap(), ["a"]);
        for _ in 0..2 {
            node.network.detach("a").await.unwrap();
        }
        let port = ip_output("link show veth0a090002");
        assert!(!port.contains(&node.network.bridge), "{port}");
        assert!(node.network.attached().unwrap().is_empty());
        // The namespace can be connected again; addresses are not reused at once.
        assert_eq!(node.attach("a2", &a, &[]).await.unwrap(), Ip::new(10, 9, 0, 3));
        wait_for_removal(a_ip).await;
        node.destroy().await;
    });
}

#[test]
fn exhausted_network_is_an_error_that_leaves_nothing() {
    test(async || {
        let node = Node::new("10.9.0.0/29").await;
        for number in 2..7 {
            let (_, ip) = node.pod(&format!("pod-{number}"), &[]).await;
            assert_eq!(ip, Ip::new(10, 9, 0, number));
        }
        let netns = node.namespace("one-more");
        let error = node.attach("one-more", &netns, &[]).await.unwrap_err().to_string();
        let expected = "failed to allocate for range 0: no IP addresses available in range set: 10.9.0.1-10.9.0.6";
        assert_eq!(error, expected);
        assert_eq!(node.network.attached().unwrap().len(), 5);
        node.network.detach("pod-4").await.unwrap();
        assert_eq!(node.attach("one-more", &netns, &[]).await.unwrap(), Ip::new(10, 9, 0, 4));
        node.destroy().await;
    });
}

#[test]
fn concurrent_processes_get_different_addresses() {
    test(async || {
        let node = Node::new("10.9.0.0/24").await;
        let names: Vec<_> = (0..8).map(|n| format!("pod-{n}")).collect();
        let namespaces: Vec<_> = names.iter().map(|name| node.namespace(name)).collect();
        // File locks exclude each other as in two processes.
        let first = names.iter().zip(&namespaces).map(|(name, netns)| node.attach(name, netns, &[]));
        let second = names.iter().zip(&namespaces).map(|(name, netns)| node.attach(name, netns, &[]));
        let (first, second) = tokio::join!(futures::future::join_all(first), futures::future::join_all(second));
        let ips = |all: Vec<Result<Ip, Error>>| all.into_iter().map(|ip| ip.unwrap()).collect::<Vec<_>>();
        let (first, second) = (ips(first), ips(second));
        assert_eq!(first, second, "a sandbox has one address");
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 8);
        let detached = names.iter().chain(&names).map(|name| node.network.detach(name));
        futures::future::join_all(detached).await.into_iter().for_each(|done| done.unwrap());
        assert!(node.connector().addresses.allocated().unwrap().is_empty());
        node.destroy().await;
    });
}

#[test]
fn invalid_sandbox_or_namespace_is_an_error() {
    test(async || {
        let mut node = Node::new("10.9.0.0/24").await;
        let netns = node.namespace("a");
        for sandbox in ["", ".", "..", "a/b", "../a", &"x".repeat(129)] {
            let error = node.attach(sandbox, &netns, &[]).await.unwrap_err();
            assert!(matches!(error, Error::InvalidSandbox), "{sandbox}: {error}");
        }
        let own = PathBuf::from("/proc/thread-self/ns/net");
        let error = node.attach("a", &own, &[]).await.unwrap_err();
        assert!(matches!(error, Error::NodeNamespace), "{error}");
        for wrong in ["/proc/thread-self/ns/mnt", "/dev/null", "/nonexistent"] {
            node.attach("a", Path::new(wrong), &[]).await.unwrap_err();
        }
        // The kernel refuses the MTU: nothing is left of the attempt.
        node.network.mtu = Some(1 << 20);
        let error = node.attach("a", &netns, &[mapping(Protocol::Tcp, 80, None)]).await.unwrap_err().to_string();
        assert!(error.contains("failed to create interface"), "{error}");
        assert!(node.network.attached().unwrap().is_empty());
        assert!(node.connector().addresses.allocated().unwrap().is_empty());
        let table =
            run("nft", &["list", "table", "ip", &crate::host_ports::table_name(&node.network.bridge)], "").await;
        assert!(!table.unwrap().contains("10.9.0.2"));
        node.destroy().await;
    });
}

#[test]
fn pod_cannot_send_with_addresses_of_another() {
    test(async || {
        let node = Node::new("10.9.0.0/24").await;
        if !node.network.has_anti_spoofing {
            println!("skipped: no nftables for bridges here");
            return;
        }
        let (a, a_ip) = node.pod("a", &[]).await;
        let server = udp_socket(None, PORT);
        check_spoofing(&a, a_ip, &server, 77);
        // Removed tables are restored with the next Pod.
        run("nft", &["flush", "ruleset"], "").await.unwrap();
        node.pod("b", &[mapping(Protocol::Tcp, 8080, None)]).await;
        check_spoofing(&a, a_ip, &server, 78);
        // So they are by the next process.
        run("nft", &["flush", "ruleset"], "").await.unwrap();
        prepare(node.dir.path(), "10.9.0.0/24").await;
        check_spoofing(&a, a_ip, &server, 79);
        node.destroy().await;
    });
}

fn check_spoofing(pod: &Path, own: Ip, server: &UdpSocket, other: u8) {
    let spoofed = Ip::new(10, 9, 0, other);
    let send = |from: Ip, text: &'static str| {
        inside(pod, move || {
            let socket = UdpSocket::bind((from, 0)).expect("a socket");
            socket.send_to(text.as_bytes(), (GATEWAY, PORT)).expect("sent");
        });
    };
    let received = || {
        let mut buffer = [0; 64];
        let length = server.recv(&mut buffer).expect("a packet in time");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    inside(pod, move || ip(&format!("addr add {spoofed}/24 dev eth0")));
    // Packets of one port keep their order.
    send(spoofed, "as another");
    send(own, "as itself");
    assert_eq!(received(), "as itself");
    inside(pod, || ip("link set eth0 address 0a:58:0a:09:00:63"));
    send(own, "with another MAC");
    inside(pod, || ip("link set eth0 address 0a:58:0a:09:00:02"));
    send(own, "with its own MAC");
    assert_eq!(received(), "with its own MAC");
}
