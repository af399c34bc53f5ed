//! Dependency graph of owners and dependents (`GraphBuilder`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::discovery::ApiResource;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    sync::Arc,
};
use uuid::Uuid;

/// Finalizer: dependents are deleted first.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer: dependents are kept, without their owner references.
pub(super) const ORPHAN: &str = "orphan";

/// A node of the graph. There is one for each object of the cluster, so it must be small.
#[derive(Debug, Clone)]
pub(super) struct Node {
    resource_namespace: Arc<ResourceNamespace>,
    pub(super) name: Box<str>,
    /// `None` for most objects.
    state: Option<Box<DeletionState>>,
}

/// Resource and namespace, shared by the nodes of all their objects.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ResourceNamespace {
    resource: Arc<ApiResource>,
    /// `None` if cluster-scoped.
    namespace: Option<Box<str>>,
}

/// Owner references and deletion state of an object.
#[derive(Debug, Clone, Default)]
struct DeletionState {
    owners: Vec<OwnerReference>,
    deleting: bool,
    foreground: bool,
    orphan: bool,
}

impl Node {
    fn new(resource_namespace: Arc<ResourceNamespace>, meta: &ObjectMeta) -> Self {
        let has = |finalizer| meta.finalizers.iter().flatten().any(|f| f == finalizer);
        let state = DeletionState {
            owners: meta.owner_references.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            foreground: has(FOREGROUND),
            orphan: has(ORPHAN),
        };
        let has_state = state.deleting || state.foreground || state.orphan || !state.owners.is_empty();
        Self {
            resource_namespace,
            name: meta.name.as_deref().unwrap_or_default().into(),
            state: has_state.then(|| Box::new(state)),
        }
    }

    pub(super) fn resource(&self) -> &ApiResource {
        &self.resource_namespace.resource
    }

    /// Returns the namespace, `None` if cluster-scoped.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.resource_namespace.namespace.as_deref()
    }

    pub(super) fn owners(&self) -> &[OwnerReference] {
        self.state.as_ref().map_or(&[], |state| &state.owners)
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.deleting)
    }

    /// Returns whether dependents are deleted first.
    fn is_foreground(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.foreground)
    }

    /// Returns whether dependents are orphaned.
    pub(super) fn orphans(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.orphan)
    }

    /// Returns whether the object is deleted in the foreground (`isDeletingDependents`).
    pub(super) fn waits_for_dependents(&self) -> bool {
        self.is_deleted() && self.is_foreground()
    }

    /// Returns whether this object's reference blocks the deletion of the owner (`blockOwnerDeletion`).
    pub(super) fn blocks(&self, owner: &str) -> bool {
        self.owners().iter().any(|o| o.uid == owner && o.block_owner_deletion == Some(true))
    }
}

/// UID of an object. Nearly all are UUIDs, whose 16 bytes need no allocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Uid {
    Uuid([u8; 16]),
    /// A UID of another form, from an aggregated server.
    Other(Box<str>),
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        let is_canonical = |uuid: &Uuid| uuid.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text;
        match Uuid::try_parse(text).ok().filter(is_canonical) {
            Some(uuid) => Self::Uuid(uuid.into_bytes()),
            None => Self::Other(text.into()),
        }
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(bytes) => Uuid::from_bytes(*bytes).fmt(f),
            Self::Other(text) => text.fmt(f),
        }
    }
}

/// All objects by UID, and the dependents by the UID of their owner.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
    dependents: HashMap<String, BTreeSet<String>>,
    resource_namespaces: HashSet<Arc<ResourceNamespace>>,
    /// Number of entries in [`Self::resource_namespaces`] at which unused ones are removed.
    sweep_at: usize,
}

