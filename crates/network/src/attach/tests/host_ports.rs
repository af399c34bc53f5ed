//! Host ports: from other machines, from the node, and from Pods.

use super::{connections::connect_outside, *};
use std::net::Ipv4Addr as Ip;

const NODE: Ip = Ip::new(192, 0, 2, 1);
const HOST_PORT: u16 = 8080;

/// Node with another machine beside it.
async fn node_with_outside() -> (Node, PathBuf) {
    let node = Node::new("10.9.0.0/24").await;
    let outside = node.namespace("outside");
    connect_outside(&outside).await;
    (node, outside)
}

#[test]
fn tcp_host_port_is_reached_from_everywhere() {
    check_tcp(true);
}

/// Replies between Pods do not pass connection tracking.
#[test]
fn tcp_host_port_is_reached_without_br_netfilter() {
    check_tcp(false);
}

/// Sets whether netfilter sees bridged traffic as IP. Without the module br_netfilter, it never does.
fn filter_bridged_traffic(bridge: &str, is_filtered: bool) {
    // That of the test's namespace: older kernels have it only in the machine's.
    let setting = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    if !Path::new(setting).exists() {
        println!("br_netfilter is not loaded");
        return;
    }
    // One of both suffices to filter.
    let value = u8::from(is_filtered);
    std::fs::write(setting, value.to_string()).unwrap();
    ip(&format!("link set {bridge} type bridge nf_call_iptables {value}"));
    let of_bridge = ip_output(&format!("-d link show {bridge}"));
    assert!(of_bridge.contains(&format!("nf_call_iptables {value}")), "{of_bridge}");
}

fn check_tcp(is_filtered: bool) {
    test(move || async move {
        let (node, outside) = node_with_outside().await;
        filter_bridged_traffic(&node.network.bridge, is_filtered);
        let (pod, pod_ip) = node.pod("pod", &[mapping(Protocol::Tcp, HOST_PORT, None)]).await;
        let (other, _) = node.pod("other", &[]).await;
        let listener = tcp_listener(Some(&pod), PORT);
        let gateway = node.network.gateway;
        assert_eq!(tcp(Some(&outside), (NODE, HOST_PORT), &listener), Ip::new(192, 0, 2, 2));
        assert_eq!(tcp(None, (NODE, HOST_PORT), &listener), NODE);
        assert_eq!(tcp(None, (Ip::LOCALHOST, HOST_PORT), &listener), gateway);
        for client in [&other, &pod] {
            for to in [NODE, gateway] {
                assert_eq!(tcp(Some(client), (to, HOST_PORT), &listener), gateway, "{to}");
            }
        }
        // Other ports, and addresses that are not the node's, are untouched.
        assert_eq!(tcp_error(None, (NODE, HOST_PORT + 1)), io::ErrorKind::ConnectionRefused);
        assert_eq!(tcp_error(None, (pod_ip, HOST_PORT)), io::ErrorKind::ConnectionRefused);
        let on_outside = tcp_listener(Some(&outside), HOST_PORT);
        assert_eq!(tcp(Some(&pod), (Ip::new(192, 0, 2, 2), HOST_PORT), &on_outside), NODE);
        assert_eq!(tcp(None, (Ip::new(192, 0, 2, 2), HOST_PORT), &on_outside), NODE);

        // The node's own listener gets the port after the Pod.
        node.network.detach("pod").await.unwrap();
        for (client, to) in [(Some(&outside), NODE), (None, Ip::LOCALHOST), (Some(&other), gateway)] {
            assert_eq!(tcp_error(client.map(PathBuf::as_path), (to, HOST_PORT)), io::ErrorKind::ConnectionRefused);
        }
        node.destroy().await;
    });
}

#[test]
fn udp_host_port_is_reached_from_everywhere() {
    test(async || {
        let (node, outside) = node_with_outside().await;
        let (pod, _) = node.pod("pod", &[mapping(Protocol::Udp, HOST_PORT, None)]).await;
        let (other, _) = node.pod("other", &[]).await;
        let server = udp_socket(Some(&pod), PORT);
        let gateway = node.network.gateway;
        let check = |from: Option<&Path>, to: Ip| udp(&udp_socket(from, 0), (to, HOST_PORT), &server);
        assert_eq!(check(Some(&outside), NODE), Ip::new(192, 0, 2, 2));
        assert_eq!(check(None, NODE), NODE);
        assert_eq!(check(None, Ip::LOCALHOST), gateway);
        assert_eq!(check(Some(&other), NODE), gateway);
        assert_eq!(check(Some(&pod), NODE), gateway);
        node.destroy().await;
    });
}

#[test]
fn udp_client_reaches_the_next_pod_from_the_same_port() {
    test(async || {
        if find("conntrack").is_none() {
            println!("skipped: conntrack is not installed");
            return;
        }
        let (node, outside) = node_with_outside().await;
        let ports = [mapping(Protocol::Udp, HOST_PORT, None)];
        let client = udp_socket(Some(&outside), 5000);
        // The first packets find no Pod.
        client.connect((NODE, HOST_PORT)).unwrap();
        client.send(b"?").unwrap();
        for name in ["first", "second"] {
            let (pod, _) = node.pod(name, &ports).await;
            let server = udp_socket(Some(&pod), PORT);
            // What arrives before is refused, and reported by the next call.
            let _ = client.take_error();
            udp(&client, (NODE, HOST_PORT), &server);
            node.network.detach(name).await.unwrap();
        }
        node.destroy().await;
    });
}

