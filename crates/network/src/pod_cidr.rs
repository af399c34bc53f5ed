//! Allocation of the Pod CIDR. Does no I/O.

use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// Range of allocated CIDRs; its first block is the default of most Kubernetes networks.
const DEFAULT_POOL: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 16);
const DEFAULT_PREFIX_LEN: u8 = 24;

/// CIDR in use on this machine: a route, or an address of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UsedCidr {
    pub(crate) net: Ipv4Net,
    /// Interface, for the error message.
    pub(crate) device: String,
}

/// Requested CIDR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CidrRequest {
    /// Exactly this CIDR (`--pod-cidr`).
    Explicit(Ipv4Net),
    /// The CIDR of the last run, if it is still free.
    Previous(Ipv4Net),
    /// Any free CIDR.
    Any,
}

/// Error of the allocation.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PodCidrError {
    /// The given CIDR is too small for a gateway and a Pod, or not unicast.
    #[error("the Pod CIDR {0} is not usable: it must be an IPv4 block of unicast addresses between /8 and /29")]
    Size(Ipv4Net),
    /// The given CIDR overlaps with addresses that are in use.
    #[error("the Pod CIDR {requested} overlaps with {taken} on {device}")]
    Overlap {
        /// The given CIDR.
        requested: Ipv4Net,
        /// The CIDR in use.
        taken: Ipv4Net,
        /// The interface that uses it.
        device: String,
    },
    /// Every block of the pool is in use.
    #[error("every /24 of 10.244.0.0/16 is in use on this machine: give a Pod CIDR")]
    Exhausted,
}

/// Allocates a CIDR that overlaps with nothing in `in_use`, which must not contain the network's own bridge.
pub(crate) fn allocate(request: CidrRequest, in_use: &[UsedCidr]) -> Result<Ipv4Net, PodCidrError> {
    match request {
        CidrRequest::Explicit(net) => {
            let net = net.trunc();
            if !(8..=29).contains(&net.prefix_len()) || !is_unicast(net.network()) {
                return Err(PodCidrError::Size(net));
            }
            match find_overlap(net, in_use) {
                None => Ok(net),
                Some(other) => {
                    Err(PodCidrError::Overlap { requested: net, taken: other.net, device: other.device.clone() })
                }
            }
        }
        CidrRequest::Previous(net) if find_overlap(net, in_use).is_none() => Ok(net),
        CidrRequest::Previous(_) | CidrRequest::Any => DEFAULT_POOL
            .subnets(DEFAULT_PREFIX_LEN)
            .into_iter()
            .flatten()
            .find(|net| find_overlap(*net, in_use).is_none())
            .ok_or(PodCidrError::Exhausted),
    }
}

/// Returns the CIDR in use that overlaps with `net`. Routes to wide blocks (the default route, a VPN's 10.0.0.0/8) do
/// not count: the more specific route of the Pod network takes precedence.
pub(crate) fn find_overlap(net: Ipv4Net, in_use: &[UsedCidr]) -> Option<&UsedCidr> {
    in_use.iter().find(|other| {
        let wide = other.net.prefix_len() < 16 && other.net.prefix_len() < net.prefix_len();
        !wide && (other.net.contains(&net) || net.contains(&other.net))
    })
}

/// Returns whether hosts can have such addresses.
fn is_unicast(ip: Ipv4Addr) -> bool {
    !(ip.octets()[0] == 0 || ip.is_loopback() || ip.octets()[0] >= 224)
}

/// Returns the gateway: the first address of the CIDR.
pub(crate) fn gateway(net: Ipv4Net) -> Ipv4Addr {
    net.hosts().next().unwrap_or(net.network())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `request` is a CIDR, a CIDR with `?` (the previous one) or empty; `occupied` is a list of `CIDR`s of device `br0`.
    #[track_caller]
    fn check(request: &str, in_use: &[&str], expected: Result<&str, &str>) {
        let net = |s: &str| s.parse::<Ipv4Net>().expect("a CIDR");
        let request = match request.strip_suffix('?') {
            Some(s) => CidrRequest::Previous(net(s)),
            None if request.is_empty() => CidrRequest::Any,
            None => CidrRequest::Explicit(net(request)),
        };
        let in_use: Vec<_> = in_use.iter().map(|s| UsedCidr { net: net(s), device: "br0".into() }).collect();
        let got = allocate(request, &in_use).map_err(|e| e.to_string());
        assert_eq!(got.as_ref().map(ToString::to_string).map_err(String::as_str), expected.map(Into::into));
    }

    #[test]
    fn first_free_block_is_allocated() {
        check("", &[], Ok("10.244.0.0/24"));
        check("", &["0.0.0.0/0", "127.0.0.0/8", "192.0.2.0/24"], Ok("10.244.0.0/24"));
        check("", &["10.244.0.0/24"], Ok("10.244.1.0/24"));
        check("", &["10.244.1.0/24", "10.244.0.0/24", "10.244.3.0/24"], Ok("10.244.2.0/24"));
        check("", &["10.244.0.77/32"], Ok("10.244.1.0/24"));
        check("", &["10.244.0.0/23"], Ok("10.244.2.0/24"));
    }

    #[test]
    fn wide_route_does_not_overlap_but_inner_address_does() {
        check("", &["10.0.0.0/8"], Ok("10.244.0.0/24"));
        check("", &["10.0.0.0/8", "10.244.0.9/32"], Ok("10.244.1.0/24"));
        check("10.244.5.0/24", &["10.0.0.0/8"], Ok("10.244.5.0/24"));
    }

    #[test]
    fn exhausted_pool_is_an_error() {
        check("", &["10.244.0.0/16"], Err("every /24 of 10.244.0.0/16 is in use on this machine: give a Pod CIDR"));
    }

    #[test]
    fn explicit_cidr_is_validated_and_checked_for_overlap() {
        check("10.9.0.0/16", &["10.244.0.0/24"], Ok("10.9.0.0/16"));
        check("10.9.3.7/24", &[], Ok("10.9.3.0/24"));
        check("10.9.0.0/16", &["10.9.4.0/24"], Err("the Pod CIDR 10.9.0.0/16 overlaps with 10.9.4.0/24 on br0"));
        check("10.0.0.0/8", &["10.9.4.0/24"], Err("the Pod CIDR 10.0.0.0/8 overlaps with 10.9.4.0/24 on br0"));
        check(
            "10.9.0.0/30",
            &[],
            Err(
                "the Pod CIDR 10.9.0.0/30 is not usable: it must be an IPv4 block of unicast addresses between /8 and /29",
            ),
        );
        for none in ["224.0.0.0/24", "240.0.0.0/8", "127.1.0.0/16", "0.0.0.0/8"] {
            let error = format!(
                "the Pod CIDR {none} is not usable: it must be an IPv4 block of unicast addresses between /8 and /29"
            );
            check(none, &[], Err(&error));
        }
    }

    #[test]
    fn previous_cidr_is_reused_while_it_is_free() {
        check("10.244.7.0/24?", &["10.244.0.0/24"], Ok("10.244.7.0/24"));
        check("10.244.7.0/24?", &["10.244.7.0/24"], Ok("10.244.0.0/24"));
    }

    #[test]
    fn gateway_is_the_first_address() {
        assert_eq!(gateway("10.244.3.0/24".parse().expect("a CIDR")).to_string(), "10.244.3.1");
    }
}
