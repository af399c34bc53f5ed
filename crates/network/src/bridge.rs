//! What Services and NetworkPolicies need of the bridge.

use crate::program::run;
use std::path::Path;

/// Lets connection tracking see what Pods of the bridge say to each other; returns whether it does. Upstream asks for the
/// same (`net.bridge.bridge-nf-call-iptables`), but of all bridges of a machine.
pub(crate) async fn track(bridge: &str) -> bool {
    if !Path::new("/proc/sys/net/bridge").exists() {
        // Where it is neither a module nor built in, the file below is not there.
        let _ = run("modprobe", &["br_netfilter"], "").await;
    }
    let tracked = write(&format!("/sys/class/net/{bridge}/bridge/nf_call_iptables"))
        && Path::new("/proc/sys/net/bridge").exists();
    if !tracked {
        tracing::info!("without br_netfilter Pods see the gateway as the client of their Services");
    }
    tracked
}

/// Lets this node's own 127.0.0.1 reach Pods, for node ports. The rules keep everybody else from it.
pub(crate) fn route_loopback(bridge: &str) {
    if !write(&format!("/proc/sys/net/ipv4/conf/{bridge}/route_localnet")) {
        tracing::info!("node ports do not answer at 127.0.0.1 here");
    }
}

/// Keeps Pods of the bridge from speaking IPv6 with each other: they have no such addresses but those that every
/// interface gives itself, of which no policy knows.
pub(crate) async fn part_ip6(bridge: &str, table: &str) {
    // Without it nothing of it is seen.
    let seen = write(&format!("/sys/class/net/{bridge}/bridge/nf_call_ip6tables"));
    let script = format!(
        "add table ip6 {table}\ndelete table ip6 {table}\nadd table ip6 {table}\n\
         add chain ip6 {table} forward {{ type filter hook forward priority -100 ; }}\n\
         add rule ip6 {table} forward iifname {bridge} oifname {bridge} drop\n"
    );
    if !seen || run("nft", &["-f", "-"], &script).await.is_err() {
        tracing::info!("NetworkPolicies do not keep Pods from speaking IPv6 with each other here");
    }
}

/// Switches something on. Where the kernel shows it read-only, somebody else decides.
fn write(file: &str) -> bool {
    std::fs::write(file, "1").is_ok() || std::fs::read_to_string(file).is_ok_and(|value| value.trim() == "1")
}
