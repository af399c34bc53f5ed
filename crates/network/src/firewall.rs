//! What the node's firewall must do for Pods: give them its own address on the way out, and let them pass.
//!
//! Both are rules for the whole Pod CIDR. For the address nftables is preferred: a table of its own is replaced and
//! removed as a whole, and nobody else's flush touches it.

use crate::program::{find, run};
use crate::{Error, Names, anti_spoof, policies, services};
use ipnet::Ipv4Net;

/// Pods reach the outside with the node's address. Without a program that can, Pods reach the node and each other only, and the log says so.
/// Returns whether nftables works here.
pub(crate) async fn masquerade(names: &Names, cidr: Ipv4Net) -> Result<bool, Error> {
    if find("nft").is_some() {
        match run("nft", &["-f", "-"], &nft_table(&names.bridge, cidr)).await {
            Ok(_) => return Ok(true),
            // A kernel without nf_tables: the older interface may be there.
            Err(e) => tracing::debug!("nftables is not usable: {e}"),
        }
    }
    if find("iptables").is_none() {
        tracing::warn!("neither nft nor iptables works here: Pods reach this node but nothing beyond it");
        return Ok(false);
    }
    let cidr = cidr.to_string();
    let rule = ["-s", &cidr, "!", "-d", &cidr, "-j", "MASQUERADE"];
    ensure(names, "nat", ["-A", "POSTROUTING"], &rule).await?;
    Ok(false)
}

/// Pods pass where the node forwards nothing by default. Docker sets that policy, and makes the bridges' own traffic
/// subject to it, too: without these rules not even two Pods of this node reach each other.
pub(crate) async fn allow_forwarding(names: &Names, cidr: Ipv4Net) -> Result<(), Error> {
    if find("iptables").is_none() {
        return Ok(());
    }
    let Ok(listing) = run("iptables", &["-w", "10", "-S", "FORWARD"], "").await else {
        return Ok(());
    };
    if !listing.starts_with("-P FORWARD DROP") {
        return Ok(());
    }
    let cidr = cidr.to_string();
    for side in ["-s", "-d"] {
        ensure(names, "filter", ["-I", "FORWARD"], &[side, &cidr, "-j", "ACCEPT"]).await?;
    }
    Ok(())
}

/// Adds a rule of ours if it is not there; `add` is how, and to which chain.
async fn ensure(names: &Names, table: &str, add: [&str; 2], rule: &[&str]) -> Result<(), Error> {
    let comment = comment(&names.bridge);
    let [verb, chain] = add;
    let args = |verb| {
        let mut args = vec!["-w", "10", "-t", table, verb, chain, "-m", "comment", "--comment", &comment];
        args.extend_from_slice(rule);
        args
    };
    if run("iptables", &args("-C"), "").await.is_ok() {
        return Ok(());
    }
    run("iptables", &args(verb), "").await.map(drop)
}

/// Removes the nftables tables; rules of iptables go with [`crate::leftovers`], which reads their tables anyway.
pub(crate) async fn remove_tables(names: &Names) {
    if find("nft").is_some() {
        let (services, policies) = (services::table_name(&names.bridge), policies::table_name(&names.bridge));
        let ports = anti_spoof::table_name(&names.bridge);
        let ip = [&names.bridge, &services, &policies].map(|table| ("ip", table));
        for (family, table) in ip.into_iter().chain([("ip6", &policies), ("bridge", &ports)]) {
            // There is nothing to remove where it was never made, or where the kernel has no nf_tables.
            let _ = run("nft", &["delete", "table", family, table], "").await;
        }
    }
}

/// Replaces the table in one transaction. It is declared before it is deleted because deleting needs it to exist.
fn nft_table(name: &str, cidr: Ipv4Net) -> String {
    format!(
        "table ip {name}\ndelete table ip {name}\ntable ip {name} {{\n  chain postrouting {{\n    \
         type nat hook postrouting priority 100; policy accept;\n    \
         ip saddr {cidr} ip daddr != {cidr} ip daddr != 224.0.0.0/4 masquerade\n  }}\n}}\n"
    )
}

/// How a rule of iptables is found again.
pub(crate) fn comment(name: &str) -> String {
    format!("podium-network:{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn the_table_replaces_itself() {
        expect![[r#"
            table ip pd-0a
            delete table ip pd-0a
            table ip pd-0a {
              chain postrouting {
                type nat hook postrouting priority 100; policy accept;
                ip saddr 10.244.0.0/24 ip daddr != 10.244.0.0/24 ip daddr != 224.0.0.0/4 masquerade
              }
            }
        "#]]
        .assert_eq(&nft_table("pd-0a", "10.244.0.0/24".parse().expect("a CIDR")));
    }
}
