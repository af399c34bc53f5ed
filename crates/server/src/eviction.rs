//! Eviction: a deletion that a Pod's disruption budget may forbid (`pkg/registry/core/pod/storage/eviction.go`).

use crate::{
    admit::outside,
    authorization::node::{self, End},
    delete::{self, Options},
    kinds::{BUDGET, Kind, selector},
    object, pods,
    request::Resource,
    response::{self, Reply},
    service::{ApiServer, Call},
    status::ApiError,
    write::{dry_run, now},
};
use serde_json::{Value, json};
use store::{Allowance, Expect, Key, Object, Revision, Scope, Write, WriteError};

/// How often a write is tried again when another came first.
const TRIES: usize = 20;
/// So many Pods may be on their way out before the controller has seen any.
const MOST_DISRUPTED: usize = 2000;
const CAUSE: &str = "DisruptionBudget";

/// What a Pod's budget says.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// It counts: one less may be evicted.
    Counts,
    /// It was not counted, and may go as long as it stays that way.
    WhileUnhealthy,
}

pub(crate) async fn answer(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    let name = resource.name.as_deref().unwrap_or("");
    let (mut eviction, dry) = (pods::body(resource, call, "Eviction")?, dry_run(&call.query, "CreateOptions")?);
    let dry = dry || Options::from_json(&eviction["deleteOptions"], call)?.dry_run;
    outside::body(server, resource, call, ["policy", "v1", "Eviction"], &mut eviction, dry).await?;
    let mut options = Options::from_json(&eviction["deleteOptions"], call)?;
    options.dry_run |= dry;
    let key = object::key(&*resource.kind, &resource.namespace, name);
    node::restrict_end(server, &call.user, resource, &key, End::Evict)?;
    let mut tries = 0..TRIES;
    loop {
        let (stored, pod) = read(server, resource, &key)?;
        // What has ended, or ends, or has not begun, is not missed. The latter must not begin meanwhile.
        let at = if is_not_missed(&pod) {
            (pod["status"]["phase"] == "Pending" && pod["metadata"]["deletionTimestamp"].is_null()).then_some(stored)
        } else {
            match ask(server, resource, &pod, options.dry_run).await? {
                None | Some((Verdict::Counts, _)) => None,
                Some((Verdict::WhileUnhealthy, budget)) => {
                    if !options.dry_run && !disrupt(server, resource, &key, &mut options, Some(stored)).await? {
                        return Err(busy(&budget));
                    }
                    break;
                }
            }
        };
        if options.dry_run || disrupt(server, resource, &key, &mut options, at).await? {
            break;
        }
        if tries.next().is_none() {
            return Err(ApiError::modified(resource.kind.info(), name));
        }
    }
    delete::delete(server, resource, &key, &options).await?;
    Ok(response::json(201, &pods::success()))
}

fn read(server: &ApiServer, resource: &Resource, key: &Key) -> Result<(Revision, Value), ApiError> {
    let current = server.store.get(key).ok_or_else(|| ApiError::not_found(resource.kind.info(), &key.name))?;
    Ok((current.revision, object::decode(&*resource.kind, &current)))
}

/// `canIgnorePDB`.
fn is_not_missed(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or("");
    matches!(phase, "Succeeded" | "Failed" | "Pending") || !pod["metadata"]["deletionTimestamp"].is_null()
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Asks the Pod's budget, and takes from it; gives what it says, and what it is called.
async fn ask(
    server: &ApiServer,
    resource: &Resource,
    pod: &Value,
    dry: bool,
) -> Result<Option<(Verdict, String)>, ApiError> {
    for _ in 0..TRIES {
        let mut budgets = budgets(server, &resource.namespace, pod);
        let Some((stored, mut budget)) = budgets.pop() else { return Ok(None) };
        if !budgets.is_empty() {
            let message =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(ApiError::new(500, "", message));
        }
        let name = budget["metadata"]["name"].as_str().unwrap_or("").to_owned();
        if verdict(&budget, is_ready(pod))? == Verdict::WhileUnhealthy {
            return Ok(Some((Verdict::WhileUnhealthy, name)));
        }
        if dry {
            return Ok(Some((Verdict::Counts, name)));
        }
        take(&mut budget, pod["metadata"]["name"].as_str().unwrap_or(""));
        let write = Write::put(stored.key.clone(), Expect::Revision(stored.revision), object::encode(BUDGET, budget)?);
        match server.store.write(write.with_allowance(Allowance::Unlimited)).await {
            Ok(_) => return Ok(Some((Verdict::Counts, name))),
            Err(WriteError::Conflict { .. }) => {}
            Err(e) => return Err(ApiError::from_write(&e, BUDGET.info(), &name)),
        }
    }
    let message = "couldn't update PodDisruptionBudget due to conflicts";
    Err(ApiError::new(504, "Timeout", message).with_retry_after(10))
}

/// The budgets that select a Pod.
fn budgets(server: &ApiServer, namespace: &str, pod: &Value) -> Vec<(Object, Value)> {
    let scope = Scope::resource(BUDGET.info().storage).in_namespace(namespace);
    let all = server.store.list(&scope, None, None).objects.into_iter();
    let all = all.map(|stored| {
        let budget = object::decode(BUDGET, &stored);
        (stored, budget)
    });
    let labels = &pod["metadata"]["labels"];
    all.filter(|(_, budget)| selector::selects(&budget["spec"]["selector"], labels) == Some(true)).collect()
}

/// Whether a budget lets a Pod go (`checkAndDecrement`).
fn verdict(budget: &Value, ready: bool) -> Result<Verdict, ApiError> {
    let (status, name) = (&budget["status"], budget["metadata"]["name"].as_str().unwrap_or(""));
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let (current, desired, allowed) =
        (number("currentHealthy"), number("desiredHealthy"), number("disruptionsAllowed"));
    if !ready {
        let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
        if always || (current >= desired && desired > 0) {
            return Ok(Verdict::WhileUnhealthy);
        }
    }
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        return Err(busy(name));
    }
    if allowed < 0 {
        return Err(ApiError::forbidden(BUDGET.info(), name, "pdb disruptions allowed is negative"));
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MOST_DISRUPTED) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(ApiError::forbidden(BUDGET.info(), name, why));
    }
    if allowed > 0 {
        return Ok(Verdict::Counts);
    }
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let failed =
        conditions.find(|c| c["type"] == "DisruptionAllowed" && c["status"] == "False" && c["reason"] == "SyncFailed");
    let why = match failed {
        Some(failed) => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            failed["message"].as_str().unwrap_or("")
        ),
        None => format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently"),
    };
    Err(refused().with_cause(CAUSE, &why, ""))
}

