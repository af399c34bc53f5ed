//! Limits of a store.

/// Limits of a store. The defaults suit a small machine; tests inject smaller ones.
#[derive(Clone, Debug)]
pub struct Options {
    /// Recent events kept for each resource.
    pub window_events: usize,
    /// Bytes that the recent events of all resources may cost together; the resource with the costliest window
    /// gives first. The newest event of each resource always stays.
    pub window_bytes: usize,
    /// Writes that may wait for the writer thread; further callers of `write` wait for a place.
    pub queue_writes: usize,
    /// Writes in one batch.
    pub batch_writes: usize,
    /// Bytes of data after which a batch takes no further write.
    pub batch_bytes: usize,
    /// The largest data of one object, in bytes.
    pub object_bytes: usize,
    /// Bytes that all objects may take together, with their keys and what they cost in memory beside.
    pub quota_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            window_events: 16_384,
            window_bytes: 32 << 20,
            queue_writes: 1024,
            batch_writes: 256,
            batch_bytes: 4 << 20,
            object_bytes: 16 << 20,
            quota_bytes: 2 << 30,
        }
    }
}

impl Options {
    /// Nothing works with a queue, a batch or a window of nothing.
    pub(crate) fn at_least_one(mut self) -> Self {
        for limit in [&mut self.window_events, &mut self.queue_writes, &mut self.batch_writes, &mut self.batch_bytes] {
            *limit = (*limit).max(1);
        }
        self
    }
}
