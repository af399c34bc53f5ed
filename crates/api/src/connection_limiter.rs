//! Limits on connections (or outstanding queries), in total and per source address.

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// Limits of a [`ConnectionTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum number of entries.
    pub total: usize,
    /// Maximum number of entries of all remote sources; the rest of `total` is reserved for [`Source::Local`].
    pub remote: usize,
    /// Maximum number of entries of one remote source.
    pub per_source: usize,
}

/// Source of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// This machine; all components and clients on it share one address.
    Local,
    /// Another address. IPv6 addresses are grouped by /64 network, because one host owns a whole network.
    Remote(IpAddr),
}

impl Source {
    /// Returns the source of a peer address; `local` is the local address that the peer connected to.
    #[must_use]
    pub fn of(peer: IpAddr, local: Option<IpAddr>) -> Self {
        let peer = peer.to_canonical();
        match peer {
            _ if peer.is_loopback() || local.is_some_and(|local| local.to_canonical() == peer) => Self::Local,
            IpAddr::V4(_) => Self::Remote(peer),
            IpAddr::V6(address) => Self::Remote(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()),
        }
    }
}

/// Identifies an entry of a [`ConnectionTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    source: Source,
    id: u64,
}

/// The limit that rejected an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitReached {
    /// [`ConnectionLimits::per_source`].
    Source,
    /// [`ConnectionLimits::total`] or [`ConnectionLimits::remote`].
    All,
}

/// Entries by source, with limits.
#[derive(Debug)]
pub struct ConnectionTable<T> {
    bounds: ConnectionLimits,
    by_source: HashMap<Source, BTreeMap<u64, T>>,
    total: usize,
    next_id: u64,
}

impl<T> ConnectionTable<T> {
    /// Creates an empty table.
    #[must_use]
    pub fn new(bounds: ConnectionLimits) -> Self {
        Self { bounds, by_source: HashMap::new(), total: 0, next_id: 0 }
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.total
    }

    /// Returns whether the table has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// When a limit is reached.
    pub fn insert(&mut self, source: Source, entry: T) -> Result<Key, LimitReached> {
        self.check(source)?;
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        self.by_source.entry(source).or_default().insert(id, entry);
        self.total = self.total.saturating_add(1);
        Ok(Key { source, id })
    }

    /// Checks that an entry of this source can be added.
    fn check(&self, source: Source) -> Result<(), LimitReached> {
        let count = |source: &Source| self.by_source.get(source).map_or(0, BTreeMap::len);
        let remote = self.total.saturating_sub(count(&Source::Local));
        if source != Source::Local && count(&source) >= self.bounds.per_source {
            return Err(LimitReached::Source);
        }
        if self.total >= self.bounds.total || (source != Source::Local && remote >= self.bounds.remote) {
            return Err(LimitReached::All);
        }
        Ok(())
    }

    /// Removes an entry; `None` if it was removed already.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let entries = self.by_source.get_mut(&key.source)?;
        let entry = entries.remove(&key.id)?;
        if entries.is_empty() {
            self.by_source.remove(&key.source);
        }
        self.total = self.total.saturating_sub(1);
        Some(entry)
    }

    /// Evicts the lowest-ranked entry of the source with the most entries, to admit an entry of `newcomer`. Entries without
    /// a rank are not evicted. Only sources with more entries than the newcomer lose one, so that a source with few
    /// connections is never evicted in favor of one with many.
    pub fn evict<R: Ord>(&mut self, newcomer: Source, rank: impl Fn(&T) -> Option<R>) -> Option<T> {
        let connections = self.by_source.get(&newcomer).map_or(0, BTreeMap::len);
        // Remote sources never evict local connections.
        let is_candidate = |source: Source| source != Source::Local || newcomer == Source::Local;
        let mut sources: Vec<(usize, Source)> = self
            .by_source
            .iter()
            .filter(|(source, entries)| is_candidate(**source) && entries.len() > connections)
            .map(|(source, entries)| (entries.len(), *source))
            .collect();
        sources.sort_unstable_by_key(|(count, _)| std::cmp::Reverse(*count));
        let id = sources.into_iter().find_map(|(_, source)| {
            let ranked = self.by_source.get(&source)?.iter().filter_map(|(id, entry)| Some((rank(entry)?, *id)));
            Some(Key { source, id: ranked.min()?.1 })
        })?;
        self.remove(id)
    }
}

/// A [`ConnectionTable`] shared between tasks. Each entry lives as long as its [`ConnectionPermit`].
#[derive(Debug)]
pub struct ConnectionLimiter<T>(Arc<Mutex<ConnectionTable<T>>>);

/// Guard of an entry, which is removed when the guard is dropped.
#[derive(Debug)]
pub struct ConnectionPermit<T> {
    slots: ConnectionLimiter<T>,
    key: Key,
}

