//! Anti-spoofing rules for Pod interfaces.
//!
//! Frames from a Pod's bridge port must have the Pod's MAC and IPv4 address, in ARP, too. Otherwise a Pod with
//! `CAP_NET_RAW` or `CAP_NET_ADMIN` could intercept traffic of other Pods or of the gateway, or bypass
//! NetworkPolicies. IPv6 router advertisements and redirects, VLAN frames and other protocols are dropped, for
//! NetworkPolicies do not see them.
//!
//! The port of a sandbox is added before its first container starts. libcni's cache maps the ports of CNI to Pods;
//! [`crate::attach`] adds those of its own.

use crate::{
    Error,
    cni_cache::{Port, port, ports},
    command::run,
};
use std::{
    collections::BTreeMap,
    fmt::Write,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::sync::Mutex;

/// Number of additions after which the table is rebuilt without removed ports.
const MAX_ADDITIONS: usize = 64;

/// Returns the name of the bridge's anti-spoofing table.
pub(crate) fn table_name(bridge: &str) -> String {
    format!("{bridge}-anti-spoof")
}

/// Replaces the table with the ports of libcni's cache. Returns whether this succeeded.
pub(crate) async fn install_cached(bridge: &str, cache: &Path) -> bool {
    let known: Vec<Port> = ports(cache, bridge).unwrap_or_default().into_values().collect();
    install(bridge, &known).await
}

/// Replaces the table. Returns whether this succeeded.
pub(crate) async fn install(bridge: &str, ports: &[Port]) -> bool {
    match run("nft", &["-f", "-"], &table(&table_name(bridge), ports.iter())).await {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(%error, "Pods with CAP_NET_RAW can send with the addresses of other Pods");
            false
        }
    }
}

/// Anti-spoofing table of a bridge. Clones share their state.
#[derive(Debug, Clone)]
pub(crate) struct AntiSpoof {
    bridge: String,
    cache: PathBuf,
    added: Arc<Mutex<BTreeMap<String, Port>>>,
}

impl AntiSpoof {
    pub(crate) fn new(bridge: &str, cache: impl Into<PathBuf>) -> Self {
        Self { bridge: bridge.to_owned(), cache: cache.into(), added: Arc::default() }
    }

    /// Adds the bridge port of a sandbox.
    ///
    /// # Errors
    /// When nft fails.
    pub(crate) async fn add(&self, sandbox: &str) -> Result<(), Error> {
        let Some(port) = port(&self.cache, &self.bridge, sandbox) else {
            tracing::warn!(sandbox, "sandbox not found in CNI cache, skipping anti-spoofing");
            return Ok(());
        };
        let mut added = self.added.lock().await;
        if added.get(sandbox) == Some(&port) {
            return Ok(());
        }
        if added.len() >= MAX_ADDITIONS {
            added.clear();
            if install_cached(&self.bridge, &self.cache).await {
                added.insert(sandbox.to_owned(), port);
                return Ok(());
            }
        }
        let script = elements(&table_name(&self.bridge), [&port].into_iter());
        let written = match run("nft", &["-f", "-"], &script).await {
            Ok(_) => Ok(()),
            // The table may have been removed.
            Err(_) if install_cached(&self.bridge, &self.cache).await => Ok(()),
            Err(error) => Err(error),
        };
        if written.is_ok() {
            added.insert(sandbox.to_owned(), port);
        }
        written
    }
}

/// Returns the transaction that replaces the table.
fn table<'a>(name: &str, ports: impl Iterator<Item = &'a Port>) -> String {
    // The hook precedes br_netfilter's: dropped frames never reach connection tracking.
    format!(
        "add table bridge {name}\ndelete table bridge {name}\nadd table bridge {name}\n\
         add set bridge {name} ports {{ type ifname ; }}\n\
         add set bridge {name} senders {{ type ifname . ether_addr ; }}\n\
         add set bridge {name} addresses {{ type ifname . ether_addr . ipv4_addr ; }}\n\
         add chain bridge {name} prerouting {{ type filter hook prerouting priority -300 ; }}\n\
         add rule bridge {name} prerouting iifname != @ports accept\n\
         add rule bridge {name} prerouting iifname . ether saddr != @senders drop\n\
         add rule bridge {name} prerouting ether type ip iifname . ether saddr . ip saddr != @addresses drop\n\
         add rule bridge {name} prerouting ether type arp iifname . arp saddr ether . arp saddr ip != @addresses drop\n\
         add rule bridge {name} prerouting ether type ip6 icmpv6 type {{ nd-router-advert, nd-redirect }} drop\n\
         add rule bridge {name} prerouting ether type != {{ ip, arp, ip6 }} drop\n{}",
        elements(name, ports)
    )
}

/// Returns the commands that add ports. Adding an existing element is not an error.
fn elements<'a>(name: &str, ports: impl Iterator<Item = &'a Port>) -> String {
    let mut script = String::new();
    for Port { veth, mac, ip } in ports {
        let _ = write!(
            script,
            "add element bridge {name} ports {{ \"{veth}\" }}\n\
             add element bridge {name} senders {{ \"{veth}\" . {mac} }}\n\
             add element bridge {name} addresses {{ \"{veth}\" . {mac} . {ip} }}\n"
        );
    }
    script
}

#[cfg(test)]
mod tests;
