//! Resize feasibility (upstream's allocation manager, `canResizePod`).

use api::{quantity::Amount, resources::Amounts};
use serde::{Deserialize, Serialize};

/// Decision on a resize request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResizeDecision {
    /// It fits.
    Fits,
    /// Other Pods use the resources now.
    Deferred {
        /// Human-readable message.
        message: String,
    },
    /// The node's allocatable resources are too small.
    Infeasible {
        /// Human-readable message.
        message: String,
    },
}

/// Decides whether the desired resources of the whole Pod fit; `used` is the sum of the other Pods on the node.
#[must_use]
pub fn decide(desired: &Amounts, used: &Amounts, allocatable: &Amounts) -> ResizeDecision {
    let amount = |amounts: &Amounts, name: &str| amounts.get(name).copied().unwrap_or_default();
    // Upstream prints millicores and bytes.
    let units = |name: &str, a: Amount| if name == "cpu" { a.milli() } else { a.value() };
    for name in ["memory", "cpu"] {
        let (desired, capacity) = (amount(desired, name), amount(allocatable, name));
        if desired > capacity {
            let (desired, capacity) = (units(name, desired), units(name, capacity));
            let message =
                format!("Node didn't have enough capacity: {name}, requested: {desired}, capacity: {capacity}");
            return ResizeDecision::Infeasible { message };
        }
    }
    for name in ["cpu", "memory"] {
        let (desired, used, capacity) = (amount(desired, name), amount(used, name), amount(allocatable, name));
        if !desired.is_zero() && used.saturating_add(desired) > capacity {
            let [desired, used, capacity] = [desired, used, capacity].map(|a| units(name, a));
            let message = format!(
                "Node didn't have enough resource: {name}, requested: {desired}, used: {used}, capacity: {capacity}"
            );
            return ResizeDecision::Deferred { message };
        }
    }
    ResizeDecision::Fits
}