impl<T> ConnectionLimiter<T> {
    /// Creates an empty shared table.
    #[must_use]
    pub fn new(bounds: ConnectionLimits) -> Self {
        Self(Arc::new(Mutex::new(ConnectionTable::new(bounds))))
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Adds an entry. At the limit for all sources, an entry is evicted ([`ConnectionTable::evict`]); the caller closes the
    /// evicted connection.
    ///
    /// # Errors
    /// When a limit is reached.
    pub fn admit<R: Ord>(
        &self,
        source: Source,
        entry: T,
        rank: impl Fn(&T) -> Option<R>,
    ) -> Result<(ConnectionPermit<T>, Option<T>), LimitReached> {
        let mut table = self.lock();
        let evicted = match table.check(source) {
            Ok(()) => None,
            Err(LimitReached::All) => Some(table.evict(source, rank).ok_or(LimitReached::All)?),
            Err(full) => return Err(full),
        };
        let key = table.insert(source, entry)?;
        Ok((ConnectionPermit { slots: Self(Arc::clone(&self.0)), key }, evicted))
    }

    /// Evicts the lowest-ranked entry of the remote source with the most entries.
    pub fn evict_any<R: Ord>(&self, rank: impl Fn(&T) -> Option<R>) -> Option<T> {
        // No peer has this address.
        self.lock().evict(Source::Remote(Ipv4Addr::UNSPECIFIED.into()), rank)
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable<T>> {
        self.0.lock()
    }
}

impl<T> Drop for ConnectionPermit<T> {
    fn drop(&mut self) {
        let removed = self.slots.lock().remove(self.key);
        // The entry is dropped after the lock is released, so that its destructor may use the table.
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: ConnectionLimits = ConnectionLimits { total: 6, remote: 4, per_source: 3 };

    fn source(last: u8) -> Source {
        Source::of(IpAddr::from([10, 0, 0, last]), None)
    }

    #[test]
    fn source_is_local_for_loopback_and_own_address_only() {
        let source = |peer: &str, local: &str| Source::of(peer.parse().unwrap(), Some(local.parse().unwrap()));
        assert_eq!(source("127.0.0.1", "127.0.0.1"), Source::Local);
        assert_eq!(source("::ffff:127.0.0.1", "::1"), Source::Local);
        assert_eq!(source("10.0.0.1", "10.0.0.1"), Source::Local);
        assert_eq!(source("10.0.0.2", "10.0.0.1"), Source::Remote("10.0.0.2".parse().unwrap()));
        assert_eq!(source("::ffff:10.0.0.2", "10.0.0.1"), Source::Remote("10.0.0.2".parse().unwrap()));
        assert_eq!(source("fd00::1:2", "10.0.0.1"), source("fd00::ffff:0:9", "10.0.0.1"));
    }

    #[test]
    fn source_at_its_limit_does_not_affect_others() {
        let mut table = ConnectionTable::new(BOUNDS);
        let keys: Vec<Key> = (0..3).map(|_| table.insert(source(1), ()).unwrap()).collect();
        assert_eq!(table.insert(source(1), ()), Err(LimitReached::Source));
        assert!(table.insert(source(2), ()).is_ok());
        assert_eq!(table.insert(source(3), ()), Err(LimitReached::All));
        // The rest is reserved for this machine.
        assert!(table.insert(Source::Local, ()).is_ok() && table.insert(Source::Local, ()).is_ok());
        assert_eq!(table.insert(Source::Local, ()), Err(LimitReached::All));
        assert_eq!((table.remove(keys[0]), table.remove(keys[0])), (Some(()), None));
        assert!(table.insert(source(3), ()).is_ok());
        assert_eq!(table.len(), 6);
    }

    #[test]
    fn eviction_takes_the_lowest_rank_of_the_largest_source() {
        let mut table = ConnectionTable::new(BOUNDS);
        for rank in [None, Some(7), Some(5)] {
            table.insert(source(1), rank).unwrap();
        }
        table.insert(source(2), Some(1)).unwrap();
        assert_eq!(table.evict(source(3), |rank| *rank), Some(Some(5)));
        assert_eq!(table.evict(source(3), |rank| *rank), Some(Some(7)));
        // Each remaining source has one entry, as many as the newcomer would have.
        table.insert(source(3), Some(2)).unwrap();
        assert_eq!(table.evict(source(3), |rank| *rank), None);
    }

    #[test]
    fn eviction_for_a_remote_source_spares_this_machine() {
        let mut table = ConnectionTable::new(BOUNDS);
        for _ in 0..3 {
            table.insert(Source::Local, ()).unwrap();
        }
        assert_eq!(table.evict(source(1), |()| Some(0)), None);
        assert_eq!(table.evict(Source::Local, |()| Some(0)), None);
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn newcomer_evicts_an_entry_of_the_largest_source() {
        let slots = ConnectionLimiter::new(BOUNDS);
        let admit = |source, name| slots.admit(source, name, |_| Some(())).map_err(|full| (full, name));
        let held: Vec<_> = ["a", "b", "c"].map(|name| admit(source(1), name).unwrap().0).into();
        let (second, evicted) = admit(source(2), "d").unwrap();
        assert_eq!(evicted, None);
        let (_third, evicted) = admit(source(3), "e").unwrap();
        assert_eq!((evicted, slots.count()), (Some("a"), 4));
        // Dropping the guard of the evicted entry frees no second slot.
        drop(held);
        assert_eq!(slots.count(), 2);
        drop(second);
        assert_eq!(slots.count(), 1);
    }
}
