//! Where the API listens, and by which addresses and names clients reach it.

use crate::cli::ApiArgs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where the API listens, and what its clients know it by.
#[derive(Debug, Clone)]
pub(crate) struct ApiAddress {
    /// Where it listens.
    pub(crate) bind: SocketAddr,
    advertised: Option<IpAddr>,
    names: Vec<String>,
    ips: Vec<IpAddr>,
}

impl ApiAddress {
    pub(crate) fn new(bind: SocketAddr, args: &ApiArgs) -> Self {
        // A name that is an address is one to a client, too.
        let (mut names, mut ips) = (Vec::new(), Vec::new());
        for san in &args.tls_san {
            san.parse().map_or_else(|_| names.push(san.clone()), |ip| ips.push(ip));
        }
        Self { bind, advertised: args.advertise_address, names, ips }
    }

    /// For this machine alone, at a free port.
    pub(crate) fn loopback() -> Self {
        let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { bind, advertised: None, names: Vec::new(), ips: Vec::new() }
    }

    /// Where clients reach what listens at `bound` (upstream's `--advertise-address`): nobody connects to 0.0.0.0.
    pub(crate) fn reached(&self, bound: SocketAddr, node_ip: IpAddr) -> SocketAddr {
        let ip = self.advertised.unwrap_or(if bound.ip().is_unspecified() { node_ip } else { bound.ip() });
        SocketAddr::new(ip, bound.port())
    }

    /// The names in the certificate.
    pub(crate) fn names(&self, host: &str) -> Vec<String> {
        // A host may be called what is no name in DNS.
        let host = Some(host).filter(|host| api::names::dns1123_subdomain(host).is_empty());
        host.map(str::to_owned).into_iter().chain(self.names.iter().cloned()).collect()
    }

    /// The addresses in the certificate, given all of the machine.
    pub(crate) fn ips(&self, bound: SocketAddr, machine: &[IpAddr]) -> Vec<IpAddr> {
        let hears_at = |ip: &&IpAddr| bound.ip().is_unspecified() || **ip == bound.ip();
        let own = machine.iter().filter(hears_at).copied();
        own.chain(self.advertised).chain(self.ips.iter().copied()).filter(|ip| !ip.is_unspecified()).collect()
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
    fn check(flags: &[&str], reached: &str, names: &[&str], in_certificate: &[&str]) {
        let address = address(flags);
        let (node, machine) = ("192.0.2.7".parse().unwrap(), ips(&["127.0.0.1", "192.0.2.7", "198.51.100.1"]));
        assert_eq!(address.reached(address.bind, node).to_string(), reached, "{flags:?}");
        assert_eq!(address.names("host"), names, "{flags:?}");
        assert_eq!(address.ips(address.bind, &machine), ips(in_certificate), "{flags:?}");
    }

    #[test]
    fn api_on_all_addresses_is_reached_at_the_machines() {
        check(&[], "127.0.0.1:6443", &["host"], &["127.0.0.1"]);
        check(&["--bind", "198.51.100.1:1"], "198.51.100.1:1", &["host"], &["198.51.100.1"]);
        let machine = ["127.0.0.1", "192.0.2.7", "198.51.100.1"];
        check(&["--bind", "0.0.0.0:6443"], "192.0.2.7:6443", &["host"], &machine);
        check(&["--bind", "[::]:6443"], "192.0.2.7:6443", &["host"], &machine);
        let flags = ["--bind", "0.0.0.0:6443", "--advertise-address", "203.0.113.9"];
        check(&flags, "203.0.113.9:6443", &["host"], &[&machine[..], &["203.0.113.9"]].concat());
    }

    #[test]
    fn names_and_addresses_that_are_asked_for_are_in_the_certificate() {
        let flags = ["--tls-san", "api.example.com,203.0.113.9", "--tls-san", "2001:db8::1"];
        check(&flags, "127.0.0.1:6443", &["host", "api.example.com"], &["127.0.0.1", "203.0.113.9", "2001:db8::1"]);
        assert!(address(&[]).names("My_Host").is_empty());
        assert!(Cli::try_parse_from(["podium", "up", "--tls-san", "no name"]).is_err());
        assert!(Cli::try_parse_from(["podium", "up", "--advertise-address", "0.0.0.0"]).is_err());
    }
}
