//! Pods reach the outside with the node's address: one rule for the whole Pod CIDR.
//!
//! nftables is preferred: a table of its own is replaced and removed as a whole, and nobody else's flush touches it.

use crate::program::{find, run};
use crate::{Error, Names};
use ipnet::Ipv4Net;

/// Sets the rule, once. Without a program that can, Pods reach the node and each other only, and the log says so.
pub(crate) async fn set(names: &Names, cidr: Ipv4Net) -> Result<(), Error> {
    if find("nft").is_some() {
        match run("nft", &["-f", "-"], &nft_table(&names.bridge, cidr)).await {
            Ok(_) => return Ok(()),
            // A kernel without nf_tables: the older interface may be there.
            Err(e) => tracing::debug!("nftables is not usable: {e}"),
        }
    }
    if find("iptables").is_none() {
        tracing::warn!("neither nft nor iptables works here: Pods reach this node but nothing beyond it");
        return Ok(());
    }
    let rule = iptables_rule(&names.bridge, cidr);
    let args = |verb: &'static str| {
        let head = ["-w", "10", "-t", "nat", verb, "POSTROUTING"];
        head.into_iter().chain(rule.iter().map(String::as_str)).collect::<Vec<_>>()
    };
    if run("iptables", &args("-C"), "").await.is_ok() {
        return Ok(());
    }
    run("iptables", &args("-A"), "").await.map(drop)
}

/// Removes the nftables table; the iptables rule goes with [`crate::leftovers`], which reads that table anyway.
pub(crate) async fn remove_table(names: &Names) {
    if find("nft").is_some() {
        // There is nothing to remove where it was never made, or where the kernel has no nf_tables.
        let _ = run("nft", &["delete", "table", "ip", &names.bridge], "").await;
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

fn iptables_rule(name: &str, cidr: Ipv4Net) -> Vec<String> {
    let cidr = cidr.to_string();
    let comment = comment(name);
    ["-s", &cidr, "!", "-d", &cidr, "-m", "comment", "--comment", &comment, "-j", "MASQUERADE"]
        .map(str::to_owned)
        .to_vec()
}

/// How the iptables rule is found again.
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
