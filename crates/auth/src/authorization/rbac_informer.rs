//! RBAC informer: keeps the rule resolver, by which [`super::rbac`] decides, up to date with the store. Each call
//! applies the changes since the last one.

use super::rule_resolver::RuleResolver;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use store::{EventKind, InformerUpdate, LazyInformer, Object, Store};

const ROLE_RESOURCES: [&str; 2] = ["clusterroles", "roles"];
const RESOURCES: [&str; 4] = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];

/// The roles and bindings of the store. They are read at the first request of a user outside `system:masters`.
pub struct RbacInformer {
    resolver: RwLock<RuleResolver>,
    /// Write-locked while the default roles and bindings are reconciled.
    bootstrap_lock: Arc<tokio::sync::RwLock<()>>,
    informer: Mutex<LazyInformer<4>>,
}

impl RbacInformer {
    /// Creates an informer that has not read anything yet.
    #[must_use]
    pub fn new(store: Store) -> Self {
        let informer = Mutex::new(LazyInformer::new(store, RESOURCES));
        Self { resolver: RwLock::default(), bootstrap_lock: Arc::default(), informer }
    }

    /// Marks the default roles and bindings as incomplete until the returned guard is dropped.
    pub fn begin_bootstrap(&self) -> impl Send + 'static {
        Arc::clone(&self.bootstrap_lock).try_write_owned().ok()
    }

    /// Waits until the default roles and bindings are reconciled.
    pub async fn wait_until_bootstrapped(&self) {
        drop(self.bootstrap_lock.read().await);
    }

    /// Whether the default roles and bindings are reconciled.
    pub fn is_bootstrapped(&self) -> bool {
        self.bootstrap_lock.try_read().is_ok()
    }

    /// Calls a function with the current resolver.
    pub fn with_resolver<T>(&self, read: impl FnOnce(&RuleResolver) -> T) -> T {
        self.sync();
        read(&self.resolver.read())
    }

    fn sync(&self) {
        let mut informer = self.informer.lock();
        match informer.take_update() {
            InformerUpdate::Events(events) if events.is_empty() => {}
            InformerUpdate::Events(events) => {
                let mut resolver = self.resolver.write();
                events.iter().for_each(|event| apply(&mut resolver, &event.object, event.kind == EventKind::Put));
            }
            InformerUpdate::Relist(lists) => {
                let mut resolver = RuleResolver::default();
                lists.iter().flat_map(|list| &list.objects).for_each(|object| apply(&mut resolver, object, true));
                *self.resolver.write() = resolver;
            }
        }
    }
}

/// Inserts or removes an object. An object that cannot be decoded grants nothing.
fn apply(resolver: &mut RuleResolver, object: &Object, exists: bool) {
    let key = &object.key;
    let (namespace, name) = (&*key.namespace, &*key.name);
    if ROLE_RESOURCES.contains(&&*key.resource) {
        let role = exists.then(|| serde_json::from_slice(&object.data).ok()).flatten();
        resolver.set_role(namespace, name, role);
    } else {
        let binding = exists.then(|| serde_json::from_slice(&object.data).ok()).flatten();
        resolver.set_binding(namespace, name, binding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization::rbac;
    use request::{Attributes, Decision, ResourceAttributes, UserInfo};
    use store::{Key, MemoryEngine, Options, Precondition, Write};

    async fn put(store: &Store, resource: &str, name: &str, text: String) {
        let write = Write::put(Key::new(resource, "", name), Precondition::Any, text);
        store.write(write).await.unwrap();
    }

    fn is_allowed(informer: &RbacInformer) -> bool {
        let ann = UserInfo { name: "ann".into(), ..UserInfo::default() };
        let attributes = Attributes::for_resource(
            "get",
            ResourceAttributes { resource: "pods".into(), ..ResourceAttributes::default() },
        );
        informer.with_resolver(|resolver| matches!(rbac::authorize(resolver, &ann, &attributes), Decision::Allowed(_)))
    }

    const ROLE: &str = r#"{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}"#;
    const BINDING: &str = r#"{"roleRef":{"kind":"ClusterRole","name":"r"},"subjects":[{"kind":"User","name":"ann"}]}"#;

    #[tokio::test]
    async fn written_roles_and_bindings_apply_at_once() {
        let store = Store::open(MemoryEngine::new(), Options::default()).unwrap();
        let informer = RbacInformer::new(store.clone());
        assert!(!is_allowed(&informer));
        put(&store, "clusterroles", "r", ROLE.into()).await;
        put(&store, "clusterrolebindings", "b", BINDING.into()).await;
        assert!(is_allowed(&informer));
        put(&store, "clusterroles", "r", "{}".into()).await;
        assert!(!is_allowed(&informer));
        put(&store, "clusterroles", "r", ROLE.into()).await;
        assert!(is_allowed(&informer));
        let delete = Write::delete(Key::new("clusterrolebindings", "", "b"), Precondition::Any, "");
        store.write(delete).await.unwrap();
        assert!(!is_allowed(&informer));
    }

    #[tokio::test]
    async fn rare_requests_after_many_events_relist() {
        let options = Options { watch_cache_events: 4, ..Options::default() };
        let store = Store::open(MemoryEngine::new(), options).unwrap();
        let informer = RbacInformer::new(store.clone());
        put(&store, "clusterroles", "r", ROLE.into()).await;
        assert!(!is_allowed(&informer));
        put(&store, "clusterrolebindings", "b", BINDING.into()).await;
        for i in 0..10 {
            put(&store, "clusterrolebindings", &format!("other{i}"), "{}".into()).await;
        }
        assert!(is_allowed(&informer));
    }
}
