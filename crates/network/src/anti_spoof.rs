//! Keeps Pods from sending with addresses that are not theirs.
//!
//! Every frame that comes in at the port of a Pod must have the MAC address and the IPv4 address of that Pod, in ARP too:
//! else a Pod with `CAP_NET_RAW` (or `CAP_NET_ADMIN`) could take the traffic of another Pod or of the gateway, and pass for
//! one that NetworkPolicies allow. IPv6 frames must not be announcements of routers; frames of other protocols and of
//! VLANs, which NetworkPolicies would not see, are dropped.
//!
//! Which port belongs to which Pod is in libcni's cache. The port of a sandbox is added before its first container starts.

use crate::leftovers::{Port, port, ports};
use crate::program::run;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Mutex;

/// After so many additions the table is made anew, without the ports that are gone.
const REBUILD: usize = 64;

/// How the table of a bridge's ports is called.
pub(crate) fn table_name(bridge: &str) -> String {
    format!("{bridge}-anti-spoof")
}

/// Replaces the table, with the ports that are in libcni's cache. Returns whether the kernel took it.
pub(crate) async fn install(bridge: &str, cache: &Path) -> bool {
    let known = ports(cache, bridge).unwrap_or_default();
    match run("nft", &["-f", "-"], &table(&table_name(bridge), known.values())).await {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(%error, "Pods with CAP_NET_RAW can send with the addresses of other Pods");
            false
        }
    }
}

/// The ports of a bridge that are checked. Clones are the same.
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

    /// Checks from now on what the Pod of a sandbox sends.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) async fn add(&self, sandbox: &str) -> Result<(), String> {
        let Some(port) = port(&self.cache, &self.bridge, sandbox) else {
            tracing::warn!(sandbox, "libcni's cache lacks a sandbox: what its Pod sends is not checked");
            return Ok(());
        };
        let mut added = self.added.lock().await;
        if added.get(sandbox) == Some(&port) {
            return Ok(());
        }
        if added.len() >= REBUILD {
            added.clear();
            if install(&self.bridge, &self.cache).await {
                added.insert(sandbox.to_owned(), port);
                return Ok(());
            }
        }
        let script = elements(&table_name(&self.bridge), [&port].into_iter());
        let written = match run("nft", &["-f", "-"], &script).await {
            Ok(_) => Ok(()),
            // Somebody may have removed the table.
            Err(_) if install(&self.bridge, &self.cache).await => Ok(()),
            Err(error) => Err(format!("failed to check the senders of frames: {error}")),
        };
        if written.is_ok() {
            added.insert(sandbox.to_owned(), port);
        }
        written
    }
}

/// The transaction that replaces the table.
fn table<'a>(name: &str, ports: impl Iterator<Item = &'a Port>) -> String {
    // The hook is before br_netfilter's: what is dropped here never reaches connection tracking.
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

/// Adds ports. An element that is there already is no error.
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
