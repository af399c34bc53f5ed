//! Network interface statistics of the node or of a Pod.

use std::path::Path;

/// Cumulative statistics of a network interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NetworkInterface {
    pub(crate) name: String,
    pub(crate) received: u64,
    pub(crate) receive_errors: u64,
    pub(crate) sent: u64,
    pub(crate) send_errors: u64,
}

/// Prefixes of ignored interfaces: loopback and the host ends of Pod interfaces, as in cAdvisor.
const IGNORED_PREFIXES: [&str; 3] = ["lo", "veth", "docker"];

/// Returns the interfaces of the network namespace of `/proc/PID/net`, the one with the default route first.
pub(crate) fn interfaces(net: &Path) -> Vec<NetworkInterface> {
    let text = |file: &str| crate::host_file::read_text(net.join(file)).unwrap_or_default();
    let ignored =
        |interface: &NetworkInterface| IGNORED_PREFIXES.iter().any(|prefix| interface.name.starts_with(prefix));
    let mut all: Vec<NetworkInterface> =
        text("dev").lines().filter_map(parse).filter(|interface| !ignored(interface)).collect();
    let routes = text("route");
    let default = routes.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (name, destination) = (fields.next()?, fields.next()?);
        (destination == "00000000").then_some(name)
    });
    all.sort_by_key(|interface| Some(interface.name.as_str()) != default);
    all
}

/// `eth0: bytes packets errs drop fifo frame compressed multicast bytes packets errs …`.
fn parse(line: &str) -> Option<NetworkInterface> {
    let (name, rest) = line.split_once(':')?;
    let numbers: Vec<u64> = rest.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    Some(NetworkInterface {
        name: name.trim().to_owned(),
        received: *numbers.first()?,
        receive_errors: *numbers.get(2)?,
        sent: *numbers.get(8)?,
        send_errors: *numbers.get(10)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn interface_with_default_route_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let dev = "Inter-|   Receive  |  Transmit\n face |bytes    packets errs\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n\
                   br0: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n veth1: 7 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n  eth0: 100 2 3 0 0 0 0 0 200 4 5 0 0 0 0 0\n";
        let route = "Iface\tDestination\tGateway\nbr0\t0000580A\t00000000\neth0\t00000000\t0100A8C0\n";
        fs::write(dir.path().join("dev"), dev).unwrap();
        fs::write(dir.path().join("route"), route).unwrap();
        let eth0 =
            NetworkInterface { name: "eth0".to_owned(), received: 100, receive_errors: 3, sent: 200, send_errors: 5 };
        let br0 = NetworkInterface { name: "br0".to_owned(), received: 5, sent: 6, ..NetworkInterface::default() };
        assert_eq!(interfaces(dir.path()), [eth0, br0]);
        assert_eq!(interfaces(&dir.path().join("nothing")), []);
    }
}
