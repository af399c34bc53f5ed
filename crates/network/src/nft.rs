//! Scripts for the program `nft`, each of which is one transaction.

use crate::{Error, command::run};

/// Runs a script.
pub(crate) async fn apply(script: &str) -> Result<(), Error> {
    run("nft", &["-f", "-"], script).await.map(drop)
}
