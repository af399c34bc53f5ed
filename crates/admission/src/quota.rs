//! ResourceQuota: usage and limits of the objects of a namespace (upstream's `pkg/quota/v1`).

mod scope;
mod usage;

use api::resources::{self, Amounts};
use k8s_openapi::{api::core::v1::ResourceQuota, apimachinery::pkg::api::resource::Quantity};
use std::collections::{BTreeMap, BTreeSet};
pub use usage::{Kind, Object};

/// Error of a quota, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// Containers do not set limited resources.
    #[error("failed quota: {quota}: must specify {missing}")]
    MissingResources {
        /// Name of the quota.
        quota: String,
        /// The resources and their containers.
        missing: String,
    },
    /// The quota would be exceeded.
    #[error("exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}")]
    Exceeded {
        /// Name of the quota.
        quota: String,
        /// Requested amounts of the exceeded resources.
        requested: String,
        /// Used amounts of the exceeded resources.
        used: String,
        /// Limits of the exceeded resources.
        limited: String,
    },
}

/// Returns the hard limits of a quota.
#[must_use]
pub fn hard(quota: &ResourceQuota) -> Amounts {
    resources::amounts(quota.spec.as_ref().and_then(|s| s.hard.as_ref()))
}

/// Whether a quota limits objects of this kind.
#[must_use]
pub fn counts(quota: &ResourceQuota, kind: Kind<'_>) -> bool {
    let limited = quota.spec.as_ref().and_then(|s| s.hard.as_ref());
    limited.is_some_and(|hard| hard.keys().any(|name| Kind::of(name) == Some(kind)))
}

/// Whether a quota applies to an object: its kind and the quota's scopes match.
#[must_use]
pub fn covers(quota: &ResourceQuota, object: &Object) -> bool {
    counts(quota, object.kind()) && scope::matches_scopes(quota, object)
}

/// Returns the usage of the objects that a quota applies to, for all its limits.
#[must_use]
pub fn used<'a>(quota: &ResourceQuota, objects: impl IntoIterator<Item = &'a Object>) -> Amounts {
    let mut used: Amounts = hard(quota).into_keys().map(|name| (name, resources::Amount::ZERO)).collect();
    for object in objects {
        if covers(quota, object) {
            let usage = object.usage().into_iter().filter(|(name, _)| used.contains_key(name)).collect();
            resources::add_resource_list(&mut used, &usage);
        }
    }
    used
}

/// Checks the creation of `new`, or the update from `old` to `new` (`CheckRequest`). `used` is the current usage, including `old`.
///
/// # Errors
/// If the quota would be exceeded.
pub fn check(quota: &ResourceQuota, used: &Amounts, new: &Object, old: Option<&Object>) -> Result<(), QuotaError> {
    if !covers(quota, new) {
        return Ok(());
    }
    let (name, hard) = (quota.metadata.name.as_deref().unwrap_or(""), hard(quota));
    let limited: Vec<&str> = hard.keys().map(String::as_str).collect();
    let missing = new.missing_resources(&limited);
    if !missing.is_empty() {
        let one = |(name, containers): (&&str, &BTreeSet<&str>)| {
            format!("{name} for: {}", containers.iter().copied().collect::<Vec<_>>().join(","))
        };
        let missing = missing.iter().map(one).collect::<Vec<_>>().join("; ");
        return Err(QuotaError::MissingResources { quota: name.to_owned(), missing });
    }
    let old_usage = old.filter(|old| covers(quota, old)).map(Object::usage).unwrap_or_default();
    let increase = |(name, usage): (String, resources::Amount)| {
        // A decrease is allowed even if the quota is exceeded (`SubtractWithNonNegativeResult`).
        let increase = usage.saturating_sub(old_usage.get(&name).copied().unwrap_or_default());
        (increase > resources::Amount::ZERO).then_some((name, increase))
    };
    let requested: Amounts = new.usage().into_iter().filter_map(increase).collect();
    let is_exceeded = |name: &&String| {
        let Some(limit) = hard.get(*name) else { return false };
        let sum = used.get(*name).copied().unwrap_or_default().saturating_add(requested[*name]);
        sum > *limit
    };
    let exceeded: Vec<&String> = requested.keys().filter(is_exceeded).collect();
    if exceeded.is_empty() {
        return Ok(());
    }
    let format_amounts = |amounts: &Amounts| {
        let one = |name: &&String| {
            format!("{name}={}", format_quantity(name, amounts.get(*name).copied().unwrap_or_default()).0)
        };
        exceeded.iter().map(one).collect::<Vec<_>>().join(",")
    };
    Err(QuotaError::Exceeded {
        quota: name.to_owned(),
        requested: format_amounts(&requested),
        used: format_amounts(used),
        limited: format_amounts(&hard),
    })
}

/// Returns amounts for the status of a quota.
#[must_use]
pub fn resource_list(amounts: &Amounts) -> BTreeMap<String, Quantity> {
    amounts.iter().map(|(name, amount)| (name.clone(), format_quantity(name, *amount))).collect()
}

/// Formats an amount; bytes with binary suffixes.
fn format_quantity(name: &str, amount: resources::Amount) -> Quantity {
    let bytes = name.ends_with("memory") || name.ends_with("storage") || name.contains("hugepages-");
    if bytes { amount.to_binary_quantity() } else { amount.to_quantity() }
}

#[cfg(test)]
mod tests;
