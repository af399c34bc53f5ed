//! PodDisruptionBudgets in preemption (`filterPodsWithPDBViolation`).

use crate::{cache::AssignedPod, victims::Pods};
use api::selector::LabelRequirements;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use std::{collections::BTreeMap, sync::Arc};

/// PodDisruptionBudget with its remaining disruptions.
struct BudgetState<'a> {
    pdb: &'a PodDisruptionBudget,
    selector: LabelRequirements,
    disruptions_left: i32,
}

/// Splits Pods into those whose disruption would violate a budget, and the others. Earlier Pods use up the allowed
/// disruptions.
pub(crate) fn split_by_pdb_violation<'a>(
    pods: Pods<'a>,
    budgets: &BTreeMap<String, Arc<PodDisruptionBudget>>,
) -> (Pods<'a>, Pods<'a>) {
    let mut budget_states: Vec<BudgetState<'_>> =
        budgets.values().filter_map(|budget| BudgetState::of(budget)).collect();
    pods.into_iter().partition(|(_, pod)| {
        let mut violates = false;
        for budget in budget_states.iter_mut().filter(|budget| budget.matches(pod)) {
            budget.disruptions_left = budget.disruptions_left.saturating_sub(1);
            violates |= budget.disruptions_left < 0;
        }
        violates
    })
}

impl<'a> BudgetState<'a> {
    /// Parses a budget; `None` if its selector is empty or invalid.
    fn of(pdb: &'a PodDisruptionBudget) -> Option<Self> {
        let selector = LabelRequirements::from_object(pdb.spec.as_ref()?.selector.as_ref()?).ok()?;
        let disruptions_left = pdb.status.as_ref().map_or(0, |status| status.disruptions_allowed);
        (!selector.is_empty()).then_some(Self { pdb, selector, disruptions_left })
    }

    fn matches(&self, pod: &AssignedPod) -> bool {
        let status = self.pdb.status.as_ref();
        // The status already counts Pods in `disruptedPods`.
        let is_counted = || {
            let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
            disrupted.is_some_and(|disrupted| disrupted.contains_key(&*pod.name))
        };
        self.pdb.metadata.namespace.as_deref() == Some(&*pod.info.namespace)
            && pod.info.has_labels()
            && pod.info.is_selected_by(&self.selector)
            && !is_counted()
    }
}
