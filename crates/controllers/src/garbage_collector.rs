//! Objects whose owners are gone go, too, before their owners or after them, or are left to themselves, as the
//! propagation policy of the deletion says (`pkg/controller/garbagecollector`).
//!
//! An owner that no watch has shown is asked for before anything is deleted because of its absence.

mod graph;
mod kinds;
mod outline;

use crate::clients::Clients;
use crate::event_recorder::EventRecorder;
use crate::watch::WatchEvent;
use crate::worker::{self, Controller, is_code};
use graph::{FOREGROUND, Graph, Node, ORPHAN};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kinds::{Event, LISTED_WITHIN};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::PartialObjectMeta;
use kube::discovery::{ApiResource, Discovery};
use kube::{Api, Client, Resource};
use outline::Outline;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

type Metadata = PartialObjectMeta<DynamicObject>;

struct GarbageCollector {
    client: Client,
    recorder: EventRecorder,
    /// By `group/version` and kind, and whether its objects have a namespace.
    kinds: HashMap<(String, String), (Arc<ApiResource>, bool)>,
    graph: Graph,
    /// Kinds that were not listed yet. Until all were, nobody knows of all dependents.
    unlisted: HashSet<(String, String)>,
    /// Kinds that cannot be listed, so that nobody waits for them any more. What they own or are owned by is not known.
    late: HashSet<(String, String)>,
}

/// What an owner is to its dependent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// It is there.
    Solid,
    /// It is not.
    Dangling,
    /// It is being deleted after its dependents, this one among them, whether it waits for it or not.
    Waiting,
}

impl Controller for GarbageCollector {
    type Event = Event;

    const NAME: &'static str = "garbage-collector";

    fn observe(&mut self, event: Self::Event, _: Instant) -> Vec<String> {
        let concerned = match event {
            Event::Object(resource, change) => self.note(&resource, change),
            Event::Served(served) => {
                self.unlisted.insert(of(&served.resource));
                served.names().for_each(|name| drop(self.kinds.insert(name, served.what())));
                Vec::new()
            }
            Event::Named(served) => {
                served.names().for_each(|name| drop(self.kinds.insert(name, served.what())));
                Vec::new()
            }
            Event::Late(resource) => {
                let kind = of(&resource);
                if !self.unlisted.remove(&kind) {
                    return Vec::new();
                }
                tracing::warn!(
                    version = kind.0,
                    kind = kind.1,
                    "was not listed within {LISTED_WITHIN:?}: the garbage collector goes on without it"
                );
                self.late.insert(kind);
                self.graph.all()
            }
            Event::Aggregated(served) => {
                served.names().for_each(|name| drop(self.kinds.insert(name, served.what())));
                // Of owners of this kind nobody could say whether they are gone.
                self.graph.all()
            }
            Event::Unserved(served) => {
                served.names().for_each(|name| drop(self.kinds.remove(&name)));
                let gone = self.graph.missing(&served.resource, &HashSet::new());
                let concerned: Vec<String> = gone.iter().flat_map(|uid| self.graph.remove(uid)).collect();
                if self.settle(&served.resource) { self.graph.all() } else { concerned }
            }
        };
        if self.unlisted.is_empty() { concerned } else { Vec::new() }
    }

    async fn reconcile(&mut self, uid: &str, _: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(node) = self.graph.get(uid) else { return Ok(None) };
        let done = if node.is_deleted() && node.orphans() {
            // Dependents that nobody has seen would go later, for its absence.
            if !(self.unlisted.is_empty() && self.late.is_empty()) {
                return Ok(None);
            }
            self.orphan_dependents(uid, node).await
        } else if node.waits_for_dependents() {
            self.let_go(uid, node).await
        } else if node.is_deleted() || node.owners().is_empty() {
            Ok(())
        } else {
            self.attempt_to_delete(uid, node).await
        };
        match done {
            // It is gone, or another by now: the watch tells.
            Err(e) if is_code(&e, 404) => Ok(None),
            done => done.map(|()| None),
        }
    }
}

