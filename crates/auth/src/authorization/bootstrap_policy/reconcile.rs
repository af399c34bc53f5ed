//! Reconciliation of an existing role or binding with the default one (`component-helpers/auth/rbac/reconciliation`):
//! missing rules and subjects are added, and none are removed. Does no I/O.

use super::AUTOUPDATE;
use crate::authorization::{policy_comparator, policy_rule::PolicyRule};
use serde_json::{Value, json};

/// How to reconcile an object.
#[derive(Debug, PartialEq)]
pub enum ReconcileOperation {
    /// It is as desired.
    None,
    /// Update to this object.
    Update(Value),
    /// Delete and create: the role reference differs and is immutable.
    Recreate,
}

/// Compares an existing object with the default one.
pub fn reconcile(existing: &Value, desired: &Value) -> ReconcileOperation {
    if existing["metadata"]["annotations"][AUTOUPDATE] == "false" {
        return ReconcileOperation::None;
    }
    if existing["roleRef"] != desired["roleRef"] {
        return ReconcileOperation::Recreate;
    }
    let mut new = existing.clone();
    for list in ["labels", "annotations"] {
        for (key, value) in desired["metadata"][list].as_object().into_iter().flatten() {
            if new["metadata"][list][key].is_null() {
                new["metadata"][list][key] = value.clone();
            }
        }
    }
    if desired["aggregationRule"].is_null() {
        // The default role is not aggregated.
        new["aggregationRule"] = Value::Null;
        add(&mut new["rules"], missing_rules(&existing["rules"], &desired["rules"]));
    } else {
        let path = "/aggregationRule/clusterRoleSelectors";
        let selectors = missing_items(existing.pointer(path), desired.pointer(path));
        add(&mut new["aggregationRule"]["clusterRoleSelectors"], selectors);
    }
    add(&mut new["subjects"], missing_items(existing.get("subjects"), desired.get("subjects")));
    // Indexing has inserted nulls.
    if let Some(fields) = new.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    if new == *existing { ReconcileOperation::None } else { ReconcileOperation::Update(new) }
}

fn missing_rules(existing: &Value, desired: &Value) -> Vec<Value> {
    let rules = |list: &Value| serde_json::from_value::<Option<Vec<PolicyRule>>>(list.clone()).ok().flatten();
    let missing =
        policy_comparator::uncovered_rules(&rules(existing).unwrap_or_default(), &rules(desired).unwrap_or_default());
    policy_comparator::compact_rules(missing).iter().map(|rule| json!(rule)).collect()
}

fn missing_items(existing: Option<&Value>, desired: Option<&Value>) -> Vec<Value> {
    let items = |list: Option<&Value>| list.and_then(Value::as_array).cloned().unwrap_or_default();
    let existing = items(existing);
    items(desired).into_iter().filter(|item| !existing.contains(item)).collect()
}

fn add(list: &mut Value, added: Vec<Value>) {
    match list.as_array_mut() {
        Some(all) => all.extend(added),
        None if added.is_empty() => {}
        None => *list = json!(added),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(existing: Value, desired: Value, expected: Option<Value>) {
        let got = match reconcile(&existing, &desired) {
            ReconcileOperation::Update(new) => Some(new),
            ReconcileOperation::None => None,
            ReconcileOperation::Recreate => Some(json!("replace")),
        };
        assert_eq!(got, expected);
    }

    fn role(verbs: &[&str]) -> Value {
        json!({"metadata": {"name": "r", "labels": {"a": "b"}, "annotations": {AUTOUPDATE: "true"}},
            "rules": [{"verbs": verbs, "apiGroups": [""], "resources": ["pods"]}]})
    }

    #[test]
    fn missing_rules_are_added_and_none_are_removed() {
        check(role(&["get"]), role(&["get"]), None);
        check(role(&["get", "list"]), role(&["get"]), None);
        let mut extended = role(&["get"]);
        extended["rules"]
            .as_array_mut()
            .unwrap()
            .push(json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}));
        check(role(&["get"]), role(&["get", "list"]), Some(extended));
        let mut customized = role(&["get"]);
        customized["metadata"]["annotations"][AUTOUPDATE] = json!("false");
        check(customized, role(&["list"]), None);
        let mut unlabeled = role(&["get"]);
        unlabeled["metadata"]["labels"] = json!({"x": "y"});
        let mut labeled = unlabeled.clone();
        labeled["metadata"]["labels"]["a"] = json!("b");
        check(unlabeled, role(&["get"]), Some(labeled));
        let mut aggregated = role(&[]);
        aggregated["aggregationRule"] = json!({"clusterRoleSelectors": [{}]});
        aggregated["rules"] = json!([]);
        check(aggregated, role(&["get"]), Some(role(&["get"])));
    }

    #[test]
    fn aggregated_role_keeps_its_rules() {
        let made = |selectors: Value, rules: Value| json!({"metadata": {"annotations": {AUTOUPDATE: "true"}}, "aggregationRule": {"clusterRoleSelectors": selectors}, "rules": rules});
        check(made(json!([1]), json!([{"verbs": ["get"]}])), made(json!([1]), json!([])), None);
        check(made(json!([2]), json!([])), made(json!([1]), json!([])), Some(made(json!([2, 1]), json!([]))));
    }

    #[test]
    fn missing_subjects_are_added_and_other_role_is_recreated() {
        let made = |role: &str, subjects: Value| json!({"metadata": {"annotations": {AUTOUPDATE: "true"}}, "roleRef": {"name": role}, "subjects": subjects});
        check(made("r", json!([1, 2])), made("r", json!([1])), None);
        check(made("r", json!([1])), made("r", json!([1, 2])), Some(made("r", json!([1, 2]))));
        check(made("x", json!([1])), made("r", json!([1])), Some(json!("replace")));
    }
}
