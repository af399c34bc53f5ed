//! The policy as the store has it. Nobody waits for it: whoever asks brings it up to date.

use super::policy::Policy;
use crate::lazy_informer::{InformerUpdate, LazyInformer};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use store::{EventKind, Object, Store};

const ROLES: [&str; 2] = ["clusterroles", "roles"];
const RESOURCES: [&str; 4] = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];

/// Follows the roles and bindings of a store. What only masters use needs no policy, so that nothing is read until
/// somebody else asks.
pub(crate) struct Follower {
    policy: RwLock<Policy>,
    /// Held by whoever makes the first roles and bindings.
    settling: Arc<tokio::sync::RwLock<()>>,
    followed: Mutex<LazyInformer<4>>,
}

impl Follower {
    pub(crate) fn new(store: Store) -> Self {
        let followed = Mutex::new(LazyInformer::new(store, RESOURCES));
        Self { policy: RwLock::default(), settling: Arc::default(), followed }
    }

    /// From now on there are roles and bindings to come, until this is dropped.
    pub(crate) fn settle(&self) -> impl Send + 'static {
        Arc::clone(&self.settling).try_write_owned().ok()
    }

    /// Waits until the roles and bindings are there that are to come.
    pub(crate) async fn settled(&self) {
        drop(self.settling.read().await);
    }

    /// Whether none are to come.
    pub(crate) fn is_settled(&self) -> bool {
        self.settling.try_read().is_ok()
    }

    /// Asks the policy as it is now.
    pub(crate) fn ask<T>(&self, question: impl FnOnce(&Policy) -> T) -> T {
        self.catch_up();
        question(&self.policy.read())
    }

    fn catch_up(&self) {
        let mut followed = self.followed.lock();
        match followed.take_update() {
            InformerUpdate::Events(events) if events.is_empty() => {}
            InformerUpdate::Events(events) => {
                let mut policy = self.policy.write();
                events.iter().for_each(|event| set(&mut policy, &event.object, event.kind == EventKind::Put));
            }
            InformerUpdate::Relist(lists) => {
                let mut policy = Policy::default();
                lists.iter().flat_map(|list| &list.objects).for_each(|object| set(&mut policy, object, true));
                *self.policy.write() = policy;
            }
        }
    }
}

/// An object that cannot be read grants nothing.
fn set(policy: &mut Policy, object: &Object, there: bool) {
    let key = &object.key;
    let (namespace, name) = (&*key.namespace, &*key.name);
    if ROLES.contains(&&*key.resource) {
        let role = there.then(|| serde_json::from_slice(&object.data).ok()).flatten();
        policy.set_role(namespace, name, role);
    } else {
        let binding = there.then(|| serde_json::from_slice(&object.data).ok()).flatten();
        policy.set_binding(namespace, name, binding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        UserInfo,
        authorization::attributes::{Attributes, ResourceAbout},
        authorization::policy::Decision,
    };
    use store::{Key, MemoryEngine, Options, Precondition, Write};

    async fn put(store: &Store, resource: &str, name: &str, text: String) {
        let write = Write::put(Key::new(resource, "", name), Precondition::Any, text);
        store.write(write).await.unwrap();
    }

    fn may(follower: &Follower) -> bool {
        let ann = UserInfo { name: "ann".into(), ..UserInfo::default() };
        let wanted = Attributes::to("get", ResourceAbout { resource: "pods".into(), ..ResourceAbout::default() });
        follower.ask(|policy| matches!(policy.decide(&ann, &wanted), Decision::Allowed(_)))
    }

    const ROLE: &str = r#"{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}"#;
    const BINDING: &str = r#"{"roleRef":{"kind":"ClusterRole","name":"r"},"subjects":[{"kind":"User","name":"ann"}]}"#;

    #[tokio::test]
    async fn what_was_written_counts_for_the_next_question() {
        let store = Store::open(MemoryEngine::new(), Options::default()).unwrap();
        let follower = Follower::new(store.clone());
        assert!(!may(&follower));
        put(&store, "clusterroles", "r", ROLE.into()).await;
        put(&store, "clusterrolebindings", "b", BINDING.into()).await;
        assert!(may(&follower));
        put(&store, "clusterroles", "r", "{}".into()).await;
        assert!(!may(&follower));
        put(&store, "clusterroles", "r", ROLE.into()).await;
        assert!(may(&follower));
        let delete = Write::delete(Key::new("clusterrolebindings", "", "b"), Precondition::Any, "");
        store.write(delete).await.unwrap();
        assert!(!may(&follower));
    }

    #[tokio::test]
    async fn who_asks_rarely_reads_everything_again() {
        let options = Options { watch_cache_events: 4, ..Options::default() };
        let store = Store::open(MemoryEngine::new(), options).unwrap();
        let follower = Follower::new(store.clone());
        put(&store, "clusterroles", "r", ROLE.into()).await;
        assert!(!may(&follower));
        put(&store, "clusterrolebindings", "b", BINDING.into()).await;
        for i in 0..10 {
            put(&store, "clusterrolebindings", &format!("other{i}"), "{}".into()).await;
        }
        assert!(may(&follower));
    }
}
