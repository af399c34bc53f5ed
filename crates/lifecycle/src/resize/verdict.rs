//! Whether a node takes a Pod with the resources that it asks for (upstream's allocation manager).

use api::{quantity::Amount, resources::Amounts};
use serde::{Deserialize, Serialize};

/// Whether a node takes a Pod with the resources that it asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResizeVerdict {
    /// It does.
    Fits,
    /// Not now: other Pods have what it wants.
    Deferred {
        /// Human-readable message.
        message: String,
    },
    /// Never: the node has not that much.
    Infeasible {
        /// Human-readable message.
        message: String,
    },
}

/// Decides upon what a Pod asks for as a whole; `used` is what the other Pods of the node take of `allocatable`.
#[must_use]
pub fn decide(wanted: &Amounts, used: &Amounts, allocatable: &Amounts) -> ResizeVerdict {
    let amount = |amounts: &Amounts, name: &str| amounts.get(name).copied().unwrap_or_default();
    // Plain numbers, as upstream has them: thousandths of CPUs, and bytes.
    let shown = |name: &str, a: Amount| if name == "cpu" { a.milli() } else { a.value() };
    for name in ["memory", "cpu"] {
        let (wanted, capacity) = (amount(wanted, name), amount(allocatable, name));
        if wanted > capacity {
            let (wanted, capacity) = (shown(name, wanted), shown(name, capacity));
            let message =
                format!("Node didn't have enough capacity: {name}, requested: {wanted}, capacity: {capacity}");
            return ResizeVerdict::Infeasible { message };
        }
    }
    for name in ["cpu", "memory"] {
        let (wanted, used, capacity) = (amount(wanted, name), amount(used, name), amount(allocatable, name));
        if !wanted.is_zero() && used.plus(wanted) > capacity {
            let [wanted, used, capacity] = [wanted, used, capacity].map(|a| shown(name, a));
            let message = format!(
                "Node didn't have enough resource: {name}, requested: {wanted}, used: {used}, capacity: {capacity}"
            );
            return ResizeVerdict::Deferred { message };
        }
    }
    ResizeVerdict::Fits
}
