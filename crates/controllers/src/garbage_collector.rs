//! Garbage collector: deletes dependents of deleted owners in the background or foreground, or orphans them, as the
//! propagation policy of the deletion says (`pkg/controller/garbagecollector`).
//!
//! An owner that no watch has shown is looked up in the API before a dependent is deleted because of its absence.

mod delete_object;
mod graph;
mod metadata;
mod monitors;

use crate::{
    clients::Clients,
    event_recorder::EventRecorder,
    names,
    worker::{self, Controller, is_code},
};
use graph::{FOREGROUND, Graph, Node, ORPHAN};
use informer::WatchEvent;
use k8s_openapi::{
    api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client, Resource,
    api::{DynamicObject, ListParams, Patch, PatchParams, PropagationPolicy},
    core::PartialObjectMeta,
    discovery::{ApiResource, Discovery},
};
use metadata::ObjectMetadata;
use monitors::{Event, INITIAL_SYNC_TIMEOUT};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

type Metadata = PartialObjectMeta<DynamicObject>;

struct GarbageCollector {
    client: Client,
    recorder: EventRecorder,
    state: Mutex<State>,
}

/// The known kinds and objects.
struct State {
    /// Resource and whether it is namespaced, by API version and kind.
    kinds: HashMap<(String, String), (Arc<ApiResource>, bool)>,
    graph: Graph,
    /// Kinds whose initial list is not complete. Until all are, dependents may be unknown.
    unsynced: HashSet<(String, String)>,
    /// Kinds that could not be listed in time. Their owners and dependents are unknown.
    timed_out: HashSet<(String, String)>,
}

/// State of an owner (`classifyReferences`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerState {
    /// It exists.
    Solid,
    /// It does not exist.
    Dangling,
    /// It waits for the deletion of its dependents (foreground deletion), whether or not this one blocks it.
    WaitingForDependentsDeletion,
}

impl Controller for GarbageCollector {
    type Event = Event;

    const NAME: &'static str = names::GARBAGE_COLLECTOR;
    const WORKERS: usize = 20;

    fn observe(&self, event: Self::Event, _: Instant) -> Vec<String> {
        let mut state = self.state.lock();
        let affected = match event {
            Event::Object(resource, change) => state.process_watch_event(&resource, change),
            Event::KindAdded(served) => {
                state.unsynced.insert(kind_key(&served.resource));
                served
                    .owner_reference_kinds()
                    .for_each(|name| drop(state.kinds.insert(name, served.resource_and_scope())));
                Vec::new()
            }
            Event::VersionsAdded(served) => {
                served
                    .owner_reference_kinds()
                    .for_each(|name| drop(state.kinds.insert(name, served.resource_and_scope())));
                Vec::new()
            }
            Event::SyncTimedOut(resource) => {
                let kind = kind_key(&resource);
                if !state.unsynced.remove(&kind) {
                    return Vec::new();
                }
                tracing::warn!(
                    version = kind.0,
                    kind = kind.1,
                    "failed to list kind within {INITIAL_SYNC_TIMEOUT:?}, continuing garbage collection without it"
                );
                state.timed_out.insert(kind);
                state.graph.candidates()
            }
            Event::AggregatedKindAdded(served) => {
                served
                    .owner_reference_kinds()
                    .for_each(|name| drop(state.kinds.insert(name, served.resource_and_scope())));
                // Owners of this kind could not be looked up before.
                state.graph.candidates()
            }
            Event::KindRemoved(served) => {
                served.owner_reference_kinds().for_each(|name| drop(state.kinds.remove(&name)));
                let gone = state.graph.missing(&served.resource, &HashSet::new());
                let affected: Vec<String> = gone.iter().flat_map(|uid| state.graph.remove(uid)).collect();
                if state.mark_synced(&served.resource) { state.graph.candidates() } else { affected }
            }
        };
        if state.unsynced.is_empty() { affected } else { Vec::new() }
    }

