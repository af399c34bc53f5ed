//! Registered admission webhooks and policies (`admissionregistration.k8s.io`). A registration applies to every request that
//! begins after its write was acknowledged.

use crate::proxy::webhook::{WebhookTarget, WebhookTargetError};
use ::admission::{
    policy::{Binding, MutatingPolicy, Policy},
    webhook::Webhook,
};
use auth::stored_object;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use store::{InformerUpdate, LazyInformer, List, Store};

const MUTATING_WEBHOOKS: &str = "mutatingwebhookconfigurations";
const VALIDATING_WEBHOOKS: &str = "validatingwebhookconfigurations";
const VALIDATING_POLICIES: &str = "validatingadmissionpolicies";
const VALIDATING_POLICY_BINDINGS: &str = "validatingadmissionpolicybindings";
const MUTATING_POLICIES: &str = "mutatingadmissionpolicies";
const MUTATING_POLICY_BINDINGS: &str = "mutatingadmissionpolicybindings";
const RESOURCES: [&str; 6] = [
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    MUTATING_POLICIES,
    MUTATING_POLICY_BINDINGS,
];

/// A webhook and its endpoint.
pub(crate) struct RegisteredWebhook {
    pub(crate) webhook: Webhook,
    pub(crate) target: Result<WebhookTarget, Arc<WebhookTargetError>>,
}

/// Registered webhooks, and policies with their bindings. Policies without a binding are omitted.
#[derive(Default)]
pub(crate) struct Registrations {
    pub(super) mutating_webhooks: Vec<RegisteredWebhook>,
    pub(super) validating_webhooks: Vec<RegisteredWebhook>,
    pub(super) validating_policies: Vec<(Policy, Vec<Binding>)>,
    pub(super) mutating_policies: Vec<(MutatingPolicy, Vec<Binding>)>,
}

impl Registrations {
    pub(crate) fn is_empty(&self) -> bool {
        self.mutating_webhooks.is_empty()
            && self.validating_webhooks.is_empty()
            && self.validating_policies.is_empty()
            && self.mutating_policies.is_empty()
    }

    /// Parses the objects of [`RESOURCES`].
    fn parse(lists: &[List; 6]) -> Self {
        let lists =
            lists.each_ref().map(|list| list.objects.iter().filter_map(stored_object::parse).collect::<Vec<Value>>());
        let [mutating, validating, policies, bindings, mutating_policies, mutating_bindings] = &lists;
        let webhooks = |configurations: &[Value]| {
            configurations.iter().flat_map(Webhook::parse_all).map(RegisteredWebhook::new).collect()
        };
        let parse = |all: &[Value]| all.iter().map(Binding::read).collect::<Vec<Binding>>();
        let bindings_of = |all: &[Binding], policy: &str| -> Vec<Binding> {
            all.iter().filter(|binding| binding.policy == policy).cloned().collect()
        };
        let (bindings, mutating_bindings) = (parse(bindings), parse(mutating_bindings));
        let policies = policies.iter().map(Policy::read).map(|p| (bindings_of(&bindings, &p.name), p));
        let mutating_policies =
            mutating_policies.iter().map(MutatingPolicy::read).map(|p| (bindings_of(&mutating_bindings, &p.name), p));
        Self {
            mutating_webhooks: webhooks(mutating),
            validating_webhooks: webhooks(validating),
            validating_policies: policies.filter(|(bound, _)| !bound.is_empty()).map(|(bound, p)| (p, bound)).collect(),
            mutating_policies: mutating_policies
                .filter(|(bound, _)| !bound.is_empty())
                .map(|(bound, p)| (p, bound))
                .collect(),
        }
    }
}

/// Informer of the registrations in a store.
pub(crate) struct RegistrationInformer {
    state: Mutex<State>,
}

struct State {
    registrations: Arc<Registrations>,
    informer: LazyInformer<6>,
}

impl RegistrationInformer {
    pub(crate) fn new(store: Store) -> Self {
        let informer = LazyInformer::new(store, RESOURCES);
        Self { state: Mutex::new(State { registrations: Arc::default(), informer }) }
    }

    /// Returns the current registrations.
    pub(crate) fn registrations(&self) -> Arc<Registrations> {
        let mut state = self.state.lock();
        match state.informer.take_update() {
            InformerUpdate::Events(events) if events.is_empty() => {}
            // Registrations are few and rarely change, so all are parsed again.
            InformerUpdate::Events(_) => {
                state.registrations = Arc::new(Registrations::parse(&state.informer.relist()));
            }
            InformerUpdate::Relist(lists) => state.registrations = Arc::new(Registrations::parse(&lists)),
        }
        Arc::clone(&state.registrations)
    }
}

impl RegisteredWebhook {
    fn new(webhook: Webhook) -> Self {
        Self { target: WebhookTarget::parse(&webhook.client).map_err(Arc::new), webhook }
    }
}
