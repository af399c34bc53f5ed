//! Engine that stores transformed data, for example encrypted, in another engine.

use super::{Batch, BatchChange, CommitError, Engine, Head};
use crate::{Key, Object, OpenError, Record, Transformer, UnreadableObject};
use std::{collections::HashSet, io, path::Path, sync::Arc};

/// Transforms data on its way to another engine and back.
///
/// The other engine is compacted when a store with an active transformer is opened, and when the last object in an
/// outdated form was rewritten or deleted, so that no outdated form is left on disk.
pub struct TransformedEngine<E> {
    inner: E,
    transformer: Arc<dyn Transformer>,
    /// Objects in an outdated form.
    stale: HashSet<Key>,
}

impl<E: Engine> TransformedEngine<E> {
    /// Creates an engine that stores transformed data in another one.
    pub fn new(inner: E, transformer: Arc<dyn Transformer>) -> Self {
        Self { inner, transformer, stale: HashSet::new() }
    }

    fn to_storage(&self, change: &BatchChange) -> Result<BatchChange, CommitError> {
        let BatchChange::Put(object) = change else { return Ok(change.clone()) };
        let stored = self.transformer.transform_to_storage(&object.key, &object.data);
        let stored = stored.map_err(|error| CommitError::Write(io::Error::other(error)))?;
        Ok(BatchChange::Put(stored.map_or_else(|| object.clone(), |data| Object::from(object.with_data(data)))))
    }

    /// Records written objects, and compacts after the last outdated one.
    fn note_written(&mut self, batch: &Batch) {
        if self.stale.is_empty() {
            return;
        }
        for change in &batch.changes {
            self.stale.remove(match change {
                BatchChange::Put(object) => &object.key,
                BatchChange::Delete(key) => key,
            });
        }
        if self.stale.is_empty() {
            self.remove_outdated();
        }
    }

    fn remove_outdated(&mut self) {
        match self.inner.compact() {
            Ok(()) => tracing::info!(stale = self.stale.len(), "compacted the store"),
            // Outdated data stays readable by root only; the next start compacts again.
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to compact the store: replaced versions of objects may remain on the disk until the next start",
            ),
        }
    }
}

impl<E: Engine> Engine for TransformedEngine<E> {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Head, OpenError> {
        let Self { inner, transformer, stale } = self;
        let mut unreadable = Vec::new();
        stale.clear();
        let head = inner.load(&mut |record| match transformer.transform_from_storage(&record.key, &record.data) {
            Ok(form) => {
                let is_stale = form.is_stale;
                if is_stale {
                    stale.insert(record.key.clone());
                }
                let record = form.data.map_or_else(|| record.clone(), |data| record.with_data(data));
                each(Record { is_stale, ..record });
            }
            Err(error) => unreadable.push(UnreadableObject { key: record.key, error }),
        })?;
        if !unreadable.is_empty() {
            unreadable.sort_by(|left, right| (&left.key.resource, &left.key).cmp(&(&right.key.resource, &right.key)));
            return Err(OpenError::Unreadable { path: self.path().to_owned(), objects: unreadable });
        }
        if !self.stale.is_empty() {
            tracing::info!(
                objects = self.stale.len(),
                "objects are stored in an outdated form until they are rewritten"
            );
        }
        if self.transformer.is_active() {
            self.remove_outdated();
        }
        Ok(head)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        if self.transformer.is_active() {
            let changes = batch.changes.iter().map(|change| self.to_storage(change)).collect::<Result<_, _>>()?;
            self.inner.commit(&Batch { head: batch.head, changes })?;
        } else {
            self.inner.commit(batch)?;
        }
        self.note_written(batch);
        Ok(())
    }

    fn compact(&mut self) -> Result<(), CommitError> {
        self.inner.compact()
    }
}
