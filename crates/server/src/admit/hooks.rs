//! Who is asked about writes, as the store has it: a configuration counts for every request that begins after its write
//! was acknowledged.

use crate::{
    lazy_informer::{InformerUpdate, LazyInformer},
    webhook::{WebhookTarget, WebhookTargetError},
};
use admission::{
    policy::{Binding, MutatingPolicy, Policy},
    webhook::Webhook,
};
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use store::{List, Store};

const MUTATING: &str = "mutatingwebhookconfigurations";
const VALIDATING: &str = "validatingwebhookconfigurations";
const POLICIES: &str = "validatingadmissionpolicies";
const BINDINGS: &str = "validatingadmissionpolicybindings";
const MUTATIONS: &str = "mutatingadmissionpolicies";
const MUTATION_BINDINGS: &str = "mutatingadmissionpolicybindings";
const RESOURCES: [&str; 6] = [MUTATING, VALIDATING, POLICIES, BINDINGS, MUTATIONS, MUTATION_BINDINGS];

/// A webhook, and where it is.
pub(crate) struct Hook {
    pub(crate) webhook: Webhook,
    pub(crate) target: Result<WebhookTarget, WebhookTargetError>,
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

    /// What the objects of [`RESOURCES`] say.
    fn read(lists: &[List; 6]) -> Self {
        let lists = lists.each_ref().map(|list| {
            list.objects.iter().filter_map(|o| serde_json::from_slice::<Value>(&o.data).ok()).collect::<Vec<Value>>()
        });
        let [mutating, validating, policies, bindings, mutations, mutation_bindings] = &lists;
        let hooks = |configurations: &[Value]| configurations.iter().flat_map(Webhook::all).map(Hook::new).collect();
        let read = |all: &[Value]| all.iter().map(Binding::read).collect::<Vec<Binding>>();
        let bound = |all: &[Binding], policy: &str| -> Vec<Binding> {
            all.iter().filter(|binding| binding.policy == policy).cloned().collect()
        };
        let (bindings, mutation_bindings) = (read(bindings), read(mutation_bindings));
        let policies = policies.iter().map(Policy::read).map(|p| (bound(&bindings, &p.name), p));
        let mutations = mutations.iter().map(MutatingPolicy::read).map(|p| (bound(&mutation_bindings, &p.name), p));
        Self {
            mutating: hooks(mutating),
            validating: hooks(validating),
            policies: policies.filter(|(bound, _)| !bound.is_empty()).map(|(bound, p)| (p, bound)).collect(),
            mutations: mutations.filter(|(bound, _)| !bound.is_empty()).map(|(bound, p)| (p, bound)).collect(),
        }
    }
}

/// Follows the configurations of a store.
pub(crate) struct Hooks {
    state: Mutex<State>,
}

struct State {
    asked: Arc<Asked>,
    followed: LazyInformer<6>,
}

impl Hooks {
    pub(crate) fn new(store: Store) -> Self {
        let followed = LazyInformer::new(store, RESOURCES);
        Self { state: Mutex::new(State { asked: Arc::default(), followed }) }
    }

    /// Everybody who is asked now.
    pub(crate) fn asked(&self) -> Arc<Asked> {
        let mut state = self.state.lock();
        match state.followed.take_update() {
            InformerUpdate::Events(events) if events.is_empty() => {}
            // They are few, and seldom change.
            InformerUpdate::Events(_) => state.asked = Arc::new(Asked::read(&state.followed.relist())),
            InformerUpdate::Relist(lists) => state.asked = Arc::new(Asked::read(&lists)),
        }
        Arc::clone(&state.asked)
    }
}

impl Hook {
    fn new(webhook: Webhook) -> Self {
        Self { target: WebhookTarget::parse(&webhook.client), webhook }
    }
}