    async fn reconcile(&self, uid: &str, _: Instant) -> Result<Option<Duration>, kube::Error> {
        let (node, all_synced) = {
            let state = self.state.lock();
            (state.graph.get(uid).cloned(), state.unsynced.is_empty() && state.timed_out.is_empty())
        };
        let Some(node) = node else { return Ok(None) };
        let done = if node.is_deleted() && node.orphans() {
            // Unknown dependents would be deleted later, because of the owner's absence.
            if !all_synced {
                return Ok(None);
            }
            self.orphan_dependents(uid, &node).await
        } else if node.waits_for_dependents() {
            self.process_deleting_dependents(uid, &node).await
        } else if node.is_deleted() || node.owners().is_empty() {
            Ok(())
        } else {
            self.attempt_to_delete(uid, &node).await
        };
        match done {
            // The object is gone or replaced: the watch enqueues it if needed.
            Err(e) if is_code(&e, 404) => Ok(None),
            done => done.map(|()| None),
        }
    }
}

impl State {
    fn process_watch_event(&mut self, resource: &Arc<ApiResource>, change: WatchEvent<ObjectMetadata>) -> Vec<String> {
        match change {
            WatchEvent::Applied(object) => {
                let Some(uid) = object.meta().uid.clone() else { return Vec::new() };
                self.graph.set(&uid, resource, object.meta())
            }
            WatchEvent::Deleted(object) => {
                object.meta().uid.as_ref().map(|uid| self.graph.remove(uid)).unwrap_or_default()
            }
            WatchEvent::Listed(names) => {
                let gone = self.graph.missing(resource, &names);
                let affected = gone.iter().flat_map(|uid| self.graph.remove(uid)).collect();
                if self.mark_synced(resource) { self.graph.candidates() } else { affected }
            }
        }
    }

    /// Marks a kind as synced or removed. Returns whether no other kind is outstanding.
    fn mark_synced(&mut self, resource: &ApiResource) -> bool {
        let kind = kind_key(resource);
        let was_unsynced = self.unsynced.remove(&kind) && self.unsynced.is_empty();
        let was_timed_out = self.timed_out.remove(&kind) && self.timed_out.is_empty();
        was_unsynced || was_timed_out
    }

    /// Returns whether a cluster-scoped object names a namespaced owner (`namespacedOwnerOfClusterScopedObjectErr`).
    fn is_namespaced_owner_of_cluster_scoped(&self, node: &Node, reference: &OwnerReference) -> bool {
        let kind = (reference.api_version.clone(), reference.kind.clone());
        node.namespace().is_none() && self.kinds.get(&kind).is_some_and(|(_, namespaced)| *namespaced)
    }

    /// Returns whether a reference names this owner, in any version of its kind.
    fn matches_reference(&self, owner: &Node, reference: &OwnerReference) -> bool {
        let kind = self.kinds.get(&(reference.api_version.clone(), reference.kind.clone()));
        let group_kind = |resource: &ApiResource| (resource.group.clone(), resource.kind.clone());
        *owner.name == *reference.name
            && kind.is_none_or(|(resource, _)| group_kind(resource) == group_kind(owner.resource()))
    }

    /// Returns the owner that a reference names, if its UID does not belong to an object of another name or kind.
    fn owner(&self, reference: &OwnerReference) -> Option<Node> {
        self.graph.get(&reference.uid).filter(|owner| self.matches_reference(owner, reference)).cloned()
    }
}

