//! Which Pods may not be disrupted now, and following the budgets that say so (`filterPodsWithPDBViolation`).

use crate::cluster::Placed;
use crate::listing::relisting;
use crate::victims::Pods;
use api::lean::Lean;
use api::selector::Selector;
use futures::stream::BoxStream;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::watcher::{Error, Event};
use kube::{Api, Client};
use std::collections::BTreeMap;

pub(crate) fn watch(client: &Client) -> BoxStream<'static, Result<Event<Lean<PodDisruptionBudget>>, Error>> {
    relisting(Api::all(client.clone()))
}

/// A budget while Pods are taken from it.
struct Account<'a> {
    budget: &'a PodDisruptionBudget,
    selector: Selector,
    left: i32,
}

/// Splits Pods into those whose disruption would violate a budget, and the others. The first ones take what there is.
pub(crate) fn split<'a>(pods: Pods<'a>, budgets: &BTreeMap<String, PodDisruptionBudget>) -> (Pods<'a>, Pods<'a>) {
    let mut accounts: Vec<Account<'_>> = budgets.values().filter_map(Account::of).collect();
    pods.into_iter().partition(|(_, pod)| {
        let mut violates = false;
        for account in accounts.iter_mut().filter(|account| account.is_about(pod)) {
            account.left = account.left.saturating_sub(1);
            violates |= account.left < 0;
        }
        violates
    })
}

impl<'a> Account<'a> {
    /// What selects nothing, or makes no sense, is left out.
    fn of(budget: &'a PodDisruptionBudget) -> Option<Self> {
        let selector = Selector::from_object(budget.spec.as_ref()?.selector.as_ref()?).ok()?;
        let left = budget.status.as_ref().map_or(0, |status| status.disruptions_allowed);
        (!selector.is_empty()).then_some(Self { budget, selector, left })
    }

    fn is_about(&self, pod: &Placed) -> bool {
        let status = self.budget.status.as_ref();
        // One that is being disrupted is taken off already.
        let is_counted = || {
            let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
            disrupted.is_some_and(|disrupted| disrupted.contains_key(&*pod.name))
        };
        self.budget.metadata.namespace.as_deref() == Some(&*pod.traits.namespace)
            && pod.traits.have_labels()
            && pod.traits.are_selected_by(&self.selector)
            && !is_counted()
    }
}
