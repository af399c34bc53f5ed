//! Eviction: a deletion that respects PodDisruptionBudgets (`pkg/registry/core/pod/storage/eviction.go`).

use crate::{
    admission::{
        dynamic,
        node_restriction::{self, Removal},
    },
    http::clock::now,
    objects::{call::Call, object, request_scope::RequestScope, storage_errors, write::dry_run},
    registry::pod_binding,
    rest::{
        delete::{self, DeletionOptions},
        generic_registry::GenericRegistry,
    },
};
use errors::ApiError;
use kinds::{Kind, POD_DISRUPTION_BUDGET, selector};
use response::HandlerResult;
use serde_json::{Value, json};
use store::{Key, Object, Precondition, QuotaAllowance, Revision, Scope, Write, WriteError};

/// Attempts of a write that conflicts (upstream's `EvictionsRetry`).
const MAX_ATTEMPTS: usize = 20;
/// Maximal size of `disruptedPods` (upstream's `MaxDisruptedPodSize`).
const MAX_DISRUPTED_POD_SIZE: usize = 2000;
const CAUSE: &str = "DisruptionBudget";

/// Result of checking a PodDisruptionBudget.
#[derive(Debug, PartialEq)]
enum BudgetCheck {
    /// Allowed; it decrements `disruptionsAllowed`.
    Decrements,
    /// Allowed without decrement, if the Pod is still unhealthy when it is deleted.
    WhileUnhealthy,
}

pub(crate) async fn answer(registry: &GenericRegistry, resource: &RequestScope, call: &Call) -> HandlerResult {
    let name = resource.name.as_deref().unwrap_or("");
    let (mut eviction, dry) = (pod_binding::body(resource, call, "Eviction")?, dry_run(&call.query, "CreateOptions")?);
    let dry = dry || DeletionOptions::from_json(&eviction["deleteOptions"], call)?.dry_run;
    dynamic::admit_body(&registry.admission, resource, call, ["policy", "v1", "Eviction"], &mut eviction, dry).await?;
    let mut options = DeletionOptions::from_json(&eviction["deleteOptions"], call)?;
    options.dry_run |= dry;
    let key = object::key(&*resource.kind, &resource.namespace, name);
    node_restriction::restrict_removal(&registry.store, &call.user, resource, &key, Removal::Evict)?;
    let mut tries = 0..MAX_ATTEMPTS;
    loop {
        let (stored, pod) = get_pod(registry, resource, &key)?;
        // Finished, terminating and pending Pods bypass budgets. A pending Pod must not start meanwhile.
        let expected_revision = if can_ignore_pdb(&pod) {
            (pod["status"]["phase"] == "Pending" && pod["metadata"]["deletionTimestamp"].is_null()).then_some(stored)
        } else {
            match check_and_decrement(registry, resource, &pod, options.dry_run).await? {
                None | Some((BudgetCheck::Decrements, _)) => None,
                Some((BudgetCheck::WhileUnhealthy, budget)) => {
                    if !options.dry_run
                        && !add_disruption_target(registry, resource, &key, &mut options, Some(stored)).await?
                    {
                        return Err(not_observed(&budget));
                    }
                    break;
                }
            }
        };
        if options.dry_run || add_disruption_target(registry, resource, &key, &mut options, expected_revision).await? {
            break;
        }
        if tries.next().is_none() {
            return Err(ApiError::optimistic_lock_conflict(resource.kind.info(), name));
        }
    }
    delete::delete_object(registry, resource, &key, &options).await?;
    Ok(response::json(201, &pod_binding::success()))
}

fn get_pod(registry: &GenericRegistry, resource: &RequestScope, key: &Key) -> Result<(Revision, Value), ApiError> {
    let current = registry.store.get(key).ok_or_else(|| ApiError::not_found(resource.kind.info(), &key.name))?;
    Ok((current.revision, object::decode(&*resource.kind, &current)))
}