fn refused() -> ApiError {
    ApiError::new(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
}

/// The controller has not come to it yet.
fn busy(budget: &str) -> ApiError {
    let why = format!("The disruption budget {budget} is still being processed by the server.");
    refused().with_cause(CAUSE, &why, "").with_retry_after(10)
}

/// One less may go; the controller counts this Pod no more, though it is still there.
fn take(budget: &mut Value, pod: &str) {
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

/// Says in the Pod's status why it goes, before it goes (`addConditionAndDeletePod`); `false` when the Pod must be as it
/// was at a revision, and is not. A precondition on its version holds for what it is from then on.
async fn disrupt(
    server: &ApiServer,
    resource: &Resource,
    key: &Key,
    options: &mut Options,
    at: Option<Revision>,
) -> Result<bool, ApiError> {
    let kind: &dyn Kind = &*resource.kind;
    for _ in 0..TRIES {
        let (revision, mut pod) = read(server, resource, key)?;
        delete::check_preconditions(resource, &pod, &key.name, options)?;
        if at.is_some_and(|at| at != revision) {
            return Ok(false);
        }
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastTransitionTime": now(),
            "observedGeneration": pod["metadata"]["generation"],
        });
        pods::set_condition(&mut pod, condition);
        let write = Write::put(key.clone(), Expect::Revision(revision), object::encode(kind, pod)?);
        match server.store.write(write.with_allowance(Allowance::Unlimited)).await {
            Ok(written) => {
                options.revision = options.revision.take().map(|_| written.revision.to_string());
                return Ok(true);
            }
            Err(WriteError::Conflict { .. }) => {}
            Err(e) => return Err(ApiError::from_write(&e, kind.info(), &key.name)),
        }
    }
    Err(ApiError::modified(kind.info(), &key.name))
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
    fn refused_for(budget: &Value, ready: bool, code: u16, why: &str) {
        let error = verdict(budget, ready).unwrap_err();
        assert_eq!(error.code, code);
        let status = error.to_json();
        let cause = &status["details"]["causes"][0];
        assert!(cause["message"] == why || error.message.ends_with(why), "{status}");
    }

    #[test]
    fn a_budget_lets_a_healthy_pod_go_while_there_are_enough() {
        assert_eq!(verdict(&budget(json!({})), true).unwrap(), Verdict::Counts);
        let none = budget(json!({"currentHealthy": 2, "disruptionsAllowed": 0}));
        refused_for(&none, true, 429, "The disruption budget b needs 2 healthy pods and has 2 currently");
        let new = budget(json!({"observedGeneration": 1}));
        refused_for(&new, true, 429, "The disruption budget b is still being processed by the server.");
        refused_for(&budget(json!({"disruptionsAllowed": -1})), true, 403, "pdb disruptions allowed is negative");
        let failed =
            json!([{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "why"}]);
        let failed = budget(json!({"disruptionsAllowed": 0, "conditions": failed}));
        let why = "The disruption budget b does not allow evicting pods currently because it failed sync: why";
        refused_for(&failed, true, 429, why);
    }

    #[test]
    fn a_pod_that_is_not_healthy_goes_while_the_others_are_enough_or_always() {
        let exact = budget(json!({"currentHealthy": 2, "disruptionsAllowed": 0}));
        assert_eq!(verdict(&exact, false).unwrap(), Verdict::WhileUnhealthy);
        let mut few = budget(json!({"currentHealthy": 1, "disruptionsAllowed": 0}));
        refused_for(&few, false, 429, "The disruption budget b needs 2 healthy pods and has 1 currently");
        few["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
        assert_eq!(verdict(&few, false).unwrap(), Verdict::WhileUnhealthy);
    }

    #[test]
    fn what_is_taken_from_a_budget_is_missing_in_it() {
        let allowed = json!([{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods"}]);
        let mut budget = budget(json!({"conditions": allowed}));
        take(&mut budget, "p");
        let status = &budget["status"];
        assert_eq!((&status["disruptionsAllowed"], status["disruptedPods"]["p"].is_string()), (&json!(0), true));
        assert_eq!(
            (&status["conditions"][0]["status"], &status["conditions"][0]["reason"]),
            (&json!("False"), &json!("InsufficientPods"))
        );
    }
}
