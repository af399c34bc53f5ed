//! Scripts for the program `nft`, each of which is one transaction.

use crate::{Error, command::run};

/// Runs a script.
pub(crate) async fn apply(script: &str) -> Result<(), Error> {
    run("nft", &["-f", "-"], script).await.map(drop)
}

/// Removes tables, given as family and name.
///
/// # Errors
/// If one of the family `ip` cannot be removed. The kernel may lack the others (`ip6`, `bridge`), and has none of their tables
/// then.
pub(crate) async fn remove_tables(tables: &[(&str, &str)]) -> Result<(), Error> {
    let all: String = tables.iter().map(|(family, name)| removal(family, name)).collect();
    if apply(&all).await.is_ok() {
        return Ok(());
    }
    let mut removed = Ok(());
    for (family, name) in tables {
        let result = apply(&removal(family, name)).await;
        if *family == "ip" {
            removed = removed.and(result);
        }
    }
    removed
}

/// Returns commands that delete a table. "delete" fails for a missing table: it is added first.
fn removal(family: &str, name: &str) -> String {
    format!("add table {family} {name}\ndelete table {family} {name}\n")
}
