//! Removal of a data directory's network.

use crate::{
    Error, Names, anti_spoof,
    command::{find, run},
    host_ports,
    links::Netlink,
    masquerade::stale_rules,
    nf_tables::{self, Family},
    policies, services,
};
use std::{fs, io, path::Path};

pub(crate) async fn destroy(data_dir: &Path) -> Result<(), Error> {
    let names = Names::of(data_dir);
    remove_links(&names).await?;
    remove_tables(&names).await;
    if find("iptables").is_some() {
        remove_rules(&names).await?;
    }
    let dir = names.dir();
    match fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::file("remove", &dir)(e)),
        _ => Ok(()),
    }
}

/// Removes the links; veths first: the namespace of a stray process would keep its end otherwise.
async fn remove_links(names: &Names) -> Result<(), Error> {
    let netlink = Netlink::open()?;
    let machine = netlink.machine().await?;
    let Some(bridge) = machine.link(&names.bridge) else {
        return Ok(());
    };
    if bridge.alias.as_ref().is_some_and(|alias| *alias != names.alias) {
        tracing::warn!(bridge = names.bridge, "skipping bridge of another data directory");
        return Ok(());
    }
    for port in machine.ports(bridge.index) {
        netlink.delete(port).await?;
    }
    netlink.delete(bridge).await
}

/// Removes the nftables tables; [`remove_rules`] removes the iptables rules.
async fn remove_tables(names: &Names) {
    let (services, policies) = (services::table_name(&names.bridge), policies::table_name(&names.bridge));
    let ports = anti_spoof::table_name(&names.bridge);
    let host_ports = host_ports::table_name(&names.bridge);
    let ip = [&names.bridge, &services, &policies, &host_ports].map(|table| (Family::Ip, table.as_str()));
    let tables: Vec<_> = ip.into_iter().chain([(Family::Ip6, policies.as_str()), (Family::Bridge, &ports)]).collect();
    // The kernel may lack nf_tables.
    let _ = nf_tables::remove_tables(&tables).await;
}

/// Removes the iptables rules.
async fn remove_rules(names: &Names) -> Result<(), Error> {
    for table in ["nat", "filter"] {
        // If the table cannot be read, this network never wrote to it.
        let Ok(listing) = run("iptables", &["-w", "10", "-t", table, "-S"], "").await else {
            continue;
        };
        if let Some(input) = stale_rules(table, &listing, &names.bridge) {
            run("iptables-restore", &["-w", "10", "--noflush"], &input).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "real_tests.rs"]
pub(crate) mod real_tests;
