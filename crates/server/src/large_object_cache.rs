//! Large objects that were written lately, as writes take them: whoever applies the same again and again would read most
//! of it from text each time, to find it as it was.

use crate::{managed_object::ManagedObject, kinds::Kind, status::ApiError, webhook::Webhooks};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use store::{Key, Object, Revision};

/// What is kept together, in bytes of JSON. As trees it is some five times as much.
const MAX: usize = 2 << 20;
/// What is smaller is read in no time, in bytes of JSON.
const WORTH_KEEPING: usize = 4 << 10;

/// Objects, each in its newest version that was seen here.
#[derive(Default)]
pub(crate) struct Recent(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    objects: HashMap<Key, One>,
    size: usize,
    /// How often something was looked for.
    clock: u64,
}

struct One {
    revision: Revision,
    live: Arc<ManagedObject>,
    size: usize,
    used: u64,
}

/// Whether the kind's objects have one form, in which they are stored: those are the same for all who write them.
fn has_one_form(kind: &dyn Kind) -> bool {
    !kind.is_custom() && !kind.info().converted
}

impl Recent {
    /// A stored object in this kind's form.
    pub(crate) async fn live(
        &self,
        webhooks: &Webhooks,
        kind: &dyn Kind,
        stored: &Object,
    ) -> Result<Arc<ManagedObject>, ApiError> {
        let is_worth_it = has_one_form(kind) && stored.data.len() >= WORTH_KEEPING;
        if let Some(live) = is_worth_it.then(|| self.0.lock().find(&stored.key, stored.revision)).flatten() {
            return Ok(live);
        }
        let live = Arc::new(ManagedObject::decode(webhooks, kind, stored).await?);
        if is_worth_it {
            self.0.lock().keep(stored, Arc::clone(&live));
        }
        Ok(live)
    }

    /// This is what was written, but for its version.
    pub(crate) fn wrote(&self, kind: &dyn Kind, stored: &Object, live: Arc<ManagedObject>) {
        let is_worth_it = has_one_form(kind) && stored.data.len() >= WORTH_KEEPING;
        // The writer is done with it, and nobody else has it.
        if let Some(mut live) = Arc::into_inner(live).filter(|_| is_worth_it) {
            live.object["metadata"]["resourceVersion"] = stored.revision.to_string().into();
            self.0.lock().keep(stored, Arc::new(live));
        }
    }
}

impl Kept {
    fn find(&mut self, key: &Key, revision: Revision) -> Option<Arc<ManagedObject>> {
        self.clock += 1;
        let one = self.objects.get_mut(key).filter(|one| one.revision == revision)?;
        one.used = self.clock;
        Some(Arc::clone(&one.live))
    }

    fn keep(&mut self, stored: &Object, live: Arc<ManagedObject>) {
        self.clock += 1;
        let one = One { revision: stored.revision, live, size: stored.data.len(), used: self.clock };
        // Whoever was slow does not take back what came after.
        if self.objects.get(&stored.key).is_some_and(|known| known.revision > one.revision) {
            return;
        }
        self.size += one.size;
        self.size -= self.objects.insert(stored.key.clone(), one).map_or(0, |before| before.size);
        while self.size > MAX
            && let Some(oldest) = self.objects.iter().min_by_key(|(_, one)| one.used).map(|(key, _)| key.clone())
        {
            self.size -= self.objects.remove(&oldest).map_or(0, |one| one.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use store::Record;

    fn stored(name: &str, revision: Revision, size: usize) -> Object {
        let key = Key::new("pods", "default", name);
        Object::from(Record::new(key, revision, 1, &vec![b' '; size].into()))
    }

    fn live(object: &Object) -> Arc<ManagedObject> {
        let object = json!({"metadata": {"name": object.key.name.as_ref(), "resourceVersion": object.revision}});
        Arc::new(ManagedObject { object, ..ManagedObject::default() })
    }

    #[test]
    fn an_object_is_found_in_its_newest_version_only() {
        let (mut kept, old, new) = (Kept::default(), stored("a", 2, WORTH_KEEPING), stored("a", 3, WORTH_KEEPING));
        for object in [&old, &new, &old] {
            kept.keep(object, live(object));
        }
        assert!(kept.find(&old.key, 2).is_none());
        assert_eq!(kept.find(&new.key, 3).unwrap().object, live(&new).object);
        assert!(kept.find(&stored("b", 3, 0).key, 3).is_none());
        assert_eq!(kept.size, WORTH_KEEPING);
    }

    #[test]
    fn what_was_not_used_for_longest_goes_when_there_is_too_much() {
        let (mut kept, third) = (Kept::default(), MAX / 3);
        let all: Vec<Object> = ["a", "b", "c"].map(|name| stored(name, 2, third)).into();
        all.iter().for_each(|object| kept.keep(object, live(object)));
        assert!(kept.find(&all[0].key, 2).is_some());
        let another = stored("d", 3, third);
        kept.keep(&another, live(&another));
        let found: Vec<bool> = all.iter().chain([&another]).map(|o| kept.find(&o.key, o.revision).is_some()).collect();
        assert_eq!((found, kept.size), (vec![true, false, true, true], 3 * third));
        // What is too large by itself pushes out all else, and is not kept either.
        let huge = stored("e", 4, MAX + 1);
        kept.keep(&huge, live(&huge));
        assert!(kept.objects.is_empty() && kept.size == 0);
    }
}
