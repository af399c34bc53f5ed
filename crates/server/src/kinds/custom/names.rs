//! Names of kinds, kept for ever: [`KindInfo`](crate::kinds::KindInfo) has names that last as long as the process.
//!
//! Every name is kept once, however often a definition comes and goes. What can be kept is bounded: a definition whose
//! names do not fit any more is not served, and says so.

use parking_lot::Mutex;
use std::collections::HashSet;

/// All names together, in bytes: those of 50,000 definitions or so.
const MOST: usize = 4 << 20;

static KEPT: Mutex<Option<Kept>> = Mutex::new(None);

#[derive(Default)]
struct Kept {
    names: HashSet<&'static str>,
    lists: HashSet<&'static [&'static str]>,
    bytes: usize,
}

impl Kept {
    fn name(&mut self, name: &str) -> Option<&'static str> {
        if let Some(kept) = self.names.get(name) {
            return Some(kept);
        }
        self.reserve(name.len() + size_of::<&str>())?;
        let kept: &'static str = Box::leak(name.into());
        self.names.insert(kept);
        Some(kept)
    }

    fn list(&mut self, names: &[&str]) -> Option<&'static [&'static str]> {
        let names: Vec<&'static str> = names.iter().map(|name| self.name(name)).collect::<Option<_>>()?;
        if let Some(kept) = self.lists.get(names.as_slice()) {
            return Some(kept);
        }
        self.reserve((names.len() + 1) * size_of::<&str>())?;
        let kept: &'static [&'static str] = Box::leak(names.into());
        self.lists.insert(kept);
        Some(kept)
    }

    fn reserve(&mut self, bytes: usize) -> Option<()> {
        let all = self.bytes + bytes;
        (all <= MOST).then(|| self.bytes = all)
    }
}

/// The name, for as long as the process lives; `None` when there is no more room.
pub(crate) fn keep(name: &str) -> Option<&'static str> {
    KEPT.lock().get_or_insert_default().name(name)
}

/// The same for names that belong together.
pub(crate) fn keep_all(names: &[&str]) -> Option<&'static [&'static str]> {
    KEPT.lock().get_or_insert_default().list(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once_and_there_is_a_bound() {
        let mut kept = Kept::default();
        let (first, again) = (kept.name("crontabs").unwrap(), kept.name("crontabs").unwrap());
        assert!(std::ptr::eq(first, again));
        let lists = (kept.list(&["a", "b"]).unwrap(), kept.list(&["a", "b"]).unwrap());
        assert!(std::ptr::eq(lists.0, lists.1));
        kept.bytes = MOST;
        assert_eq!((kept.name("another"), kept.name("crontabs")), (None, Some("crontabs")));
    }
}
