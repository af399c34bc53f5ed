//! Pod failure policy and success policy of a Job.

use super::indexes::Indexes;
use crate::pod_summary::{JobPodSummary, PodSummary};
use k8s_openapi::api::batch::v1::{PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, SuccessPolicy};

/// Effect of a failed Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FailureAction {
    /// It counts towards the back-off limit.
    Count,
    /// It does not count.
    Ignore,
    /// Its index fails, regardless of its back-off limit.
    FailIndex,
    /// The Job fails, with this message.
    FailJob(String),
}

/// Returns the effect of a failed Pod: the first matching rule applies (`matchPodFailurePolicy`).
pub(super) fn match_pod_failure_policy(policy: Option<&PodFailurePolicy>, pod: &PodSummary) -> FailureAction {
    let (nothing, name) = (JobPodSummary::default(), format!("{}/{}", pod.namespace, pod.name));
    let part = pod.job.as_deref().unwrap_or(&nothing);
    for (at, rule) in policy.into_iter().flat_map(|p| &p.rules).enumerate() {
        let action = rule.action.as_str();
        let message = if let Some(codes) = &rule.on_exit_codes {
            let container = part.exits.iter().find(|(container, code)| fits(codes, container, *code));
            container.map(|(container, code)| {
                format!("Container {container} for pod {name} failed with exit code {code} matching {action} rule at index {at}")
            })
        } else {
            let patterns = rule.on_pod_conditions.as_deref().unwrap_or_default();
            let fits = |(kind, status): &&(String, String)| {
                patterns.iter().any(|p| p.type_ == *kind && p.status.as_deref().unwrap_or("True") == *status)
            };
            let condition = part.conditions.iter().find(fits);
            condition.map(|(kind, _)| format!("Pod {name} has condition {kind} matching {action} rule at index {at}"))
        };
        let Some(message) = message else { continue };
        match action {
            "Ignore" => return FailureAction::Ignore,
            "FailIndex" => return FailureAction::FailIndex,
            "FailJob" => return FailureAction::FailJob(message),
            "Count" => return FailureAction::Count,
            _ => {}
        }
    }
    FailureAction::Count
}

fn fits(rule: &PodFailurePolicyOnExitCodesRequirement, container: &str, code: i32) -> bool {
    let named = rule.container_name.as_deref().is_none_or(|name| name == container);
    let listed = rule.values.contains(&code);
    named && code != 0 && if rule.operator == "NotIn" { !listed } else { listed }
}

/// Returns the message of the success policy's first rule that is met (`matchSuccessPolicy`).
pub(super) fn match_success_policy(
    policy: Option<&SuccessPolicy>,
    completions: i32,
    indexes: &Indexes,
) -> Option<String> {
    let rules = policy.filter(|_| !indexes.is_empty())?.rules.iter().enumerate();
    let mut met = rules.filter(|(_, rule)| match &rule.succeeded_indexes {
        Some(rule_indexes) => {
            let rule_indexes = Indexes::parse(rule_indexes, completions);
            let common = rule_indexes.common(indexes);
            !rule_indexes.is_empty()
                && (common == rule_indexes.total() || rule.succeeded_count.is_some_and(|count| common >= count))
        }
        None => rule.succeeded_count.is_some_and(|count| indexes.total() >= count),
    });
    met.next().map(|(at, _)| format!("Matched rules at index {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(exits: &[(&str, i32)], conditions: &[(&str, &str)]) -> PodSummary {
        let part = JobPodSummary {
            exits: exits.iter().map(|(name, code)| ((*name).to_owned(), *code)).collect(),
            conditions: conditions.iter().map(|(k, s)| ((*k).to_owned(), (*s).to_owned())).collect(),
            ..JobPodSummary::default()
        };
        PodSummary { namespace: "x".into(), name: "p".into(), job: Some(Box::new(part)), ..PodSummary::default() }
    }

    #[track_caller]
    fn check(rules: Value, pod: &PodSummary, expected: FailureAction) {
        let policy = serde_json::from_value(json!({"rules": rules})).unwrap();
        assert_eq!(match_pod_failure_policy(Some(&policy), pod), expected);
    }

    #[test]
    fn first_matching_failure_policy_rule_applies() {
        let on = |action: &str, operator: &str, values: &[i32]| json!({"action": action, "onExitCodes": {"operator": operator, "values": values}});
        let rules = json!([on("Ignore", "In", &[3]), on("FailJob", "In", &[4, 5]), on("FailIndex", "NotIn", &[9])]);
        check(rules.clone(), &pod(&[("c", 3)], &[]), FailureAction::Ignore);
        check(rules.clone(), &pod(&[("c", 9)], &[]), FailureAction::Count);
        check(rules.clone(), &pod(&[("c", 1)], &[]), FailureAction::FailIndex);
        let message = "Container b for pod x/p failed with exit code 5 matching FailJob rule at index 1";
        check(rules.clone(), &pod(&[("a", 0), ("b", 5)], &[]), FailureAction::FailJob(message.into()));
        check(json!([on("FailIndex", "NotIn", &[9])]), &pod(&[("c", 0)], &[]), FailureAction::Count);
        assert_eq!(match_pod_failure_policy(None, &pod(&[("c", 3)], &[])), FailureAction::Count);
    }

    #[test]
    fn failure_policy_matches_containers_and_conditions() {
        let named =
            json!([{"action": "FailJob", "onExitCodes": {"containerName": "a", "operator": "In", "values": [1]}}]);
        check(named, &pod(&[("b", 1)], &[]), FailureAction::Count);
        let disrupted =
            json!([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]);
        check(disrupted.clone(), &pod(&[], &[("DisruptionTarget", "True")]), FailureAction::Ignore);
        check(disrupted, &pod(&[], &[("DisruptionTarget", "False")]), FailureAction::Count);
        let fatal = json!([{"action": "FailJob", "onPodConditions": [{"type": "Fatal", "status": "True"}]}]);
        let message = "Pod x/p has condition Fatal matching FailJob rule at index 0";
        check(fatal, &pod(&[], &[("Fatal", "True")]), FailureAction::FailJob(message.into()));
    }

    #[test]
    fn success_policy_is_met_by_one_rule() {
        let met = |rules: Value, done: &str| {
            let policy = serde_json::from_value(json!({"rules": rules})).unwrap();
            match_success_policy(Some(&policy), 10, &Indexes::parse(done, 10))
        };
        let first = Some("Matched rules at index 0".to_owned());
        assert_eq!(met(json!([{"succeededIndexes": "0,2-3"}]), "0,2,3"), first);
        assert_eq!(met(json!([{"succeededIndexes": "0,2-3"}]), "0,2"), None);
        assert_eq!(met(json!([{"succeededIndexes": "0,2-3", "succeededCount": 2}]), "0,2"), first);
        assert_eq!(
            met(json!([{"succeededCount": 3}, {"succeededIndexes": "9"}]), "9"),
            Some("Matched rules at index 1".into())
        );
        assert_eq!(met(json!([{"succeededCount": 1}]), ""), None);
    }
}
