//! Scripts for the program `nft`, each of which is one transaction.

use crate::{Error, command::run};

/// Runs a script.
pub(crate) async fn apply(script: &str) -> Result<(), Error> {
    run("nft", &["-f", "-"], script).await.map(drop)
}

/// Returns commands that delete a table. "delete" fails for a missing table: it is added first.
pub(crate) fn removal(family: &str, name: &str) -> String {
    format!("add table {family} {name}\ndelete table {family} {name}\n")
}
