//! Cluster role aggregation: aggregated ClusterRoles get the rules of those that their selectors match
//! (`pkg/controller/clusterroleaggregation`).

use crate::{
    clients::Clients,
    names,
    worker::{self, Controller, ignore_not_found_or_conflict},
};
use api::{object_key::object_key, selector::LabelRequirements};
use informer::{WatchEvent, watch};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::{
    Api,
    api::{Patch, PatchParams},
    runtime::watcher::Config,
};
use parking_lot::Mutex;
use serde_json::json;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const MANAGER: &str = "clusterrole-aggregation-controller";

struct ClusterRoleAggregation {
    api: Api<ClusterRole>,
    /// By name, which is the order of the aggregated rules.
    roles: Mutex<BTreeMap<String, ClusterRole>>,
}

impl ClusterRoleAggregation {
    fn aggregated_roles(&self) -> Vec<String> {
        let roles = self.roles.lock();
        let made_of_others = roles.iter().filter(|(_, role)| role.aggregation_rule.is_some());
        made_of_others.map(|(name, _)| name.clone()).collect()
    }
}

/// Returns the aggregated rules without duplicates. Invalid selectors match nothing.
fn aggregated_rules(roles: &BTreeMap<String, ClusterRole>, name: &str) -> Option<Vec<PolicyRule>> {
    let selectors = roles.get(name)?.aggregation_rule.as_ref()?.cluster_role_selectors.as_deref().unwrap_or_default();
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in selectors.iter().filter_map(|s| LabelRequirements::from_object(s).ok()) {
        let label = |role: &ClusterRole| {
            let labels = role.metadata.labels.clone().unwrap_or_default();
            selector.matches(|key| labels.get(key).map(String::as_str))
        };
        for (_, part) in roles.iter().filter(|(other, role)| *other != name && label(role)) {
            for rule in part.rules.iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    Some(rules)
}

impl Controller for ClusterRoleAggregation {
    type Event = WatchEvent<ClusterRole>;

    const NAME: &'static str = names::CLUSTER_ROLE_AGGREGATION;

    fn observe(&self, event: Self::Event, _: Instant) -> Vec<String> {
        match event {
            WatchEvent::Applied(role) => drop(self.roles.lock().insert(object_key(&role.metadata), *role)),
            WatchEvent::Deleted(role) => drop(self.roles.lock().remove(&object_key(&role.metadata))),
            WatchEvent::Listed(names) => self.roles.lock().retain(|name, _| names.contains(name)),
        }
        self.aggregated_roles()
    }

    async fn reconcile(&self, name: &str, _: Instant) -> Result<Option<Duration>, kube::Error> {
        let (rules, has) = {
            let roles = self.roles.lock();
            (aggregated_rules(&roles, name), roles.get(name).and_then(|role| role.rules.clone()).unwrap_or_default())
        };
        let Some(rules) = rules else { return Ok(None) };
        if has != rules {
            let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            let patched = self.api.patch(name, &params, &Patch::Merge(json!({"rules": rules}))).await;
            ignore_not_found_or_conflict(patched)?;
        }
        Ok(None)
    }
}

pub(crate) async fn run(clients: Clients, stop: CancellationToken) {
    let api: Api<ClusterRole> = Api::all(clients.for_service_account("clusterrole-aggregation-controller"));
    let events = watch(Api::all(clients.shared()), Config::default());
    worker::run(ClusterRoleAggregation { api, roles: Mutex::default() }, events, stop).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(all: &[serde_json::Value]) -> BTreeMap<String, ClusterRole> {
        let read = |role: &serde_json::Value| {
            let role: ClusterRole = serde_json::from_value(role.clone()).unwrap_or_default();
            (object_key(&role.metadata), role)
        };
        all.iter().map(read).collect()
    }

    #[test]
    fn aggregated_rules_are_ordered_by_name_without_duplicates() {
        let part = |name: &str, verbs: &[&str]| {
            let rules: Vec<_> = verbs.iter().map(|v| json!({"verbs": [v]})).collect();
            json!({"metadata": {"name": name, "labels": {"to": "a"}}, "rules": rules})
        };
        let selectors = json!([{"matchLabels": {"to": "a"}}, {"matchLabels": {"to": "b"}}]);
        let mut all = vec![
            part("z", &["get"]),
            part("m", &["list", "get"]),
            json!({"metadata": {"name": "b", "labels": {"to": "b"}}, "rules": [{"verbs": ["watch"]}]}),
            json!({"metadata": {"name": "other"}, "rules": [{"verbs": ["*"]}]}),
            json!({"metadata": {"name": "a", "labels": {"to": "a"}}, "rules": [{"verbs": ["own"]}],
                "aggregationRule": {"clusterRoleSelectors": selectors}}),
        ];
        let verbs = |all: &[serde_json::Value], name: &str| {
            let rules = aggregated_rules(&roles(all), name)?;
            Some(rules.into_iter().flat_map(|rule| rule.verbs).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(verbs(&all, "a").as_deref(), Some("list get watch"));
        assert_eq!(verbs(&all, "m"), None);
        all[4]["aggregationRule"] = json!({});
        assert_eq!(verbs(&all, "a").as_deref(), Some(""));
    }
}
