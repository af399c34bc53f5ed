//! Who is asked about writes, as the store has it. As with roles and bindings (`authz/follow.rs`) whoever asks first takes
//! in what was written since: a configuration counts for every request that begins after its write was acknowledged.

use crate::webhook::Target;
use admission::{
    policy::{Binding, MutatingPolicy, Policy},
    webhook::Webhook,
};
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use store::{Scope, Store, Watch};

const MUTATING: &str = "mutatingwebhookconfigurations";
const VALIDATING: &str = "validatingwebhookconfigurations";
const POLICIES: &str = "validatingadmissionpolicies";
const BINDINGS: &str = "validatingadmissionpolicybindings";
const MUTATIONS: &str = "mutatingadmissionpolicies";
const MUTATION_BINDINGS: &str = "mutatingadmissionpolicybindings";
const RESOURCES: [&str; 6] = [MUTATING, VALIDATING, POLICIES, BINDINGS, MUTATIONS, MUTATION_BINDINGS];
/// More changes than this are not looked at one by one: everything is read anyway.
const BATCH: usize = 256;

/// A webhook, and where it is.
pub(crate) struct Hook {
    pub(crate) webhook: Webhook,
    pub(crate) target: Result<Target, String>,
}

/// Everybody who is asked.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) mutating: Vec<Hook>,
    pub(crate) validating: Vec<Hook>,
    /// Those that hold anywhere, with where they do.
    pub(crate) policies: Vec<(Policy, Vec<Binding>)>,
    /// Those that change what is written.
    pub(crate) mutations: Vec<(MutatingPolicy, Vec<Binding>)>,
}

impl Asked {
    pub(crate) fn is_empty(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty() && self.policies.is_empty() && self.mutations.is_empty()
    }
}

/// Follows the configurations of a store.
pub(crate) struct Hooks {
    store: Store,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    asked: Arc<Asked>,
    /// Empty until somebody asks.
    watches: Vec<Watch>,
}

impl Hooks {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, state: Mutex::default() }
    }

    /// Everybody who is asked now.
    pub(crate) fn asked(&self) -> Arc<Asked> {
        let mut state = self.state.lock();
        if state.watches.is_empty() || state.has_changed() {
            self.read(&mut state);
        }
        Arc::clone(&state.asked)
    }

    fn read(&self, state: &mut State) {
        state.watches.clear();
        let lists = RESOURCES.map(|resource| {
            let listing = self.store.list(&Scope::resource(resource), None, None);
            // The window is as old as this list, or the next who asks reads everything again.
            state.watches.extend(self.store.watch(Scope::resource(resource), listing.revision));
            let objects = listing.objects.iter();
            objects.filter_map(|o| serde_json::from_slice::<Value>(&o.data).ok()).collect::<Vec<Value>>()
        });
        if state.watches.len() < RESOURCES.len() {
            state.watches.clear();
        }
        let hooks = |configurations: &[Value]| configurations.iter().flat_map(Webhook::all).map(Hook::new).collect();
        let [mutating, validating, policies, bindings, mutations, mutation_bindings] = &lists;
        let read = |all: &[Value]| all.iter().map(Binding::read).collect::<Vec<Binding>>();
        let bound = |all: &[Binding], policy: &str| -> Vec<Binding> {
            all.iter().filter(|binding| binding.policy == policy).cloned().collect()
        };
        let (bindings, mutation_bindings) = (read(bindings), read(mutation_bindings));
        let policies = policies.iter().map(Policy::read).map(|p| (bound(&bindings, &p.name), p));
        let mutations = mutations.iter().map(MutatingPolicy::read).map(|p| (bound(&mutation_bindings, &p.name), p));
        state.asked = Arc::new(Asked {
            mutating: hooks(mutating),
            validating: hooks(validating),
            mutations: mutations.filter(|(bound, _)| !bound.is_empty()).map(|(bound, p)| (p, bound)).collect(),
            policies: policies.filter(|(bound, _)| !bound.is_empty()).map(|(bound, policy)| (policy, bound)).collect(),
        });
    }
}

impl Hook {
    fn new(webhook: Webhook) -> Self {
        Self { target: Target::read(&webhook.client), webhook }
    }
}

impl State {
    fn has_changed(&mut self) -> bool {
        let mut events = Vec::new();
        self.watches.iter_mut().any(|watch| watch.try_next_batch(&mut events, BATCH).map_or(true, |count| count > 0))
    }
}
