//! Who owns whom.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::discovery::ApiResource;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Its dependents go first.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Its dependents stay, and own themselves.
pub(super) const ORPHAN: &str = "orphan";

/// What is known of an object.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) resource: Arc<ApiResource>,
    /// `None` of what has no namespace.
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) deleting: bool,
    finalizers: Vec<String>,
}

impl Node {
    pub(super) fn new(resource: &Arc<ApiResource>, meta: &ObjectMeta) -> Self {
        Self {
            resource: Arc::clone(resource),
            namespace: meta.namespace.clone(),
            name: meta.name.clone().unwrap_or_default(),
            owners: meta.owner_references.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
        }
    }

    pub(super) fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|f| f == finalizer)
    }

    /// Whether it goes when its dependents have gone.
    pub(super) fn waits_for_dependents(&self) -> bool {
        self.deleting && self.has(FOREGROUND)
    }

    /// Its reference to this owner holds the owner's deletion up.
    pub(super) fn blocks(&self, owner: &str) -> bool {
        self.owners.iter().any(|o| o.uid == owner && o.block_owner_deletion == Some(true))
    }
}

/// All objects by their uid, and the way back from owners to dependents.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<String, Node>,
    dependents: HashMap<String, BTreeSet<String>>,
}

impl Graph {
    pub(super) fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// All objects for which there may be something to do.
    pub(super) fn all(&self) -> Vec<String> {
        let concerned = self.nodes.iter().filter(|(_, node)| node.deleting || !node.owners.is_empty());
        concerned.map(|(uid, _)| uid.clone()).collect()
    }

    /// Those who name this owner, whether that is known or not.
    pub(super) fn dependents<'a>(&'a self, owner: &str) -> impl Iterator<Item = (&'a String, &'a Node)> + use<'a> {
        let all = self.dependents.get(owner).into_iter().flatten();
        all.filter_map(|uid| Some((uid, self.nodes.get(uid)?)))
    }

    /// An object is so now; gives whom that concerns.
    pub(super) fn set(&mut self, uid: String, node: Node) -> Vec<String> {
        let mut concerned = self.unlink(&uid);
        for owner in &node.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
        }
        if node.waits_for_dependents() {
            concerned.extend(self.dependents(&uid).map(|(uid, _)| uid.clone()));
        }
        if node.deleting || !node.owners.is_empty() {
            concerned.push(uid.clone());
        }
        self.nodes.insert(uid, node);
        concerned
    }

    /// An object is gone; gives whom that concerns.
    pub(super) fn remove(&mut self, uid: &str) -> Vec<String> {
        let mut concerned = self.unlink(uid);
        self.nodes.remove(uid);
        concerned.extend(self.dependents(uid).map(|(uid, _)| uid.clone()));
        concerned
    }

    /// Of this resource there are these names and no others; gives the uids of the others.
    pub(super) fn missing(&self, resource: &ApiResource, names: &HashSet<String>) -> Vec<String> {
        let key = |node: &Node| match &node.namespace {
            Some(namespace) => format!("{namespace}/{}", node.name),
            None => node.name.clone(),
        };
        let gone = self.nodes.iter().filter(|(_, node)| *node.resource == *resource && !names.contains(&key(node)));
        gone.map(|(uid, _)| uid.clone()).collect()
    }

    /// Takes an object's references to its owners back; gives the owners that may have waited for that.
    fn unlink(&mut self, uid: &str) -> Vec<String> {
        let Some(node) = self.nodes.get(uid) else { return Vec::new() };
        let owners: Vec<String> = node.owners.iter().map(|o| o.uid.clone()).collect();
        for owner in &owners {
            if let Some(all) = self.dependents.get_mut(owner) {
                all.remove(uid);
                if all.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        owners.into_iter().filter(|o| self.nodes.get(o).is_some_and(Node::waits_for_dependents)).collect()
    }
}
