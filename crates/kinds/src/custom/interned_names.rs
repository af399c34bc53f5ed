//! Interned names of custom kinds: [`KindInfo`](crate::KindInfo) has `'static` names.
//!
//! Each name is interned once, even if definitions are deleted and created again. Memory is bounded: a definition whose names
//! exceed the limit is not served, and its conditions report it.

use parking_lot::Mutex;
use std::collections::HashSet;

/// Maximum size of all names in bytes, enough for about 50,000 definitions.
const MAX_BYTES: usize = 4 << 20;

static INTERNER: Mutex<Option<Interner>> = Mutex::new(None);

#[derive(Default)]
struct Interner {
    names: HashSet<&'static str>,
    lists: HashSet<&'static [&'static str]>,
    bytes: usize,
}

impl Interner {
    fn name(&mut self, name: &str) -> Option<&'static str> {
        if let Some(interned) = self.names.get(name) {
            return Some(interned);
        }
        self.reserve(name.len() + size_of::<&str>())?;
        let interned: &'static str = Box::leak(name.into());
        self.names.insert(interned);
        Some(interned)
    }

    fn list(&mut self, names: &[&str]) -> Option<&'static [&'static str]> {
        let names: Vec<&'static str> = names.iter().map(|name| self.name(name)).collect::<Option<_>>()?;
        if let Some(interned) = self.lists.get(names.as_slice()) {
            return Some(interned);
        }
        self.reserve((names.len() + 1) * size_of::<&str>())?;
        let interned: &'static [&'static str] = Box::leak(names.into());
        self.lists.insert(interned);
        Some(interned)
    }

    fn reserve(&mut self, bytes: usize) -> Option<()> {
        let all = self.bytes + bytes;
        (all <= MAX_BYTES).then(|| self.bytes = all)
    }
}

/// Interns a name; `None` if the limit is exceeded.
pub(crate) fn intern(name: &str) -> Option<&'static str> {
    INTERNER.lock().get_or_insert_default().name(name)
}

/// Interns a list of names; `None` if the limit is exceeded.
pub(crate) fn intern_list(names: &[&str]) -> Option<&'static [&'static str]> {
    INTERNER.lock().get_or_insert_default().list(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_interned_once_up_to_limit() {
        let mut interned = Interner::default();
        let (first, again) = (interned.name("crontabs").unwrap(), interned.name("crontabs").unwrap());
        assert!(std::ptr::eq(first, again));
        let lists = (interned.list(&["a", "b"]).unwrap(), interned.list(&["a", "b"]).unwrap());
        assert!(std::ptr::eq(lists.0, lists.1));
        interned.bytes = MAX_BYTES;
        assert_eq!((interned.name("another"), interned.name("crontabs")), (None, Some("crontabs")));
    }
}
