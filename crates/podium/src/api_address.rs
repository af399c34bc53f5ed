//! Listen and advertised addresses of the API server, and the subject alternative names of its serving certificate.

use crate::cli::ApiArgs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Addresses and names of the API server.
#[derive(Debug, Clone)]
pub(crate) struct ApiAddress {
    /// Listen address.
    pub(crate) bind: SocketAddr,
    advertised: Option<IpAddr>,
    names: Vec<String>,
    ips: Vec<IpAddr>,
}

impl ApiAddress {
    pub(crate) fn new(bind: SocketAddr, args: &ApiArgs) -> Self {
        // Clients compare an IP address with IP subject alternative names only.
        let (mut names, mut ips) = (Vec::new(), Vec::new());
        for san in &args.tls_san {
            san.parse().map_or_else(|_| names.push(san.clone()), |ip| ips.push(ip));
        }
        Self { bind, advertised: args.advertise_address, names, ips }
    }

    /// Returns the loopback address with a free port.
    pub(crate) fn loopback() -> Self {
        let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { bind, advertised: None, names: Vec::new(), ips: Vec::new() }
    }

    /// Returns the address advertised to clients of a listener bound to `bound` (upstream's `--advertise-address`): the
    /// node's address if the bound one is unspecified.
    pub(crate) fn advertised_address(&self, bound: SocketAddr, node_ip: IpAddr) -> SocketAddr {
        let ip = self.advertised.unwrap_or(if bound.ip().is_unspecified() { node_ip } else { bound.ip() });
        SocketAddr::new(ip, bound.port())
    }

    /// Returns the DNS subject alternative names of the certificate.
    pub(crate) fn names(&self, host: &str) -> Vec<String> {
        // A host name may be an invalid DNS name.
        let host = Some(host).filter(|host| api::names::dns1123_subdomain(host).is_empty());
        host.map(str::to_owned).into_iter().chain(self.names.iter().cloned()).collect()
    }

    /// Returns the IP subject alternative names of the certificate, given all addresses of the machine.
    pub(crate) fn ips(&self, bound: SocketAddr, machine: &[IpAddr]) -> Vec<IpAddr> {
        let is_bound = |ip: &&IpAddr| bound.ip().is_unspecified() || **ip == bound.ip();
        let bound = machine.iter().filter(is_bound).copied();
        bound.chain(self.advertised).chain(self.ips.iter().copied()).filter(|ip| !ip.is_unspecified()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn address(flags: &[&str]) -> ApiAddress {
        let parsed = Cli::try_parse_from([&["podium", "up"], flags].concat()).unwrap();
        let Command::Up(up) = parsed.command else { panic!("not `up`") };
        ApiAddress::new(up.bind, &up.api)
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[track_caller]
    fn check(flags: &[&str], expected: &str, names: &[&str], in_certificate: &[&str]) {
        let address = address(flags);
        let (node, machine) = ("192.0.2.7".parse().unwrap(), ips(&["127.0.0.1", "192.0.2.7", "198.51.100.1"]));
        assert_eq!(address.advertised_address(address.bind, node).to_string(), expected, "{flags:?}");
        assert_eq!(address.names("host"), names, "{flags:?}");
        assert_eq!(address.ips(address.bind, &machine), ips(in_certificate), "{flags:?}");
    }

    #[test]
    fn unspecified_bind_address_advertises_the_node_address() {
        check(&[], "127.0.0.1:6443", &["host"], &["127.0.0.1"]);
        check(&["--bind", "198.51.100.1:1"], "198.51.100.1:1", &["host"], &["198.51.100.1"]);
        let machine = ["127.0.0.1", "192.0.2.7", "198.51.100.1"];
        check(&["--bind", "0.0.0.0:6443"], "192.0.2.7:6443", &["host"], &machine);
        check(&["--bind", "[::]:6443"], "192.0.2.7:6443", &["host"], &machine);
        let flags = ["--bind", "0.0.0.0:6443", "--advertise-address", "203.0.113.9"];
        check(&flags, "203.0.113.9:6443", &["host"], &[&machine[..], &["203.0.113.9"]].concat());
    }

    #[test]
    fn tls_san_names_and_addresses_are_in_the_certificate() {
        let flags = ["--tls-san", "api.example.com,203.0.113.9", "--tls-san", "2001:db8::1"];
        check(&flags, "127.0.0.1:6443", &["host", "api.example.com"], &["127.0.0.1", "203.0.113.9", "2001:db8::1"]);
        assert!(address(&[]).names("My_Host").is_empty());
        assert!(Cli::try_parse_from(["podium", "up", "--tls-san", "no name"]).is_err());
        assert!(Cli::try_parse_from(["podium", "up", "--advertise-address", "0.0.0.0"]).is_err());
    }
}