/// `canIgnorePDB`.
fn can_ignore_pdb(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or("");
    matches!(phase, "Succeeded" | "Failed" | "Pending") || !pod["metadata"]["deletionTimestamp"].is_null()
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Checks the Pod's budget and decrements it; returns the result and the budget's name.
async fn check_and_decrement(
    registry: &GenericRegistry,
    resource: &RequestScope,
    pod: &Value,
    dry: bool,
) -> Result<Option<(BudgetCheck, String)>, ApiError> {
    for _ in 0..MAX_ATTEMPTS {
        let mut budgets = budgets(registry, &resource.namespace, pod);
        let Some((stored, mut budget)) = budgets.pop() else { return Ok(None) };
        if !budgets.is_empty() {
            let message =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(ApiError::new(500, "", message));
        }
        let name = budget["metadata"]["name"].as_str().unwrap_or("").to_owned();
        if check_budget(&budget, is_ready(pod))? == BudgetCheck::WhileUnhealthy {
            return Ok(Some((BudgetCheck::WhileUnhealthy, name)));
        }
        if dry {
            return Ok(Some((BudgetCheck::Decrements, name)));
        }
        decrement(&mut budget, pod["metadata"]["name"].as_str().unwrap_or(""));
        let write = Write::put(
            stored.key.clone(),
            Precondition::Revision(stored.revision),
            object::encode(POD_DISRUPTION_BUDGET, budget)?,
        );
        match registry.store.write(write.with_allowance(QuotaAllowance::Unlimited)).await {
            Ok(_) => return Ok(Some((BudgetCheck::Decrements, name))),
            Err(WriteError::Conflict { .. }) => {}
            Err(e) => return Err(storage_errors::from_write_error(&e, POD_DISRUPTION_BUDGET.info(), &name)),
        }
    }
    let message = "couldn't update PodDisruptionBudget due to conflicts";
    Err(ApiError::new(504, "Timeout", message).with_retry_after(10))
}

/// Returns the budgets that select a Pod.
fn budgets(registry: &GenericRegistry, namespace: &str, pod: &Value) -> Vec<(Object, Value)> {
    let scope = Scope::resource(POD_DISRUPTION_BUDGET.info().storage).in_namespace(namespace);
    let all = registry.store.list(&scope, None, None).objects.into_iter();
    let all = all.map(|stored| {
        let budget = object::decode(POD_DISRUPTION_BUDGET, &stored);
        (stored, budget)
    });
    let labels = &pod["metadata"]["labels"];
    all.filter(|(_, budget)| selector::matches(&budget["spec"]["selector"], labels) == Some(true)).collect()
}

/// Checks whether a budget allows an eviction (`checkAndDecrement`).
fn check_budget(budget: &Value, ready: bool) -> Result<BudgetCheck, ApiError> {
    let (status, name) = (&budget["status"], budget["metadata"]["name"].as_str().unwrap_or(""));
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let (current, desired, allowed) =
        (number("currentHealthy"), number("desiredHealthy"), number("disruptionsAllowed"));
    if !ready {
        let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
        if always || (current >= desired && desired > 0) {
            return Ok(BudgetCheck::WhileUnhealthy);
        }
    }
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        return Err(not_observed(name));
    }
    if allowed < 0 {
        return Err(ApiError::forbidden(POD_DISRUPTION_BUDGET.info(), name, "pdb disruptions allowed is negative"));
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MAX_DISRUPTED_POD_SIZE) {
        let message = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(ApiError::forbidden(POD_DISRUPTION_BUDGET.info(), name, message));
    }
    if allowed > 0 {
        return Ok(BudgetCheck::Decrements);
    }
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let failed =
        conditions.find(|c| c["type"] == "DisruptionAllowed" && c["status"] == "False" && c["reason"] == "SyncFailed");
    let message = match failed {
        Some(failed) => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            failed["message"].as_str().unwrap_or("")
        ),
        None => format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently"),
    };
    Err(too_many_requests().with_cause(CAUSE, &message, ""))
}

