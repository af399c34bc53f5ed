//! Recovery: checks that the journals contain all acknowledged batches, and cuts the rest.

use super::{
    directory::{Directory, cut},
    is_full,
    journal::{self, Journal},
};
use crate::OpenError;
use std::path::{Path, PathBuf};

/// Unacknowledged end of the newest journal.
struct TornTail {
    journal: PathBuf,
    from: u64,
    to: u64,
    /// Whether the complete batch before it is the last one that is known to be acknowledged.
    certain: bool,
}

/// Checks the journals on opening, and cuts a torn batch after copying it.
pub(super) fn recover(directory: &Directory, acknowledged: u64) -> Result<(), OpenError> {
    let Some(torn) = torn_tail(&directory.database(), u64::MAX, acknowledged)? else {
        return Ok(());
    };
    let copy = match directory.keep_torn(&torn.journal, torn.from, torn.to) {
        // A full disk must not prevent opening: the copy is only a precaution.
        Err(error) if is_full(&error) && torn.certain => None,
        Err(error) => return Err(OpenError::io(&torn.journal)(error)),
        Ok(copy) => Some(copy),
    };
    cut(&torn.journal, torn.from).map_err(OpenError::io(&torn.journal))?;
    tracing::warn!(
        journal = %torn.journal.display(), from = torn.from, bytes = torn.to - torn.from, ?copy,
        "dropped a batch that was being written, and was not acknowledged, when the process stopped",
    );
    Ok(())
}

/// Cuts everything after the last acknowledged batch; after a failed commit, with the database closed.
pub(super) fn cut_unacknowledged(directory: &Directory, acknowledged: u64) -> Result<(), OpenError> {
    match torn_tail(&directory.database(), acknowledged, acknowledged)? {
        Some(torn) => cut(&torn.journal, torn.from).map_err(OpenError::io(torn.journal)),
        None => Ok(()),
    }
}

/// Reads the journals up to the first batch after `until`; returns the following non-zero bytes.
fn torn_tail(database: &Path, until: u64, acknowledged: u64) -> Result<Option<TornTail>, OpenError> {
    let journals = journal::scan(database, until).map_err(OpenError::io(database))?;
    let mut last = None;
    let mut torn: Option<(&Journal, u64)> = None;
    for journal in &journals {
        if let Some((torn, _)) = torn
            && (journal.batches.is_some() || journal.tail.is_some())
        {
            return Err(damaged(torn, "a batch that cannot be read is followed by another journal"));
        }
        if let (Some(last), Some((first, _))) = (last, journal.batches)
            && first != last + 1
        {
            return Err(damaged(journal, "a batch before this journal is missing"));
        }
        last = journal.batches.map(|(_, last)| last).or(last);
        if let Some(tail) = &journal.tail {
            if let Some(damage) = tail.damage {
                return Err(damaged(journal, damage));
            }
            torn = Some((journal, tail.end));
        }
    }
    // Without batches in the journals, all are in tables, whose head is checked after opening.
    if let Some(last) = last.filter(|last| *last < acknowledged) {
        let detail = format!("batch {acknowledged} was acknowledged, and the last whole one is {last}");
        return Err(OpenError::damaged(database, detail));
    }
    Ok(torn.map(|(journal, to)| TornTail {
        journal: journal.path.clone(),
        from: journal.end,
        to,
        certain: last == Some(acknowledged),
    }))
}

fn damaged(journal: &Journal, detail: &str) -> OpenError {
    OpenError::damaged(&journal.path, format!("from byte {}: {detail}", journal.end))
}