impl GarbageCollector {
    fn api(&self, node: &Node) -> Api<Metadata> {
        match node.namespace() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, node.resource()),
            None => Api::all_with(self.client.clone(), node.resource()),
        }
    }

    /// Deletes an object whose owners are all gone. If some exist, removes the references to the others
    /// (`attemptToDeleteItem`).
    async fn attempt_to_delete(&self, uid: &str, node: &Node) -> Result<(), kube::Error> {
        let invalid = {
            let state = self.state.lock();
            node.owners().iter().find(|owner| state.is_namespaced_owner_of_cluster_scoped(node, owner))
        };
        if let Some(reference) = invalid {
            // The owner cannot be resolved: the object is kept, whatever the state of its other owners.
            self.report_invalid_namespace_owner_ref(uid, node, reference).await;
            return Ok(());
        }
        let mut kinds = Vec::with_capacity(node.owners().len());
        for owner in node.owners() {
            kinds.push(self.classify_owner(uid, node, owner).await?);
        }
        if kinds.contains(&OwnerState::Solid) {
            let lost = |o: &OwnerReference| {
                let at = node.owners().iter().position(|known| known.uid == o.uid);
                at.and_then(|at| kinds.get(at)).is_some_and(|kind| *kind != OwnerState::Solid)
            };
            if kinds.iter().all(|kind| *kind == OwnerState::Solid) {
                return Ok(());
            }
            return self.patch_metadata(uid, node, |meta| meta.retain_owners(|o| !lost(o))).await;
        }
        let (has_dependents, blocks_itself) = {
            let state = self.state.lock();
            let mut dependents = state.graph.dependents(uid).peekable();
            (dependents.peek().is_some(), dependents.any(|(_, dependent)| dependent.waits_for_dependents()))
        };
        let is_waited_for = kinds.contains(&OwnerState::WaitingForDependentsDeletion) && has_dependents;
        if is_waited_for && blocks_itself {
            // Break a cycle of objects that block each other's foreground deletion.
            self.patch_metadata(uid, node, OwnersAndFinalizers::unblock_owner_references).await?;
        }
        // The owner's removal may be observed before a change of the dependent's references, such as their removal by
        // an orphaning deletion: their watches are independent.
        let Some(live) = self.live_with_known_owners(uid, node).await? else { return Ok(()) };
        let has = |finalizer| live.metadata.finalizers.iter().flatten().any(|f| f == finalizer);
        let policy = if is_waited_for || has(FOREGROUND) {
            PropagationPolicy::Foreground
        } else if has(ORPHAN) {
            PropagationPolicy::Orphan
        } else {
            PropagationPolicy::Background
        };
        self.delete_object(uid, node, live.metadata.resource_version, &policy).await
    }

    async fn classify_owner(
        &self,
        uid: &str,
        node: &Node,
        reference: &OwnerReference,
    ) -> Result<OwnerState, kube::Error> {
        // If the UID belongs to an object of another name or kind, look up the object that the reference names.
        let known = self.state.lock().owner(reference);
        if let Some(owner) = known {
            // A namespaced owner must be in the dependent's namespace.
            if owner.namespace().is_some() && owner.namespace() != node.namespace() {
                self.report_invalid_namespace_owner_ref(uid, node, reference).await;
                return Ok(OwnerState::Dangling);
            }
            return Ok(if owner.waits_for_dependents() {
                OwnerState::WaitingForDependentsDeletion
            } else {
                OwnerState::Solid
            });
        }
        let kind = (reference.api_version.clone(), reference.kind.clone());
        // An owner of a kind that is not served cannot be known to be gone.
        let Some((resource, namespaced)) = self.state.lock().kinds.get(&kind).cloned() else {
            return Ok(OwnerState::Solid);
        };
        let api: Api<Metadata> = match (node.namespace(), namespaced) {
            (Some(namespace), true) => Api::namespaced_with(self.client.clone(), namespace, resource.as_ref()),
            (None, true) => return Ok(OwnerState::Solid),
            (_, false) => Api::all_with(self.client.clone(), resource.as_ref()),
        };
        let found = api.get_opt(&reference.name).await?;
        let same = found.is_some_and(|o| o.metadata.uid.as_deref() == Some(reference.uid.as_str()));
        Ok(if same { OwnerState::Solid } else { OwnerState::Dangling })
    }

    /// Records the Event of `reportInvalidNamespaceOwnerRef`.
    async fn report_invalid_namespace_owner_ref(&self, uid: &str, node: &Node, reference: &OwnerReference) {
        let namespace = node.namespace().unwrap_or_default();
        let OwnerReference { api_version, kind, name, uid: owner, .. } = reference;
        let named = format!("[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {owner}]");
        let message = format!("ownerRef {named} does not exist in namespace {namespace:?}");
        let about = ObjectReference {
            api_version: Some(node.resource().api_version.clone()),
            kind: Some(node.resource().kind.clone()),
            namespace: node.namespace().map(str::to_owned),
            name: Some(node.name.to_string()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        self.recorder.record(&about, true, "OwnerRefInvalidNamespace", &message).await;
    }

    /// Removes the owner from its dependents, then its finalizer (`orphanDependents`).
    async fn orphan_dependents(&self, uid: &str, node: &Node) -> Result<(), kube::Error> {
        let dependents: Vec<(String, Node)> = {
            let state = self.state.lock();
            state.graph.dependents(uid).map(|(uid, node)| (uid.clone(), node.clone())).collect()
        };
        for (dependent, known) in &dependents {
            match self.patch_metadata(dependent, known, |meta| meta.retain_owners(|o| o.uid != uid)).await {
                Err(e) if !is_code(&e, 404) => return Err(e),
                _ => {}
            }
        }
        self.patch_metadata(uid, node, |meta| meta.remove_finalizer(ORPHAN)).await
    }

    /// Removes the finalizer when no dependent blocks the deletion (`processDeletingDependentsItem`).
    async fn process_deleting_dependents(&self, uid: &str, node: &Node) -> Result<(), kube::Error> {
        if self.state.lock().graph.dependents(uid).any(|(_, dependent)| dependent.blocks(uid)) {
            return Ok(());
        }
        self.patch_metadata(uid, node, |meta| meta.remove_finalizer(FOREGROUND)).await
    }

    /// Patches the current owner references and finalizers. A concurrent change is a conflict, which is retried.
    async fn patch_metadata(
        &self,
        uid: &str,
        node: &Node,
        how: impl FnOnce(&mut OwnersAndFinalizers),
    ) -> Result<(), kube::Error> {
        let api = self.api(node);
        let Some(current) = api.get_opt(&node.name).await? else { return Ok(()) };
        let meta = current.metadata;
        if meta.uid.as_deref() != Some(uid) {
            return Ok(());
        }
        let before = OwnersAndFinalizers {
            owners: meta.owner_references.unwrap_or_default(),
            finalizers: meta.finalizers.unwrap_or_default(),
        };
        let mut after = before.clone();
        how(&mut after);
        if after == before {
            return Ok(());
        }
        let patch = json!({"metadata": {
            "uid": uid, "resourceVersion": meta.resource_version, "ownerReferences": after.owners, "finalizers": after.finalizers,
        }});
        api.patch(&node.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }
}

/// Returns API version and kind, as owner references name them.
fn kind_key(resource: &ApiResource) -> (String, String) {
    (resource.api_version.clone(), resource.kind.clone())
}

/// The metadata fields that the garbage collector changes.
#[derive(Debug, Clone, PartialEq)]
struct OwnersAndFinalizers {
    owners: Vec<OwnerReference>,
    finalizers: Vec<String>,
}

impl OwnersAndFinalizers {
    fn retain_owners(&mut self, keep: impl Fn(&OwnerReference) -> bool) {
        self.owners.retain(keep);
    }

    fn unblock_owner_references(&mut self) {
        self.owners.iter_mut().for_each(|owner| owner.block_owner_deletion = Some(false));
    }

    fn remove_finalizer(&mut self, finalizer: &str) {
        self.finalizers.retain(|f| f != finalizer);
    }
}

/// Discovers the served kinds, and the API versions that aggregated servers serve.
async fn discover(client: &Client) -> Result<(Discovery, HashSet<String>), kube::Error> {
    let services = Api::<APIService>::all(client.clone()).list(&ListParams::default()).await?;
    let foreign = services.items.iter().filter_map(monitors::aggregated::version_of).collect();
    Ok((Discovery::new(client.clone()).run_aggregated().await?, foreign))
}

pub(crate) async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.for_service_account("generic-garbage-collector");
    let mut delay = Duration::from_millis(100);
    let (discovery, foreign) = loop {
        match discover(&client).await {
            Ok(found) => break found,
            Err(e) => tracing::warn!(error = %e, "failed to discover served kinds"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(delay) => delay = (delay * 2).min(Duration::from_secs(30)),
        }
    };
    let mut known = monitors::discovered(&discovery);
    // Kinds of aggregated servers are added by their APIServices.
    known.retain(|served| !foreign.contains(&served.resource.api_version));
    let kinds = known
        .iter()
        .flat_map(|served| served.owner_reference_kinds().map(|name| (name, served.resource_and_scope())))
        .collect();
    let unsynced = known.iter().map(|served| kind_key(&served.resource)).collect();
    let events = monitors::events(&clients.shared(), known);
    let recorder = EventRecorder::new(client.clone(), "garbage-collector-controller");
    let state = State { kinds, graph: Graph::default(), unsynced, timed_out: HashSet::new() };
    worker::run(GarbageCollector { client, recorder, state: Mutex::new(state) }, events, stop).await;
}
