//! Service IP ranges: the default range, and those of ServiceCIDRs (upstream's `pkg/registry/core/service/ipallocator`).
//! IPv4 only.

use ipnet::Ipv4Net;
use serde_json::Value;
use std::{collections::HashSet, net::Ipv4Addr};
use store::{Scope, Store};

/// Service IP range, `10.96.0.0/16`.
pub const SERVICE_RANGE: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 96, 0, 0), 16);
/// Cluster IP of the `kubernetes` Service, the first of the range.
pub const API_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// Cluster IP of the `kube-dns` Service, as with kubeadm.
pub const DNS_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);

/// Name of the default ServiceCIDR, as upstream.
pub(crate) const DEFAULT: &str = "kubernetes";
/// Storage name of ServiceCIDRs.
pub(crate) const STORAGE: &str = "servicecidrs";

/// Allocatable addresses of a network: without the network and broadcast address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    net: Ipv4Net,
    first: u32,
    last: u32,
}

impl Range {
    /// Returns `None` when the network has no allocatable address.
    fn new(net: Ipv4Net) -> Option<Self> {
        let net = net.trunc();
        let (first, last) = (net.network().to_bits().checked_add(1)?, net.broadcast().to_bits().checked_sub(1)?);
        (first <= last).then_some(Self { net, first, last })
    }

    /// Returns the number of addresses that are reserved for static allocation (KEP-3070): a sixteenth of the range, 16 to
    /// 256, and none of a small range.
    fn reserved(&self) -> u32 {
        let size = self.last - self.first + 1;
        if size <= 16 { 0 } else { (size / 16).clamp(16, 256) }
    }

    /// Returns a free address, preferably not a reserved one. `start` is the offset at which the search begins.
    fn free(&self, taken: &HashSet<Ipv4Addr>, start: u64) -> Option<Ipv4Addr> {
        let bound = self.first + self.reserved();
        let search = |first: u32, end: u32| {
            let places = end.checked_sub(first).filter(|places| *places > 0)?;
            let from = u32::try_from(start % u64::from(places)).unwrap_or(0);
            let all = (from..places).chain(0..from).map(|place| Ipv4Addr::from_bits(first + place));
            all.into_iter().find(|ip| !taken.contains(ip))
        };
        search(bound, self.last + 1).or_else(|| search(self.first, bound))
    }
}

/// All Service IP ranges.
pub(crate) struct Ranges(Vec<Range>);

impl Ranges {
    /// Returns the current ranges. The default range is used before its ServiceCIDR exists.
    pub(crate) fn of(store: &Store) -> Self {
        let (first, bits) = SERVICE_RANGE;
        let mut known = false;
        let mut all = Vec::new();
        for stored in store.list(&Scope::resource(STORAGE), None, None).objects {
            let range: Value = serde_json::from_slice(&stored.data).unwrap_or_default();
            known |= *stored.key.name == *DEFAULT;
            if is_ready(&range) {
                all.extend(networks(&range));
            }
        }
        if !known {
            all.insert(0, Ipv4Net::new_assert(first, bits));
        }
        Self(all.into_iter().filter_map(Range::new).collect())
    }

    /// Returns why a requested address cannot be allocated.
    pub(crate) fn refusal(&self, ip: Ipv4Addr) -> Option<String> {
        let around: Vec<&Range> = self.0.iter().filter(|range| range.net.contains(&ip)).collect();
        if around.iter().any(|range| (range.first..=range.last).contains(&ip.to_bits())) {
            return None;
        }
        Some(match around.first() {
            Some(range) => {
                let range = range.net;
                format!("the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}")
            }
            None => "the provided network does not match the current range".to_owned(),
        })
    }

    /// Returns a free address; `None` when all ranges are full.
    pub(crate) fn free(&self, taken: &HashSet<Ipv4Addr>, start: u64) -> Option<Ipv4Addr> {
        self.0.iter().find_map(|range| range.free(taken, start))
    }
}

fn networks(range: &Value) -> impl Iterator<Item = Ipv4Net> {
    let all = range["spec"]["cidrs"].as_array().into_iter().flatten();
    all.filter_map(|cidr| cidr.as_str()?.parse().ok())
}

/// Whether addresses can be allocated from a ServiceCIDR: it is not being deleted, and its `Ready` condition is true or
/// absent.
fn is_ready(range: &Value) -> bool {
    let conditions = range["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    range["metadata"]["deletionTimestamp"].is_null() && ready.is_none_or(|ready| ready["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ranges(all: &[&str]) -> Ranges {
        Ranges(all.iter().filter_map(|net| Range::new(net.parse().expect("a network"))).collect())
    }

    #[test]
    fn first_addresses_are_reserved_for_static_allocation() {
        for (net, usable, first_given) in [
            ("10.96.0.0/16", 65_534, "10.96.1.1"),
            ("10.97.0.0/24", 254, "10.97.0.17"),
            ("10.97.0.0/27", 30, "10.97.0.17"),
            ("10.97.0.0/28", 14, "10.97.0.1"),
            ("10.97.0.0/30", 2, "10.97.0.1"),
        ] {
            let ranges = ranges(&[net]);
            let mut taken = HashSet::new();
            let first = ranges.free(&taken, 0).expect("one");
            assert_eq!(first.to_string(), first_given, "{net}");
            if usable < 1000 {
                while let Some(ip) = ranges.free(&taken, 0) {
                    assert!(taken.insert(ip) && ranges.refusal(ip).is_none(), "{net}: {ip}");
                }
                assert_eq!(taken.len(), usable, "{net}");
            }
        }
        for net in ["10.97.0.0/31", "10.97.0.0/32"] {
            assert_eq!(ranges(&[net]).free(&HashSet::new(), 0), None, "{net}");
        }
    }

    #[test]
    fn search_of_free_address_wraps_around() {
        let ranges = ranges(&["10.97.0.0/29", "10.98.0.0/29"]);
        let all = |start: u64| {
            let mut taken = HashSet::new();
            let mut order = Vec::new();
            while let Some(ip) = ranges.free(&taken, start) {
                taken.insert(ip);
                order.push(ip.to_string());
            }
            order
        };
        assert_eq!(all(4)[..4], ["10.97.0.5", "10.97.0.6", "10.97.0.1", "10.97.0.2"]);
        assert_eq!((all(4).len(), &*all(u64::MAX)[0]), (12, "10.97.0.4"));
    }

    #[test]
    fn address_outside_all_ranges_is_refused_with_reason() {
        let ranges = ranges(&["10.96.0.0/16", "10.97.0.0/24"]);
        for (ip, expected) in [
            ("10.96.0.1", None),
            ("10.97.0.254", None),
            (
                "10.97.0.255",
                Some("the provided IP (10.97.0.255) is not in the valid range. The range of valid IPs is 10.97.0.0/24"),
            ),
            (
                "10.96.0.0",
                Some("the provided IP (10.96.0.0) is not in the valid range. The range of valid IPs is 10.96.0.0/16"),
            ),
            ("10.98.0.1", Some("the provided network does not match the current range")),
        ] {
            assert_eq!(ranges.refusal(ip.parse().expect("an address")).as_deref(), expected, "{ip}");
        }
    }

    #[test]
    fn range_that_is_deleted_or_not_ready_is_unused() {
        let status =
            |is: &str| json!({"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": is}]});
        for (range, expected) in [
            (json!({}), true),
            (json!({"status": status("True")}), true),
            (json!({"status": status("False")}), false),
            (json!({"status": status("True"), "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), false),
        ] {
            assert_eq!(is_ready(&range), expected, "{range}");
        }
    }
}
