//! Removal of all connections of a data directory (`podium down`).

use crate::{Error, PLUGIN_TIMEOUT, leftovers, netns, operations, record};
use futures::{StreamExt, stream};
use std::{io, path::Path};

/// Maximum number of sandboxes that are disconnected at the same time.
const CONCURRENCY: usize = 16;

/// Returns the sandboxes of a data directory that are connected through CNI, or wait for DEL.
///
/// # Errors
/// When the records cannot be listed.
pub fn attached(data_dir: &Path) -> Result<Vec<String>, Error> {
    record::sandboxes(data_dir)
}

/// Disconnects all sandboxes of a data directory, whose containers have ended, and removes the records. What a plugin cannot
/// remove is logged: its provider may be gone already. Does nothing if there is nothing.
///
/// # Errors
/// When the records cannot be removed.
pub async fn destroy(data_dir: &Path) -> Result<(), Error> {
    let sandboxes = record::sandboxes(data_dir)?;
    stream::iter(&sandboxes).for_each_concurrent(CONCURRENCY, |sandbox| remove(data_dir, sandbox)).await;
    let path = data_dir.join("cni");
    match files::remove_dir_all(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::Record { doing: "remove", path, source }),
        _ => Ok(()),
    }
}

async fn remove(data_dir: &Path, sandbox: &str) {
    let record = match record::load(data_dir, sandbox) {
        Ok(Some(record)) => record,
        Ok(None) => return,
        Err(error) => return tracing::warn!(%error, "skipping a connection"),
    };
    let path = record.netns.clone();
    if let Err(error) = operations::undo(data_dir, record, PLUGIN_TIMEOUT).await {
        tracing::warn!(sandbox, %error, "failed to disconnect a sandbox");
        if let Err(error) = leftovers::end(sandbox).await {
            tracing::warn!(sandbox, %error, "failed to end the plugins of a sandbox");
        }
        if let Err(error) = netns::unpin(&path) {
            tracing::warn!(sandbox, %error, "failed to unmount a network namespace");
        }
    }
}
