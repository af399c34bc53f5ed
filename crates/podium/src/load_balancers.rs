//! Which addresses Services of type LoadBalancer get.

use anyhow::{Context, Result, bail};
use network::Ipv4Net;
use sha2::{Digest, Sha256};
use std::net::Ipv4Addr;

/// What `--load-balancer-cidr` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoadBalancerCidr {
    /// `none`: somebody else gives them.
    OfOthers,
    /// These.
    Block(Ipv4Net),
}

impl LoadBalancerCidr {
    /// Reads the flag.
    ///
    /// # Errors
    /// When it is neither `none` nor an IPv4 block.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text == "none" {
            return Ok(Self::OfOthers);
        }
        let cidr: Ipv4Net = text.parse().context("it must be an IPv4 block, or none")?;
        Ok(Self::Block(cidr.trunc()))
    }
}

/// The default for Pods in this block, beside the Services' range: clusters side by side differ.
fn beside(pods: Ipv4Net) -> Ipv4Net {
    let first = match pods.addr().octets() {
        // The blocks that clusters take by themselves are numbered.
        [10, 244, number, _] => Ipv4Addr::new(10, 97, number, 0),
        other => Ipv4Addr::new(10, 98, Sha256::digest(other)[0], 0),
    };
    Ipv4Net::new_assert(first, 24)
}

/// The block of a cluster whose Pods have these addresses.
///
/// # Errors
/// When it overlaps with the addresses of Pods or Services, or has some that are used already: what nobody answers there
/// is refused, so that the machine would not reach itself, or nobody beyond its gateway.
pub(crate) fn pool(
    asked: Option<&LoadBalancerCidr>,
    pods: Ipv4Net,
    own: &[Ipv4Addr],
    gateways: &[Ipv4Addr],
) -> Result<Option<Ipv4Net>> {
    let pool = match asked {
        Some(LoadBalancerCidr::OfOthers) => return Ok(None),
        Some(LoadBalancerCidr::Block(cidr)) => *cidr,
        None => beside(pods),
    };
    let (first, prefix) = server::SERVICE_RANGE;
    let block = |first, prefix| Ipv4Net::new_assert(first, prefix);
    let own = own.iter().map(|ip| ("this machine", block(*ip, 32)));
    let gateways = gateways.iter().map(|ip| ("a gateway of this machine", block(*ip, 32)));
    let others = [
        ("Pods", pods),
        ("Services", block(first, prefix)),
        ("every machine", block(Ipv4Addr::LOCALHOST, 8)),
        ("this network", block(Ipv4Addr::UNSPECIFIED, 8)),
        ("single links", block(Ipv4Addr::new(169, 254, 0, 0), 16)),
        ("groups and of nobody", block(Ipv4Addr::new(224, 0, 0, 0), 3)),
    ];
    for (whose, other) in others.into_iter().chain(own).chain(gateways) {
        if pool.contains(&other) || other.contains(&pool) {
            bail!(
                "the addresses of load balancers, {pool}, overlap with those of {whose}, {other}: choose others with --load-balancer-cidr"
            );
        }
    }
    Ok(Some(pool))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_the_one_that_was_asked_for_or_goes_with_the_pods_block() {
        let check = |asked: Option<&str>, pods: &str, expected: Result<Option<&str>, &str>| {
            let asked = asked.map(|text| LoadBalancerCidr::parse(text).unwrap());
            let (own, gateway) = (Ipv4Addr::new(192, 168, 1, 7), Ipv4Addr::new(192, 168, 1, 254));
            let chosen = pool(asked.as_ref(), pods.parse().unwrap(), &[own], &[gateway]);
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
        check(Some("10.244.7.128/25"), "10.244.7.0/24", Err("those of Pods, 10.244.7.0/24"));
        check(Some("10.0.0.0/8"), "192.168.7.0/24", Err("those of Services, 10.96.0.0/16"));
        for (cidr, whose) in [
            ("192.168.1.0/24", "those of this machine, 192.168.1.7/32"),
            ("192.168.1.128/25", "those of a gateway of this machine, 192.168.1.254/32"),
            ("127.0.1.0/24", "those of every machine"),
            ("0.0.0.0/0", "those of"),
            ("169.254.169.254/32", "those of single links"),
            ("239.0.0.0/8", "those of groups"),
        ] {
            check(Some(cidr), "10.244.7.0/24", Err(whose));
        }
        check(None, "10.98.0.0/16", Err("--load-balancer-cidr"));
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for text in ["", "nobody", "10.0.0.1", "fd00::/64"] {
            assert!(LoadBalancerCidr::parse(text).is_err(), "{text}");
        }
    }
}
