use super::*;
use runtime::{IdMapping, Namespaces};

#[track_caller]
fn check(sysctls: &[(&str, &str)], namespaces: Namespaces, expected: Result<&[(&str, &str)], &str>) {
    let owned = |list: &[(&str, &str)]| -> BTreeMap<String, String> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let sandbox = SandboxConfig { sysctls: owned(sysctls), namespaces, ..SandboxConfig::default() };
    let found = sandbox_sysctls(&sandbox).map_err(|e| e.to_string());
    assert_eq!(found, expected.map(owned).map_err(str::to_owned));
}

const PORTS: (&str, &str) = ("net.ipv4.ip_unprivileged_port_start", "0");
const PING: (&str, &str) = ("net.ipv4.ping_group_range", "0 2147483647");

fn host_network() -> Namespaces {
    Namespaces { network: NamespaceMode::Node, ..Namespaces::default() }
}

#[test]
fn defaults_apply_to_pods_with_their_own_network() {
    check(&[], Namespaces::default(), Ok(&[PORTS, PING]));
    check(&[], host_network(), Ok(&[]));
    let users = Some(IdMapping { host_id: 65_536, length: 65_536 });
    check(&[], Namespaces { users, ..Namespaces::default() }, Ok(&[PORTS]));
    let own = ("net.ipv4.ip_unprivileged_port_start", "1024");
    check(&[own], Namespaces::default(), Ok(&[own, PING]));
}

#[test]
fn names_are_normalized() {
    let shm = ("kernel.shm_rmid_forced", "1");
    check(&[("kernel/shm_rmid_forced", "1")], host_network(), Ok(&[shm]));
    check(&[shm], host_network(), Ok(&[shm]));
    let vlan = ("net.ipv4.conf.eth0/100.forwarding", "1");
    check(&[("net/ipv4/conf/eth0.100/forwarding", "1")], Namespaces::default(), Ok(&[vlan, PORTS, PING]));
}

#[test]
fn sysctls_of_the_node_are_errors() {
    let all = Namespaces::default;
    check(&[("vm.swappiness", "1")], all(), Err("sysctl \"vm.swappiness\" is not in a separate kernel namespace"));
    check(&[("net.core.x", "1")], host_network(), Err("sysctl \"net.core.x\" not allowed in host network namespace"));
    check(
        &[("kernel.domainname", "d")],
        host_network(),
        Err("sysctl \"kernel.domainname\" not allowed in host uts namespace"),
    );
    let host_ipc = Namespaces { ipc: NamespaceMode::Node, ..Namespaces::default() };
    check(&[("kernel.sem", "1")], host_ipc, Err("sysctl \"kernel.sem\" not allowed in host ipc namespace"));
    check(&[("fs.mqueue.x", "1")], host_ipc, Err("sysctl \"fs.mqueue.x\" not allowed in host ipc namespace"));
    let hostname = "sysctl \"kernel.hostname\" is not allowed as it conflicts with the OCI \"hostname\" field";
    check(&[("kernel.hostname", "h")], all(), Err(hostname));
}

#[test]
fn names_stay_below_proc_sys() {
    for name in ["", "net..x", "net.", ".net", "net/../../x", "net.a/.b", "net.//.x", "/net", "net.a\0b"] {
        let expected = format!("sysctl {name:?} is not in a separate kernel namespace");
        check(&[(name, "1")], Namespaces::default(), Err(&expected));
    }
}
