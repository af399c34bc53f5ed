//! Kills between the steps, and namespaces that vanish.

use super::{
    super::{
        connector::{Attached, Request},
        record::Record,
        veth::{Links, PodInterface},
    },
    *,
};

fn request(sandbox: &str, netns: &Path, ports: &[PortMapping]) -> Request {
    let netns = File::open(netns).unwrap();
    Request { sandbox: sandbox.to_owned(), netns, port_mappings: ports.to_vec() }
}

/// Repeats the first steps of an attachment and stops, as if the process was killed. Step 1: the address is allocated;
/// 2: the record is written; 3: nftables elements are added; 4: interfaces are created; 5: the Pod is connected.
fn interrupted(node: &Node, sandbox: &str, netns: &Path, ports: &[PortMapping], steps: usize) {
    let (connector, request) = (node.connector(), request(sandbox, netns, ports));
    let work = move || {
        let mut record = Record::lock(&connector.records, &request.sandbox).unwrap();
        if steps == 1 {
            connector.addresses.allocate(record.path()).unwrap();
            return;
        }
        let ip = connector.reserve(&mut record, &request).unwrap();
        if steps > 2 {
            let elements = crate::host_ports::elements(&connector.bridge, ip, &request.port_mappings);
            connector.elements.add(&elements).unwrap();
        }
        let address = connector.addresses.with_prefix(ip);
        let interface =
            PodInterface { bridge: &connector.bridge, gateway: connector.addresses.gateway, address, mtu: None };
        let mut links = Links::open().unwrap();
        match steps {
            4 => links.create(&request.netns, interface, &host_interface(ip)).unwrap(),
            5 => links.connect(&request.netns, interface).unwrap(),
            _ => {}
        }
    };
    std::thread::spawn(work).join().unwrap();
}

#[test]
fn retain_removes_what_killed_processes_left() {
    test(async || {
        let node = Node::new("10.9.0.0/24").await;
        let ports = |n: u16| vec![mapping(Protocol::Tcp, 8000 + n, None)];
        let (kept, kept_ip) = node.pod("kept", &ports(0)).await;
        for steps in 1..=5_u16 {
            let name = format!("killed-{steps}");
            let netns = node.namespace(&name);
            interrupted(&node, &name, &netns, &ports(steps), usize::from(steps));
        }
        node.pod("unknown", &ports(6)).await;
        // One more has the host port of a Pod, without having added it.
        let netns = node.namespace("killed-6");
        interrupted(&node, "killed-6", &netns, &ports(0), 2);
        // A record that was created and never written.
        drop(Record::lock(&node.connector().records, "killed-0").unwrap());
        assert_eq!(node.network.attached().unwrap().len(), 9);
        assert_eq!(node.connector().addresses.allocated().unwrap().len(), 8);

        let next = prepare(node.dir.path(), "10.9.0.0/24").await;
        next.retain(&["kept".to_owned(), "never-attached".to_owned()]).await.unwrap();
        assert_eq!(next.attached().unwrap(), ["kept"]);
        assert_eq!(node.connector().addresses.allocated().unwrap(), [kept_ip]);
        for last in 3..=9 {
            wait_for_removal(Ipv4Addr::new(10, 9, 0, last)).await;
        }
        let links = ip_output("-o link show type veth");
        assert_eq!(links.lines().count(), 1, "{links}");
        let table = crate::host_ports::table_name(&next.bridge);
        let map = run("nft", &["list", "map", "ip", &table, "ports"], "").await.unwrap();
        assert!(map.contains("tcp . 8000 : 10.9.0.2 . 8000"), "{map}");
        assert_eq!(map.matches(" : 10.9.0.").count(), 1, "{map}");
        tcp(None, (node.network.gateway, 8000), &tcp_listener(Some(&kept), PORT));
        // All can be connected.
        for steps in 1..=6_u16 {
            let name = format!("killed-{steps}");
            node.attach(&name, &node.dir.path().join(&name), &ports(steps)).await.unwrap();
        }
        node.destroy().await;
    });
}