fn too_many_requests() -> ApiError {
    ApiError::new(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
}

/// Returns a 429: the controller has not observed the budget yet.
fn not_observed(budget: &str) -> ApiError {
    let message = format!("The disruption budget {budget} is still being processed by the server.");
    too_many_requests().with_cause(CAUSE, &message, "").with_retry_after(10)
}

/// Decrements `disruptionsAllowed`, and adds the Pod to `disruptedPods`, so that the controller no longer counts it.
fn decrement(budget: &mut Value, pod: &str) {
    let status = &mut budget["status"];
    let left = status["disruptionsAllowed"].as_i64().unwrap_or(0) - 1;
    status["disruptionsAllowed"] = json!(left);
    status["disruptedPods"][pod] = json!(now());
    if left > 0 {
        return;
    }
    let observed = status["observedGeneration"].clone();
    let conditions = status["conditions"].as_array_mut().into_iter().flatten();
    for condition in conditions.filter(|c| c["type"] == "DisruptionAllowed") {
        if condition["status"] != "False" {
            condition["lastTransitionTime"] = json!(now());
        }
        condition["status"] = json!("False");
        condition["reason"] = json!("InsufficientPods");
        condition["observedGeneration"] = observed.clone();
    }
}

/// Sets the condition `DisruptionTarget` before the deletion (`addConditionAndDeletePod`); returns `false` when the Pod is
/// no longer at the expected revision. A `resourceVersion` precondition is updated to the written revision.
async fn add_disruption_target(
    registry: &GenericRegistry,
    resource: &RequestScope,
    key: &Key,
    options: &mut DeletionOptions,
    expected_revision: Option<Revision>,
) -> Result<bool, ApiError> {
    let kind: &dyn Kind = &*resource.kind;
    for _ in 0..MAX_ATTEMPTS {
        let (revision, mut pod) = get_pod(registry, resource, key)?;
        delete::check_preconditions(resource, &pod, &key.name, options)?;
        if expected_revision.is_some_and(|expected| expected != revision) {
            return Ok(false);
        }
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastTransitionTime": now(),
            "observedGeneration": pod["metadata"]["generation"],
        });
        pod_binding::set_condition(&mut pod, condition);
        let write = Write::put(key.clone(), Precondition::Revision(revision), object::encode(kind, pod)?);
        match registry.store.write(write.with_allowance(QuotaAllowance::Unlimited)).await {
            Ok(written) => {
                options.revision = options.revision.take().map(|_| written.revision.to_string());
                return Ok(true);
            }
            Err(WriteError::Conflict { .. }) => {}
            Err(e) => return Err(storage_errors::from_write_error(&e, kind.info(), &key.name)),
        }
    }
    Err(ApiError::optimistic_lock_conflict(kind.info(), &key.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(status: Value) -> Value {
        let mut all =
            json!({"observedGeneration": 2, "currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": 1});
        for (field, value) in status.as_object().unwrap() {
            all[field] = value.clone();
        }
        json!({"metadata": {"name": "b", "generation": 2}, "spec": {}, "status": all})
    }

    #[track_caller]
    fn check_rejected(budget: &Value, ready: bool, code: u16, message: &str) {
        let error = check_budget(budget, ready).unwrap_err();
        assert_eq!(error.code, code);
        let status = error.to_json();
        let cause = &status["details"]["causes"][0];
        assert!(cause["message"] == message || error.message.ends_with(message), "{status}");
    }

    #[test]
    fn healthy_pod_is_evicted_while_budget_allows() {
        assert_eq!(check_budget(&budget(json!({})), true).unwrap(), BudgetCheck::Decrements);
        let none = budget(json!({"currentHealthy": 2, "disruptionsAllowed": 0}));
        check_rejected(&none, true, 429, "The disruption budget b needs 2 healthy pods and has 2 currently");
        let new = budget(json!({"observedGeneration": 1}));
        check_rejected(&new, true, 429, "The disruption budget b is still being processed by the server.");
        check_rejected(&budget(json!({"disruptionsAllowed": -1})), true, 403, "pdb disruptions allowed is negative");
        let failed =
            json!([{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "why"}]);
        let failed = budget(json!({"disruptionsAllowed": 0, "conditions": failed}));
        let message = "The disruption budget b does not allow evicting pods currently because it failed sync: why";
        check_rejected(&failed, true, 429, message);
    }

    #[test]
    fn unhealthy_pod_is_evicted_by_unhealthy_policy() {
        let exact = budget(json!({"currentHealthy": 2, "disruptionsAllowed": 0}));
        assert_eq!(check_budget(&exact, false).unwrap(), BudgetCheck::WhileUnhealthy);
        let mut few = budget(json!({"currentHealthy": 1, "disruptionsAllowed": 0}));
        check_rejected(&few, false, 429, "The disruption budget b needs 2 healthy pods and has 1 currently");
        few["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
        assert_eq!(check_budget(&few, false).unwrap(), BudgetCheck::WhileUnhealthy);
    }

    #[test]
    fn eviction_decrements_disruptions_allowed() {
        let allowed = json!([{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods"}]);
        let mut budget = budget(json!({"conditions": allowed}));
        decrement(&mut budget, "p");
        let status = &budget["status"];
        assert_eq!((&status["disruptionsAllowed"], status["disruptedPods"]["p"].is_string()), (&json!(0), true));
        assert_eq!(
            (&status["conditions"][0]["status"], &status["conditions"][0]["reason"]),
            (&json!("False"), &json!("InsufficientPods"))
        );
    }
}
