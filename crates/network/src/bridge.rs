//! Kernel settings of the bridge for Services and NetworkPolicies.

use crate::{command::run, nft};
use std::path::Path;

/// Enables netfilter for bridged traffic, so that connection tracking sees it; returns whether this succeeded.
/// Upstream requires the same of all bridges (`net.bridge.bridge-nf-call-iptables`).
pub(crate) async fn enable_netfilter(bridge: &str) -> bool {
    if !Path::new("/proc/sys/net/bridge").exists() {
        // Without the module the file below does not exist.
        let _ = run("modprobe", &["br_netfilter"], "").await;
    }
    let tracked = enable_setting(&format!("/sys/class/net/{bridge}/bridge/nf_call_iptables"))
        && Path::new("/proc/sys/net/bridge").exists();
    if !tracked {
        tracing::info!("br_netfilter is not available, masquerading Service traffic between pods");
    }
    tracked
}

/// Returns whether connection tracking sees the traffic of all bridges. That is an administrator's decision: it affects
/// bridges that are not Podium's.
pub(crate) async fn is_netfilter_enabled() -> bool {
    const SETTING: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    if !Path::new(SETTING).exists() {
        let _ = run("modprobe", &["br_netfilter"], "").await;
    }
    let is_enabled = std::fs::read_to_string(SETTING).is_ok_and(|value| value.trim() == "1");
    if !is_enabled {
        tracing::info!("net.bridge.bridge-nf-call-iptables is not 1, masquerading Service traffic between pods");
    }
    is_enabled
}

/// Forwards packets of Pods to other networks.
pub(crate) fn enable_forwarding() {
    if !enable_setting("/proc/sys/net/ipv4/ip_forward") {
        tracing::warn!("failed to enable IPv4 forwarding, Pods reach only this node and each other");
    }
}

/// Routes packets from this node's 127.0.0.1 to Pods, for NodePorts and host ports. Rules drop those of others.
pub(crate) fn route_loopback(bridge: &str) {
    if !enable_setting(&format!("/proc/sys/net/ipv4/conf/{bridge}/route_localnet")) {
        tracing::info!("failed to enable route_localnet, NodePorts and host ports are not available at 127.0.0.1");
    }
}

/// Drops IPv6 traffic between Pods of the bridge: they only have link-local addresses, which no policy covers.
pub(crate) async fn drop_pod_ipv6(bridge: &str, table: &str) {
    // Without this setting, rules do not see bridged IPv6 traffic.
    let is_filtered = enable_setting(&format!("/sys/class/net/{bridge}/bridge/nf_call_ip6tables"));
    let script = format!(
        "add table ip6 {table}\ndelete table ip6 {table}\nadd table ip6 {table}\n\
         add chain ip6 {table} forward {{ type filter hook forward priority -100 ; }}\n\
         add rule ip6 {table} forward iifname {bridge} oifname {bridge} drop\n"
    );
    if !is_filtered || nft::apply(&script).await.is_err() {
        tracing::info!("failed to drop IPv6 traffic between pods");
    }
}

/// Sets a kernel setting to 1; returns whether it is. In a container it may be read-only and set by the host.
fn enable_setting(file: &str) -> bool {
    std::fs::write(file, "1").is_ok() || std::fs::read_to_string(file).is_ok_and(|value| value.trim() == "1")
}
