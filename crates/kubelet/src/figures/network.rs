//! What went over a machine's or a Pod's links.

use std::path::Path;

/// A link, and what went over it since it is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) received: u64,
    pub(crate) receive_errors: u64,
    pub(crate) sent: u64,
    pub(crate) send_errors: u64,
}

/// Links that are nobody's way out: loopback, and the ends of those that lead into Pods, as cAdvisor leaves them out.
const INNER: [&str; 3] = ["lo", "veth", "docker"];

/// The links of the network namespace that this directory of `/proc` shows (`/proc/PID/net`) that may lead out; the one
/// that does comes first.
pub(crate) fn links(net: &Path) -> Vec<Link> {
    let text = |file: &str| crate::node_file::read_text(net.join(file)).unwrap_or_default();
    let inner = |link: &Link| INNER.iter().any(|prefix| link.name.starts_with(prefix));
    let mut all: Vec<Link> = text("dev").lines().filter_map(parse).filter(|link| !inner(link)).collect();
    let routes = text("route");
    let default = routes.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (name, destination) = (fields.next()?, fields.next()?);
        (destination == "00000000").then_some(name)
    });
    all.sort_by_key(|link| Some(link.name.as_str()) != default);
    all
}

/// `eth0: bytes packets errs drop fifo frame compressed multicast bytes packets errs …`.
fn parse(line: &str) -> Option<Link> {
    let (name, rest) = line.split_once(':')?;
    let numbers: Vec<u64> = rest.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    Some(Link {
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
    fn the_link_that_leads_out_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let dev = "Inter-|   Receive  |  Transmit\n face |bytes    packets errs\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n\
                   br0: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n veth1: 7 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n  eth0: 100 2 3 0 0 0 0 0 200 4 5 0 0 0 0 0\n";
        let route = "Iface\tDestination\tGateway\nbr0\t0000580A\t00000000\neth0\t00000000\t0100A8C0\n";
        fs::write(dir.path().join("dev"), dev).unwrap();
        fs::write(dir.path().join("route"), route).unwrap();
        let eth0 = Link { name: "eth0".to_owned(), received: 100, receive_errors: 3, sent: 200, send_errors: 5 };
        let br0 = Link { name: "br0".to_owned(), received: 5, sent: 6, ..Link::default() };
        assert_eq!(links(dir.path()), [eth0, br0]);
        assert_eq!(links(&dir.path().join("nothing")), []);
    }
}