#[test]
fn interrupted_attach_is_completed_by_the_next() {
    test(async || {
        let node = Node::new("10.9.0.0/24").await;
        for steps in 1..=5_u16 {
            let name = format!("pod-{steps}");
            let (netns, ports) = (node.namespace(&name), [mapping(Protocol::Tcp, 8000 + steps, None)]);
            interrupted(&node, &name, &netns, &ports, usize::from(steps));
            let ip = node.attach(&name, &netns, &ports).await.unwrap();
            let listener = tcp_listener(Some(&netns), PORT);
            tcp(None, (ip, PORT), &listener);
            tcp(None, (node.network.gateway, 8000 + steps), &listener);
        }
        // The first one got another address: only `retain` finds the lost one.
        let names: Vec<_> = (1..=5).map(|n| format!("pod-{n}")).collect();
        assert_eq!(node.connector().addresses.allocated().unwrap().len(), 6);
        node.network.retain(&names).await.unwrap();
        assert_eq!(node.connector().addresses.allocated().unwrap().len(), 5);
        assert_eq!(node.network.attached().unwrap(), names);
        node.destroy().await;
    });
}

#[test]
fn detach_succeeds_without_the_namespace() {
    test(async || {
        let node = Node::new("10.9.0.0/24").await;
        let (netns, ip) = node.pod("a", &[mapping(Protocol::Tcp, 8080, None)]).await;
        remove_namespace(&netns, ip).await;
        node.network.detach("a").await.unwrap();
        assert!(node.network.attached().unwrap().is_empty());
        assert!(node.connector().addresses.allocated().unwrap().is_empty());
        // A namespace that is being removed.
        let (netns, _) = node.pod("b", &[]).await;
        umount2(&netns, MntFlags::MNT_DETACH).unwrap();
        node.network.detach("b").await.unwrap();
        node.destroy().await;
    });
}

/// A process was killed before the last step of a detach.
#[test]
fn repeated_detach_leaves_what_the_next_pod_has() {
    test(async || {
        let node = Node::new("10.9.0.0/24").await;
        let ports = [mapping(Protocol::Tcp, 8080, None)];
        let (netns, ip) = node.pod("a", &ports).await;
        let record = node.connector().records.join("a");
        let kept = node.dir.path().join("record");
        std::fs::hard_link(&record, &kept).unwrap();
        node.network.detach("a").await.unwrap();
        std::fs::rename(&kept, &record).unwrap();
        // The next Pod gets the same address.
        let last = node.connector().addresses.dir.join("last_reserved_ip.0");
        std::fs::remove_file(&last).unwrap();
        let (other, again) = node.pod("b", &ports).await;
        assert_eq!(again, ip);
        let listener = tcp_listener(Some(&other), PORT);
        for _ in 0..2 {
            node.network.detach("a").await.unwrap();
            tcp(None, (ip, PORT), &listener);
            tcp(None, (node.network.gateway, 8080), &listener);
        }
        assert_eq!(node.network.attached().unwrap(), ["b"]);
        assert_eq!(node.connector().addresses.allocated().unwrap(), [ip]);
        // A sandbox that is connected again instead gets another address.
        let text = std::fs::read_to_string(node.connector().records.join("b")).unwrap();
        std::fs::write(&record, text.replace("\"isAttached\":true", "\"isAttached\":false")).unwrap();
        assert_ne!(node.attach("a", &netns, &[]).await.unwrap(), ip);
        tcp(None, (ip, PORT), &listener);
        node.destroy().await;
    });
}

#[test]
fn sandbox_keeps_its_address_in_a_new_namespace() {
    test(async || {
        let node = Node::new("10.9.0.0/24").await;
        let ports = [mapping(Protocol::Tcp, 8080, None)];
        let (netns, ip) = node.pod("a", &ports).await;
        remove_namespace(&netns, ip).await;
        let (netns, again) = node.pod("a", &ports).await;
        assert_eq!(again, ip);
        tcp(None, (node.network.gateway, 8080), &tcp_listener(Some(&netns), PORT));
        node.destroy().await;
    });
}

#[test]
fn missing_tables_are_restored_once() {
    test(async || {
        let node = Node::new("10.9.0.0/24").await;
        run("nft", &["flush", "ruleset"], "").await.unwrap();
        let (netns, connector) = (node.namespace("a"), node.connector());
        let ports = [mapping(Protocol::Tcp, 8080, None)];
        let steps = request("a", &netns, &ports);
        let first = std::thread::spawn(move || connector.attach(&steps, false)).join().unwrap();
        assert_eq!(first.unwrap(), Attached::TablesMissing);
        let (connector, steps) = (node.connector(), request("a", &netns, &ports));
        let last = std::thread::spawn(move || connector.attach(&steps, true)).join().unwrap();
        assert!(matches!(last, Err(Error::Kernel { .. })), "{last:?}");
        assert!(node.network.attached().unwrap().is_empty());
        node.attach("a", &netns, &ports).await.unwrap();
        tcp(None, (node.network.gateway, 8080), &tcp_listener(Some(&netns), PORT));
        node.destroy().await;
    });
}
