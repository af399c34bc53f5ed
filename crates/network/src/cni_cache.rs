//! libcni's cache: the bridge ports of Pods, and the state that is left when Pods are not removed one by one.

use ipnet::Ipv4Net;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

/// File of libcni's cache; there is one for every interface that it added.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CacheEntry {
    #[serde(default)]
    network_name: String,
    #[serde(default)]
    container_id: String,
    /// Written by newer versions of libcni only.
    #[serde(default, rename = "netns")]
    netns: Option<PathBuf>,
    #[serde(default)]
    result: CacheResult,
}

#[derive(Debug, Default, Deserialize)]
struct CacheResult {
    #[serde(default)]
    interfaces: Vec<Interface>,
    #[serde(default)]
    ips: Vec<Address>,
}

#[derive(Debug, Deserialize)]
struct Address {
    /// Address with its prefix length.
    address: String,
}

#[derive(Debug, Deserialize)]
struct Interface {
    #[serde(default)]
    name: String,
    #[serde(default)]
    mac: String,
    /// Network namespace of the interface; empty for the host's end.
    #[serde(default)]
    sandbox: String,
}

/// Cache files and network namespaces of a network.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CachedNetwork {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) namespaces: Vec<PathBuf>,
}

/// Bridge port of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    /// The host's end of the Pod's veth pair.
    pub(crate) veth: String,
    /// MAC address of the Pod's end.
    pub(crate) mac: String,
    pub(crate) ip: Ipv4Addr,
}

impl CacheEntry {
    fn port(&self) -> Option<Port> {
        let interfaces = &self.result.interfaces;
        let veth = interfaces.iter().find(|i| i.sandbox.is_empty() && i.name != self.network_name)?;
        let interface = interfaces.iter().find(|i| !i.sandbox.is_empty())?;
        let ip = self.result.ips.iter().find_map(|ip| ip.address.parse::<Ipv4Net>().ok())?.addr();
        // The values become part of an nft script.
        let is_name = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
        let is_mac = interface.mac.len() == 17 && interface.mac.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
        (is_name(&veth.name) && is_mac).then(|| Port { veth: veth.name.clone(), mac: interface.mac.clone(), ip })
    }
}

/// Returns the bridge port of a Pod sandbox.
pub(crate) fn port(dir: &Path, network: &str, sandbox: &str) -> Option<Port> {
    let entry = std::fs::read(dir.join(format!("{network}-{sandbox}-eth0"))).ok()?;
    serde_json::from_slice::<CacheEntry>(&entry).ok()?.port()
}

/// Returns the bridge ports of a network by sandbox.
pub(crate) fn ports(dir: &Path, network: &str) -> std::io::Result<BTreeMap<String, Port>> {
    let entries = entries(dir)?.into_iter().map(|(_, entry)| entry).filter(|entry| entry.network_name == network);
    Ok(entries.filter_map(|entry| Some((entry.container_id.clone(), entry.port()?))).collect())
}

/// Reads the cache of `network` in `dir`; the loopback interface of the same Pods is included.
pub(crate) fn read_network(dir: &Path, network: &str) -> std::io::Result<CachedNetwork> {
    let entries = entries(dir)?;
    let container_ids: Vec<String> =
        entries.iter().filter(|(_, e)| e.network_name == network).map(|(_, e)| e.container_id.clone()).collect();
    let mut found = CachedNetwork::default();
    for (path, entry) in entries {
        if !container_ids.contains(&entry.container_id) {
            continue;
        }
        found.files.push(path);
        let sandboxes = entry.result.interfaces.into_iter().map(|i| PathBuf::from(i.sandbox));
        found.namespaces.extend(entry.netns.into_iter().chain(sandboxes));
    }
    found.files.sort();
    found.namespaces.retain(|p| p.is_absolute());
    found.namespaces.sort();
    found.namespaces.dedup();
    Ok(found)
}

fn entries(dir: &Path) -> std::io::Result<Vec<(PathBuf, CacheEntry)>> {
    let mut entries = Vec::new();
    for file in std::fs::read_dir(dir)? {
        let path = file?.path();
        // Files that vanish, or are not cache entries, are skipped.
        let Ok(bytes) = std::fs::read(&path) else { continue };
        if let Ok(entry) = serde_json::from_slice::<CacheEntry>(&bytes) {
            entries.push((path, entry));
        }
    }
    Ok(entries)
}