#[test]
fn host_ip_limits_the_port_to_one_address() {
    test(async || {
        let (node, outside) = node_with_outside().await;
        ip("addr add 192.0.2.9/24 dev up0");
        let second = Ip::new(192, 0, 2, 9);
        let (a, _) = node.pod("a", &[mapping(Protocol::Tcp, HOST_PORT, Some("192.0.2.9"))]).await;
        let local = mapping(Protocol::Tcp, HOST_PORT, Some("127.0.0.1"));
        let ignored = mapping(Protocol::Tcp, 9999, Some("::"));
        let (b, _) = node.pod("b", &[local, ignored]).await;
        let (on_a, on_b) = (tcp_listener(Some(&a), PORT), tcp_listener(Some(&b), PORT));
        tcp(Some(&outside), (second, HOST_PORT), &on_a);
        tcp(None, (second, HOST_PORT), &on_a);
        tcp(None, (Ip::LOCALHOST, HOST_PORT), &on_b);
        assert_eq!(tcp_error(Some(&outside), (NODE, HOST_PORT)), io::ErrorKind::ConnectionRefused);
        assert_eq!(tcp_error(None, (NODE, HOST_PORT)), io::ErrorKind::ConnectionRefused);
        assert_eq!(tcp_error(None, (NODE, 9999)), io::ErrorKind::ConnectionRefused);
        node.network.detach("a").await.unwrap();
        tcp(None, (Ip::LOCALHOST, HOST_PORT), &on_b);
        node.destroy().await;
    });
}

#[test]
fn host_port_of_another_pod_is_refused() {
    test(async || {
        let (node, _) = node_with_outside().await;
        let ports = [mapping(Protocol::Tcp, HOST_PORT, None)];
        let (a, a_ip) = node.pod("a", &ports).await;
        let listener = tcp_listener(Some(&a), PORT);
        let netns = node.namespace("b");
        let both = [mapping(Protocol::Udp, HOST_PORT, None), ports[0].clone()];
        let error = node.attach("b", &netns, &both).await.unwrap_err().to_string();
        assert_eq!(error, "failed to map host port 8080/tcp: it is in use by another Pod");
        assert_eq!(node.network.attached().unwrap(), ["a"]);
        // The first Pod keeps it.
        tcp(None, (NODE, HOST_PORT), &listener);
        assert_eq!(node.attach("a", &a, &ports).await.unwrap(), a_ip);
        node.network.detach("a").await.unwrap();
        node.attach("b", &netns, &both).await.unwrap();
        tcp(None, (NODE, HOST_PORT), &tcp_listener(Some(&netns), PORT));
        node.destroy().await;
    });
}

#[test]
fn many_ports_of_which_the_last_is_taken_leave_nothing() {
    test(async || {
        let (node, _) = node_with_outside().await;
        node.pod("a", &[mapping(Protocol::Tcp, 20_200, None)]).await;
        let netns = node.namespace("b");
        let ports: Vec<_> = (1..=200).map(|n| mapping(Protocol::Tcp, 20_000 + n, None)).collect();
        let error = node.attach("b", &netns, &ports).await.unwrap_err().to_string();
        assert_eq!(error, "failed to map host port 20200/tcp: it is in use by another Pod");
        let table = crate::host_ports::table_name(&node.network.bridge);
        let map = run("nft", &["list", "map", "ip", &table, "ports"], "").await.unwrap();
        assert!(map.contains("tcp . 20200 : 10.9.0.2 . 8000"), "{map}");
        assert_eq!(map.matches(" : 10.9.0.").count(), 1, "{map}");
        node.attach("b", &netns, &ports[..199]).await.unwrap();
        node.destroy().await;
    });
}

#[test]
fn node_loopback_is_closed_without_the_table_of_host_ports() {
    test(async || {
        let mut node = Node::new("10.9.0.0/24").await;
        let routes =
            |bridge: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{bridge}/route_localnet")).unwrap();
        assert_eq!(routes(&node.network.bridge).trim(), "1");
        // No name of a table.
        let wrong = "wrong{";
        ip(&format!("link add {wrong} type bridge"));
        let bridge = std::mem::replace(&mut node.network.bridge, wrong.to_owned());
        crate::prepare::install_tables(&mut node.network).await.unwrap();
        assert!(!node.network.has_host_ports);
        assert_eq!(routes(wrong).trim(), "0");
        node.network.bridge = bridge;
        node.destroy().await;
    });
}

#[test]
fn many_ports_of_all_protocols_are_mapped_and_removed() {
    test(async || {
        let (node, _) = node_with_outside().await;
        let all = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter();
        let ports: Vec<_> = all.flat_map(|p| (1..=100).map(move |n| mapping(p, 20_000 + n, None))).collect();
        node.pod("pod", &ports).await;
        let table = crate::host_ports::table_name(&node.network.bridge);
        let listing = async || run("nft", &["list", "map", "ip", &table, "ports"], "").await.unwrap();
        assert_eq!(listing().await.matches(": 10.9.0.2 . 8000").count(), 300);
        // The listing is in the words of nft, as is a replaced table.
        let sctp = "sctp . 20100 : 10.9.0.2 . 8000";
        assert!(listing().await.contains(sctp));
        prepare(node.dir.path(), "10.9.0.0/24").await;
        assert!(listing().await.contains(sctp));
        assert_eq!(listing().await.matches(": 10.9.0.2 . 8000").count(), 300);
        node.network.detach("pod").await.unwrap();
        assert!(!listing().await.contains("10.9.0.2"));

        let too_many = vec![mapping(Protocol::Tcp, 80, None); 1025];
        let netns = node.namespace("more");
        let error = node.attach("more", &netns, &too_many).await.unwrap_err();
        assert!(matches!(error, Error::TooManyHostPorts), "{error}");
        node.destroy().await;
    });
}
