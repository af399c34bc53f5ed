//! What an upgrade makes of a role or binding that is there (`component-helpers/auth/rbac/reconciliation`): what is missing is
//! added, what somebody added stays. Pure.

use super::AUTOUPDATE;
use crate::authorization::{cover, rule::Rule};
use serde_json::{Value, json};

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Reconciled {
    Nothing,
    /// It is to be so.
    Update(Value),
    /// It names another role, which cannot be changed.
    Replace,
}

pub(crate) fn reconcile(there: &Value, wanted: &Value) -> Reconciled {
    if there["metadata"]["annotations"][AUTOUPDATE] == "false" {
        return Reconciled::Nothing;
    }
    if there["roleRef"] != wanted["roleRef"] {
        return Reconciled::Replace;
    }
    let mut new = there.clone();
    for list in ["labels", "annotations"] {
        for (key, value) in wanted["metadata"][list].as_object().into_iter().flatten() {
            if new["metadata"][list][key].is_null() {
                new["metadata"][list][key] = value.clone();
            }
        }
    }
    if wanted["aggregationRule"].is_null() {
        // It was never to be made of others.
        new["aggregationRule"] = Value::Null;
        add(&mut new["rules"], missing_rules(&there["rules"], &wanted["rules"]));
    } else {
        let path = "/aggregationRule/clusterRoleSelectors";
        let selectors = not_in(there.pointer(path), wanted.pointer(path));
        add(&mut new["aggregationRule"]["clusterRoleSelectors"], selectors);
    }
    add(&mut new["subjects"], not_in(there.get("subjects"), wanted.get("subjects")));
    // What was looked at is not what was set.
    if let Some(fields) = new.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    if new == *there { Reconciled::Nothing } else { Reconciled::Update(new) }
}

fn missing_rules(there: &Value, wanted: &Value) -> Vec<Value> {
    let rules = |list: &Value| serde_json::from_value::<Option<Vec<Rule>>>(list.clone()).ok().flatten();
    let missing = cover::missing(&rules(there).unwrap_or_default(), &rules(wanted).unwrap_or_default());
    cover::compact(missing).iter().map(|rule| json!(rule)).collect()
}

fn not_in(there: Option<&Value>, wanted: Option<&Value>) -> Vec<Value> {
    let all = |list: Option<&Value>| list.and_then(Value::as_array).cloned().unwrap_or_default();
    let there = all(there);
    all(wanted).into_iter().filter(|one| !there.contains(one)).collect()
}

fn add(list: &mut Value, more: Vec<Value>) {
    match list.as_array_mut() {
        Some(all) => all.extend(more),
        None if more.is_empty() => {}
        None => *list = json!(more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(there: Value, wanted: Value, expected: Option<Value>) {
        let got = match reconcile(&there, &wanted) {
            Reconciled::Update(new) => Some(new),
            Reconciled::Nothing => None,
            Reconciled::Replace => Some(json!("replace")),
        };
        assert_eq!(got, expected);
    }

    fn role(verbs: &[&str]) -> Value {
        json!({"metadata": {"name": "r", "labels": {"a": "b"}, "annotations": {AUTOUPDATE: "true"}},
            "rules": [{"verbs": verbs, "apiGroups": [""], "resources": ["pods"]}]})
    }

    #[test]
    fn what_a_role_lacks_is_added_and_what_it_has_stays() {
        check(role(&["get"]), role(&["get"]), None);
        check(role(&["get", "list"]), role(&["get"]), None);
        let mut more = role(&["get"]);
        more["rules"]
            .as_array_mut()
            .unwrap()
            .push(json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}));
        check(role(&["get"]), role(&["get", "list"]), Some(more));
        let mut own = role(&["get"]);
        own["metadata"]["annotations"][AUTOUPDATE] = json!("false");
        check(own, role(&["list"]), None);
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
    fn an_aggregated_role_keeps_the_rules_that_it_was_given() {
        let made = |selectors: Value, rules: Value| json!({"metadata": {"annotations": {AUTOUPDATE: "true"}}, "aggregationRule": {"clusterRoleSelectors": selectors}, "rules": rules});
        check(made(json!([1]), json!([{"verbs": ["get"]}])), made(json!([1]), json!([])), None);
        check(made(json!([2]), json!([])), made(json!([1]), json!([])), Some(made(json!([2, 1]), json!([]))));
    }

    #[test]
    fn whom_a_binding_lacks_is_added_and_another_role_is_another_binding() {
        let made = |role: &str, subjects: Value| json!({"metadata": {"annotations": {AUTOUPDATE: "true"}}, "roleRef": {"name": role}, "subjects": subjects});
        check(made("r", json!([1, 2])), made("r", json!([1])), None);
        check(made("r", json!([1])), made("r", json!([1, 2])), Some(made("r", json!([1, 2]))));
        check(made("x", json!([1])), made("r", json!([1])), Some(json!("replace")));
    }
}
