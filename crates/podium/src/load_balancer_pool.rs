//! Address pool of Services of type LoadBalancer.

use anyhow::{Context, Result, bail};
use network::Ipv4Net;
use sha2::{Digest, Sha256};
use std::net::Ipv4Addr;

/// Value of `--load-balancer-cidr`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoadBalancerCidr {
    /// `none`: another implementation assigns addresses.
    External,
    /// The CIDR of the pool.
    Cidr(Ipv4Net),
}

impl LoadBalancerCidr {
    /// Parses the flag.
    ///
    /// # Errors
    /// When it is neither `none` nor an IPv4 CIDR.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text == "none" {
            return Ok(Self::External);
        }
        let cidr: Ipv4Net = text.parse().context("must be an IPv4 CIDR or none")?;
        Ok(Self::Cidr(cidr.trunc()))
    }
}

/// Returns the default pool for a Pod CIDR, outside the Service CIDR. It differs between clusters on one machine.
fn default_pool(pods: Ipv4Net) -> Ipv4Net {
    let first = match pods.addr().octets() {
        // The default Pod CIDR of a cluster has its number in the third octet.
        [10, 244, number, _] => Ipv4Addr::new(10, 97, number, 0),
        other => Ipv4Addr::new(10, 98, Sha256::digest(other)[0], 0),
    };
    Ipv4Net::new_assert(first, 24)
}

/// Returns the pool of a cluster with this Pod CIDR; `None` if another implementation assigns addresses.
///
/// # Errors
/// When the pool overlaps with the Pod CIDR, the Service CIDR, a reserved range, an address of this machine or one of its
/// gateways. Packets to unassigned pool addresses are rejected, which would cut off those addresses.
pub(crate) fn choose(
    flag: Option<&LoadBalancerCidr>,
    pods: Ipv4Net,
    machine_addresses: &[Ipv4Addr],
    gateways: &[Ipv4Addr],
) -> Result<Option<Ipv4Net>> {
    let pool = match flag {
        Some(LoadBalancerCidr::External) => return Ok(None),
        Some(LoadBalancerCidr::Cidr(cidr)) => *cidr,
        None => default_pool(pods),
    };
    let (first, prefix) = server::SERVICE_RANGE;
    let cidr = |first, prefix| Ipv4Net::new_assert(first, prefix);
    let machine_addresses = machine_addresses.iter().map(|ip| ("an address of this machine", cidr(*ip, 32)));
    let gateways = gateways.iter().map(|ip| ("a gateway of this machine", cidr(*ip, 32)));
    let others = [
        ("the Pod CIDR", pods),
        ("the Service CIDR", cidr(first, prefix)),
        ("the loopback range", cidr(Ipv4Addr::LOCALHOST, 8)),
        ("the range of this network", cidr(Ipv4Addr::UNSPECIFIED, 8)),
        ("the link-local range", cidr(Ipv4Addr::new(169, 254, 0, 0), 16)),
        ("the multicast and reserved range", cidr(Ipv4Addr::new(224, 0, 0, 0), 3)),
    ];
    for (name, other) in others.into_iter().chain(machine_addresses).chain(gateways) {
        if pool.contains(&other) || other.contains(&pool) {
            bail!(
                "the load balancer CIDR {pool} must not overlap with {name}, {other}: choose another one with --load-balancer-cidr"
            );
        }
    }
    Ok(Some(pool))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_balancer_pool_is_the_flag_or_follows_the_pod_cidr() {
        let check = |flag: Option<&str>, pods: &str, expected: Result<Option<&str>, &str>| {
            let flag = flag.map(|text| LoadBalancerCidr::parse(text).unwrap());
            let (address, gateway) = (Ipv4Addr::new(192, 168, 1, 7), Ipv4Addr::new(192, 168, 1, 254));
            let chosen = choose(flag.as_ref(), pods.parse().unwrap(), &[address], &[gateway]);
            match (chosen, expected) {
                (Ok(chosen), Ok(expected)) => assert_eq!(chosen, expected.map(|cidr| cidr.parse().unwrap())),
                (Err(e), Err(expected)) => assert!(e.to_string().contains(expected), "{e}"),
                (chosen, expected) => panic!("{chosen:?}, not {expected:?}"),
            }
        };
        check(None, "10.244.0.0/24", Ok(Some("10.97.0.0/24")));
        check(None, "10.244.7.0/24", Ok(Some("10.97.7.0/24")));
        check(None, "10.166.0.0/24", Ok(Some("10.98.130.0/24")));
        check(None, "10.167.0.0/24", Ok(Some("10.98.212.0/24")));
        check(Some("none"), "10.244.7.0/24", Ok(None));
        check(Some("192.0.2.9/28"), "10.244.7.0/24", Ok(Some("192.0.2.0/28")));
        check(Some("192.168.1.64/26"), "10.244.7.0/24", Ok(Some("192.168.1.64/26")));
        check(Some("10.244.7.128/25"), "10.244.7.0/24", Err("the Pod CIDR, 10.244.7.0/24"));
        check(Some("10.0.0.0/8"), "192.168.7.0/24", Err("the Service CIDR, 10.96.0.0/16"));
        for (cidr, expected) in [
            ("192.168.1.0/24", "an address of this machine, 192.168.1.7/32"),
            ("192.168.1.128/25", "a gateway of this machine, 192.168.1.254/32"),
            ("127.0.1.0/24", "the loopback range"),
            ("0.0.0.0/0", "must not overlap with"),
            ("169.254.169.254/32", "the link-local range"),
            ("239.0.0.0/8", "the multicast and reserved range"),
        ] {
            check(Some(cidr), "10.244.7.0/24", Err(expected));
        }
        check(None, "10.98.0.0/16", Err("--load-balancer-cidr"));
    }

    #[test]
    fn invalid_load_balancer_cidr_is_rejected() {
        for text in ["", "nobody", "10.0.0.1", "fd00::/64"] {
            assert!(LoadBalancerCidr::parse(text).is_err(), "{text}");
        }
    }
}
