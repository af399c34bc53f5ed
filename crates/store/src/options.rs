//! Limits of a store.

/// Limits of a store. The defaults suit a small machine; tests inject smaller ones.
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum number of events in the watch cache of a resource.
    pub watch_cache_events: usize,
    /// Maximum cost of all watch caches together, in bytes; the costliest is shrunk first. The newest event of each
    /// resource is always kept.
    pub watch_cache_bytes: usize,
    /// Size of the write queue; further callers of `write` wait.
    pub queue_writes: usize,
    /// Maximum number of writes in a batch.
    pub batch_writes: usize,
    /// Bytes of data after which a batch takes no further write.
    pub batch_bytes: usize,
    /// The largest data of one object, in bytes.
    pub object_bytes: usize,
    /// Maximum total size of all objects in bytes, with their keys and their overhead in memory.
    pub quota_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            watch_cache_events: 16_384,
            watch_cache_bytes: 32 << 20,
            queue_writes: 1024,
            batch_writes: 256,
            batch_bytes: 4 << 20,
            object_bytes: 16 << 20,
            quota_bytes: 2 << 30,
        }
    }
}

impl Options {
    /// Raises limits to at least 1.
    pub(crate) fn clamp_to_minimum(mut self) -> Self {
        for limit in
            [&mut self.watch_cache_events, &mut self.queue_writes, &mut self.batch_writes, &mut self.batch_bytes]
        {
            *limit = (*limit).max(1);
        }
        self
    }
}