impl Graph {
    pub(super) fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(&Uid::from(uid))
    }

    /// Returns the UIDs of objects that may have to be deleted or changed.
    pub(super) fn candidates(&self) -> Vec<String> {
        let affected = self.nodes.iter().filter(|(_, node)| node.is_deleted() || !node.owners().is_empty());
        affected.map(|(uid, _)| uid.to_string()).collect()
    }

    /// Returns the known objects that name this owner, which itself may be unknown.
    pub(super) fn dependents<'a>(&'a self, owner: &str) -> impl Iterator<Item = (&'a String, &'a Node)> + use<'a> {
        let all = self.dependents.get(owner).into_iter().flatten();
        all.filter_map(|uid| Some((uid, self.get(uid)?)))
    }

    /// Adds or updates an object. Returns the UIDs of affected objects.
    pub(super) fn set(&mut self, uid: &str, resource: &Arc<ApiResource>, meta: &ObjectMeta) -> Vec<String> {
        let node = Node::new(self.resource_namespace(resource, meta.namespace.as_deref()), meta);
        let mut affected = self.unlink(uid);
        for owner in node.owners() {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.to_owned());
        }
        if node.waits_for_dependents() {
            affected.extend(self.dependents(uid).map(|(uid, _)| uid.clone()));
        }
        if node.is_deleted() || !node.owners().is_empty() {
            affected.push(uid.to_owned());
        }
        self.nodes.insert(uid.into(), node);
        affected
    }

    fn resource_namespace(&mut self, resource: &Arc<ApiResource>, namespace: Option<&str>) -> Arc<ResourceNamespace> {
        let resource_namespace =
            ResourceNamespace { resource: Arc::clone(resource), namespace: namespace.map(Box::from) };
        if let Some(known) = self.resource_namespaces.get(&resource_namespace) {
            return Arc::clone(known);
        }
        if self.resource_namespaces.len() >= self.sweep_at {
            self.resource_namespaces.retain(|resource_namespace| Arc::strong_count(resource_namespace) > 1);
            self.sweep_at = (self.resource_namespaces.len() * 2).max(1024);
        }
        let resource_namespace = Arc::new(resource_namespace);
        self.resource_namespaces.insert(Arc::clone(&resource_namespace));
        resource_namespace
    }

    /// Removes an object. Returns the UIDs of affected objects.
    pub(super) fn remove(&mut self, uid: &str) -> Vec<String> {
        let mut affected = self.unlink(uid);
        self.nodes.remove(&uid.into());
        affected.extend(self.dependents(uid).map(|(uid, _)| uid.clone()));
        affected
    }

    /// Returns the UIDs of the resource's objects that are not among `names`.
    pub(super) fn missing(&self, resource: &ApiResource, names: &HashSet<String>) -> Vec<String> {
        let key = |node: &Node| match node.namespace() {
            Some(namespace) => format!("{namespace}/{}", node.name),
            None => node.name.to_string(),
        };
        let gone = self.nodes.iter().filter(|(_, node)| node.resource() == resource && !names.contains(&key(node)));
        gone.map(|(uid, _)| uid.to_string()).collect()
    }

    /// Removes an object's edges to its owners. Returns the owners that wait for their dependents.
    fn unlink(&mut self, uid: &str) -> Vec<String> {
        let Some(node) = self.get(uid) else { return Vec::new() };
        let owners: Vec<String> = node.owners().iter().map(|o| o.uid.clone()).collect();
        for owner in &owners {
            if let Some(all) = self.dependents.get_mut(owner) {
                all.remove(uid);
                if all.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        owners.into_iter().filter(|o| self.get(o).is_some_and(Node::waits_for_dependents)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_round_trips_in_any_form() {
        let (lower, upper) = ("6f6ba6a5-3c3f-4d43-9a4b-0c7f2b3f3a11", "6F6BA6A5-3C3F-4D43-9A4B-0C7F2B3F3A11");
        for text in [lower, upper, "6f6ba6a53c3f4d439a4b0c7f2b3f3a11", "", "u-1"] {
            assert_eq!(Uid::from(text).to_string(), text);
        }
        assert_ne!(Uid::from(lower), Uid::from(upper));
    }

    #[test]
    fn graph_node_is_at_most_56_bytes() {
        assert!(size_of::<(Uid, Node)>() <= 56, "{}", size_of::<(Uid, Node)>());
    }
}