impl GarbageCollector {
    fn note(&mut self, resource: &Arc<ApiResource>, change: WatchEvent<Outline>) -> Vec<String> {
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
                let concerned = gone.iter().flat_map(|uid| self.graph.remove(uid)).collect();
                if self.settle(resource) { self.graph.all() } else { concerned }
            }
        }
    }

    /// A kind was listed, or is gone; whether it was the last one that something waited for.
    fn settle(&mut self, resource: &ApiResource) -> bool {
        let kind = of(resource);
        let was_unlisted = self.unlisted.remove(&kind) && self.unlisted.is_empty();
        let was_late = self.late.remove(&kind) && self.late.is_empty();
        was_unlisted || was_late
    }

    fn api(&self, node: &Node) -> Api<Metadata> {
        match node.namespace() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, node.resource()),
            None => Api::all_with(self.client.clone(), node.resource()),
        }
    }

    /// Upstream's `attemptToDeleteItem`: an object whose last owner is gone goes; references to owners that are gone go
    /// as long as another is there.
    async fn attempt_to_delete(&self, uid: &str, node: &Node) -> Result<(), kube::Error> {
        if let Some(reference) = node.owners().iter().find(|owner| self.is_unresolvable(node, owner)) {
            // It is not known what is meant: it stays, whatever its other owners do.
            self.tell_of_namespace(uid, node, reference).await;
            return Ok(());
        }
        let mut kinds = Vec::with_capacity(node.owners().len());
        for owner in node.owners() {
            kinds.push(self.owner(uid, node, owner).await?);
        }
        if kinds.contains(&Owner::Solid) {
            let lost = |o: &OwnerReference| {
                let at = node.owners().iter().position(|known| known.uid == o.uid);
                at.and_then(|at| kinds.get(at)).is_some_and(|kind| *kind != Owner::Solid)
            };
            if kinds.iter().all(|kind| *kind == Owner::Solid) {
                return Ok(());
            }
            return self.change(uid, node, |meta| meta.retain_owners(|o| !lost(o))).await;
        }
        let has_dependents = self.graph.dependents(uid).next().is_some();
        let is_waited_for = kinds.contains(&Owner::Waiting) && has_dependents;
        if is_waited_for && self.graph.dependents(uid).any(|(_, dependent)| dependent.waits_for_dependents()) {
            // A circle, in which each would wait for the next.
            self.change(uid, node, Parts::block_nobody).await?;
        }
        let policy = if is_waited_for || node.is_foreground() {
            PropagationPolicy::Foreground
        } else if node.orphans() {
            PropagationPolicy::Orphan
        } else {
            PropagationPolicy::Background
        };
        tracing::debug!(kind = node.resource().kind, name = node.name, "goes: its owners are gone");
        let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        match self.api(node).delete(&node.name, &params).await {
            // Another object has this name by now.
            Err(e) if !is_code(&e, 409) => Err(e),
            _ => Ok(()),
        }
    }

    /// What has no namespace cannot be owned by what has one (`namespacedOwnerOfClusterScopedObjectErr`).
    fn is_unresolvable(&self, node: &Node, reference: &OwnerReference) -> bool {
        let kind = (reference.api_version.clone(), reference.kind.clone());
        node.namespace().is_none() && self.kinds.get(&kind).is_some_and(|(_, namespaced)| *namespaced)
    }

    async fn owner(&self, uid: &str, node: &Node, reference: &OwnerReference) -> Result<Owner, kube::Error> {
        // A uid under another name or kind is no owner: what the reference names is asked for.
        if let Some(owner) = self.graph.get(&reference.uid).filter(|owner| self.is_named(owner, reference)) {
            // An owner in another namespace is none.
            if owner.namespace().is_some() && owner.namespace() != node.namespace() {
                self.tell_of_namespace(uid, node, reference).await;
                return Ok(Owner::Dangling);
            }
            return Ok(if owner.waits_for_dependents() { Owner::Waiting } else { Owner::Solid });
        }
        let kind = (reference.api_version.clone(), reference.kind.clone());
        // Of a kind that is not served nobody can say that it is gone.
        let Some((resource, namespaced)) = self.kinds.get(&kind) else { return Ok(Owner::Solid) };
        let api: Api<Metadata> = match (node.namespace(), namespaced) {
            (Some(namespace), true) => Api::namespaced_with(self.client.clone(), namespace, resource.as_ref()),
            (None, true) => return Ok(Owner::Solid),
            (_, false) => Api::all_with(self.client.clone(), resource.as_ref()),
        };
        let found = api.get_opt(&reference.name).await?;
        let same = found.is_some_and(|o| o.metadata.uid.as_deref() == Some(reference.uid.as_str()));
        Ok(if same { Owner::Solid } else { Owner::Dangling })
    }

    /// Whether a reference says what this owner is called, whatever version of its kind it names.
    fn is_named(&self, owner: &Node, reference: &OwnerReference) -> bool {
        let kind = self.kinds.get(&(reference.api_version.clone(), reference.kind.clone()));
        let of = |resource: &ApiResource| (resource.group.clone(), resource.kind.clone());
        *owner.name == *reference.name && kind.is_none_or(|(resource, _)| of(resource) == of(owner.resource()))
    }

    /// Upstream's `reportInvalidNamespaceOwnerRef`.
    async fn tell_of_namespace(&self, uid: &str, node: &Node, reference: &OwnerReference) {
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

    /// The dependents stay, and no longer name it; then it may go.
    async fn orphan_dependents(&self, uid: &str, node: &Node) -> Result<(), kube::Error> {
        for (dependent, known) in self.graph.dependents(uid) {
            match self.change(dependent, known, |meta| meta.retain_owners(|o| o.uid != uid)).await {
                Err(e) if !is_code(&e, 404) => return Err(e),
                _ => {}
            }
        }
        self.change(uid, node, |meta| meta.remove_finalizer(ORPHAN)).await
    }

    /// It may go when no dependent blocks that any more.
    async fn let_go(&self, uid: &str, node: &Node) -> Result<(), kube::Error> {
        if self.graph.dependents(uid).any(|(_, dependent)| dependent.blocks(uid)) {
            return Ok(());
        }
        self.change(uid, node, |meta| meta.remove_finalizer(FOREGROUND)).await
    }

    /// Changes an object's metadata as they are now. A change that comes between is a conflict, and it is tried again.
    async fn change(&self, uid: &str, node: &Node, how: impl FnOnce(&mut Parts)) -> Result<(), kube::Error> {
        let api = self.api(node);
        let Some(current) = api.get_opt(&node.name).await? else { return Ok(()) };
        let meta = current.metadata;
        if meta.uid.as_deref() != Some(uid) {
            return Ok(());
        }
        let before = Parts {
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

/// By what references to owners name a kind.
fn of(resource: &ApiResource) -> (String, String) {
    (resource.api_version.clone(), resource.kind.clone())
}

/// The metadata that the garbage collector changes.
#[derive(Debug, Clone, PartialEq)]
struct Parts {
    owners: Vec<OwnerReference>,
    finalizers: Vec<String>,
}

impl Parts {
    fn retain_owners(&mut self, keep: impl Fn(&OwnerReference) -> bool) {
        self.owners.retain(keep);
    }

    fn block_nobody(&mut self) {
        self.owners.iter_mut().for_each(|owner| owner.block_owner_deletion = Some(false));
    }

    fn remove_finalizer(&mut self, finalizer: &str) {
        self.finalizers.retain(|f| f != finalizer);
    }
}

/// What is served, and which versions of it by other servers.
async fn served(client: &Client) -> Result<(Discovery, HashSet<String>), kube::Error> {
    let services = Api::<APIService>::all(client.clone()).list(&ListParams::default()).await?;
    let foreign = services.items.iter().filter_map(kinds::aggregated::version_of).collect();
    Ok((Discovery::new(client.clone()).run_aggregated().await?, foreign))
}

pub(crate) async fn run(clients: Clients, stop: CancellationToken) {
    let client = clients.for_service_account("generic-garbage-collector");
    let mut pause = Duration::from_millis(100);
    let (discovery, foreign) = loop {
        match served(&client).await {
            Ok(found) => break found,
            Err(e) => tracing::warn!("the garbage collector does not know what is served: {e}"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(30)),
        }
    };
    let mut known = kinds::discovered(&discovery);
    // Those of other servers come with their APIServices.
    known.retain(|served| !foreign.contains(&served.resource.api_version));
    let kinds = known.iter().flat_map(|served| served.names().map(|name| (name, served.what()))).collect();
    let unlisted = known.iter().map(|served| of(&served.resource)).collect();
    let events = kinds::events(&clients.shared(), known);
    let recorder = EventRecorder::new(client.clone(), "garbage-collector-controller");
    worker::run(
        GarbageCollector { client, recorder, kinds, graph: Graph::default(), unlisted, late: HashSet::new() },
        events,
        stop,
    )
    .await;
}