/// Converts `iptables -t <table> -S` into the input of `iptables-restore --noflush` that removes this network's rules
/// and host port chains (portmap's, one per Pod); `None` if there is nothing to remove.
pub(crate) fn stale_rules(table: &str, listing: &str, network: &str) -> Option<String> {
    let markers = [format!("\"dnat name: \\\"{network}\\\" id: "), crate::masquerade::comment(network)];
    let marked = |line: &str| {
        markers.iter().any(|marker| {
            line.find(marker.as_str()).is_some_and(|at| {
                // The marker must not be a prefix of a longer name.
                let rest = &line[at + marker.len()..];
                marker.ends_with(' ') || rest.is_empty() || rest.starts_with([' ', '"'])
            })
        })
    };
    let (mut rules, mut chains) = (Vec::new(), Vec::new());
    for line in listing.lines() {
        let Some(rule) = line.strip_prefix("-A ").filter(|_| marked(line)) else {
            continue;
        };
        rules.push(format!("-D {rule}"));
        let target = line.rsplit_once(" -j ").map(|(_, t)| t.trim());
        if let Some(chain) = target.filter(|t| t.starts_with("CNI-DN-"))
            && !chains.contains(&chain)
        {
            chains.push(chain);
        }
    }
    if rules.is_empty() {
        return None;
    }
    let flush = chains.iter().map(|c| format!("-F {c}"));
    let delete = chains.iter().map(|c| format!("-X {c}"));
    let body: Vec<String> = rules.into_iter().chain(flush).chain(delete).collect();
    Some(format!("*{table}\n{}\nCOMMIT\n", body.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    const LISTING: &str = r#"-P POSTROUTING ACCEPT
-N CNI-DN-aaa
-N CNI-DN-bbb
-N CNI-HOSTPORT-DNAT
-A POSTROUTING -s 10.244.0.0/24 ! -d 10.244.0.0/24 -m comment --comment "podium-network:pd-1" -j MASQUERADE
-A POSTROUTING -s 10.244.1.0/24 ! -d 10.244.1.0/24 -m comment --comment podium-network:pd-12 -j MASQUERADE
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"pd-1\" id: \"c1\"" -m multiport --dports 80 -j CNI-DN-aaa
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"pd-12\" id: \"c2\"" -m multiport --dports 81 -j CNI-DN-bbb
-A CNI-DN-aaa -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.0.2:80
"#;

    #[track_caller]
    fn check(network: &str, expected: &Expect) {
        expected.assert_eq(&stale_rules("nat", LISTING, network).unwrap_or_default());
    }

    #[test]
    fn only_own_iptables_rules_are_removed() {
        check(
            "pd-1",
            &expect![[r#"
            *nat
            -D POSTROUTING -s 10.244.0.0/24 ! -d 10.244.0.0/24 -m comment --comment "podium-network:pd-1" -j MASQUERADE
            -D CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"pd-1\" id: \"c1\"" -m multiport --dports 80 -j CNI-DN-aaa
            -F CNI-DN-aaa
            -X CNI-DN-aaa
            COMMIT
        "#]],
        );
        check("pd-2", &expect![[r#""#]]);
    }

    #[test]
    fn cni_cache_lists_own_network_namespaces() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).expect("writable");
        };
        write(
            "pd-1-c1-eth0",
            r#"{"kind":"cniCacheV1","containerId":"c1","networkName":"pd-1","result":{"interfaces":[{"name":"pd-1"},{"name":"eth0","sandbox":"/run/netns/cni-1"}]}}"#,
        );
        write("cni-loopback-c1-lo", r#"{"containerId":"c1","networkName":"cni-loopback","netns":"/run/netns/cni-1"}"#);
        write("pd-2-c2-eth0", r#"{"containerId":"c2","networkName":"pd-2","netns":"/run/netns/cni-2"}"#);
        write("damaged", "{");
        let found = read_network(dir.path(), "pd-1").expect("readable");
        assert_eq!(found.namespaces, [PathBuf::from("/run/netns/cni-1")]);
        assert_eq!(found.files, [dir.path().join("cni-loopback-c1-lo"), dir.path().join("pd-1-c1-eth0")]);
    }
}
