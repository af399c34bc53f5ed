//! Masquerading of Pod traffic, and acceptance of forwarded Pod traffic.
//!
//! Both are rules for the whole Pod CIDR. Masquerading (SNAT) prefers nftables: a table of its own is replaced and
//! removed as a whole, and is not affected by `iptables -F`. The rules of Services are in [`crate::services`].

use crate::{
    Error, Names,
    command::{find, run},
    nft,
};
use ipnet::Ipv4Net;

/// Masquerades traffic that leaves the Pod CIDR. Without nft and iptables, Pods reach only this node and each other;
/// this is logged. Returns whether nftables works.
pub(crate) async fn masquerade_pod_traffic(names: &Names, cidr: Ipv4Net) -> Result<bool, Error> {
    if find("nft").is_some() {
        match nft::apply(&nft_table(&names.bridge, cidr)).await {
            Ok(()) => return Ok(true),
            // The kernel may lack nf_tables and have iptables.
            Err(e) => tracing::debug!(error = %e, "failed to use nftables"),
        }
    }
    if find("iptables").is_none() {
        tracing::warn!("neither nft nor iptables is available, disabling masquerading of pod traffic");
        return Ok(false);
    }
    let cidr = cidr.to_string();
    let rule = ["-s", &cidr, "!", "-d", &cidr, "-j", "MASQUERADE"];
    ensure(names, "nat", ["-A", "POSTROUTING"], &rule).await?;
    Ok(false)
}

/// Accepts forwarded Pod traffic if the policy of FORWARD is DROP. Docker sets that policy and applies iptables to
/// bridged traffic, which blocks even traffic between Pods of this node.
pub(crate) async fn allow_forwarding(names: &Names, cidr: Ipv4Net) -> Result<(), Error> {
    if find("iptables").is_none() {
        return Ok(());
    }
    match run("iptables", &["-w", "10", "-S", "FORWARD"], "").await {
        Ok(listing) if listing.starts_with("-P FORWARD DROP") => {}
        Ok(_) => return Ok(()),
        Err(error) => {
            // A kernel without iptables drops nothing.
            tracing::info!(%error, "failed to read the policy of forwarded traffic, assuming ACCEPT");
            return Ok(());
        }
    }
    let cidr = cidr.to_string();
    for side in ["-s", "-d"] {
        ensure(names, "filter", ["-I", "FORWARD"], &[side, &cidr, "-j", "ACCEPT"]).await?;
    }
    Ok(())
}

/// Adds a rule with this network's comment, if it is missing; `add` is the verb and the chain.
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

/// Returns the transaction that replaces the table. "delete" fails for a missing table: it is added first.
pub(crate) fn nft_table(name: &str, cidr: Ipv4Net) -> String {
    format!(
        "table ip {name}\ndelete table ip {name}\ntable ip {name} {{\n  chain postrouting {{\n    \
         type nat hook postrouting priority 100; policy accept;\n    \
         ip saddr {cidr} ip daddr != {cidr} ip daddr != 224.0.0.0/4 masquerade\n  }}\n}}\n"
    )
}

/// Returns the comment that identifies the network's iptables rules.
pub(crate) fn comment(name: &str) -> String {
    format!("podium-network:{name}")
}

/// Converts `iptables -t <table> -S` into the input of `iptables-restore --noflush` that removes this network's rules;
/// `None` if there is nothing to remove.
pub(crate) fn stale_rules(table: &str, listing: &str, network: &str) -> Option<String> {
    let marker = comment(network);
    let is_marked = |line: &&str| {
        line.find(&marker).is_some_and(|at| {
            // The marker must not be a prefix of a longer name.
            let rest = &line[at + marker.len()..];
            rest.is_empty() || rest.starts_with([' ', '"'])
        })
    };
    let rules: Vec<String> = listing
        .lines()
        .filter(is_marked)
        .filter_map(|line| Some(format!("-D {}", line.strip_prefix("-A ")?)))
        .collect();
    (!rules.is_empty()).then(|| format!("*{table}\n{}\nCOMMIT\n", rules.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn only_own_iptables_rules_are_removed() {
        let listing = r#"-P POSTROUTING ACCEPT
-N CNI-DN-aaa
-A POSTROUTING -s 10.244.0.0/24 ! -d 10.244.0.0/24 -m comment --comment "podium-network:pd-1" -j MASQUERADE
-A POSTROUTING -s 10.244.1.0/24 ! -d 10.244.1.0/24 -m comment --comment podium-network:pd-12 -j MASQUERADE
-A CNI-DN-aaa -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.0.2:80
"#;
        expect![[r#"
            *nat
            -D POSTROUTING -s 10.244.0.0/24 ! -d 10.244.0.0/24 -m comment --comment "podium-network:pd-1" -j MASQUERADE
            COMMIT
        "#]]
        .assert_eq(&stale_rules("nat", listing, "pd-1").unwrap_or_default());
        assert_eq!(stale_rules("nat", listing, "pd-2"), None);
    }

    #[test]
    fn masquerade_table_replaces_itself() {
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
