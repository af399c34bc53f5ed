//! Status of a definition: accepted names and conditions (`pkg/controller/status`, `pkg/controller/establish`).

use crate::http::clock::now;
use kinds::{Approval, conditions::set_condition, has_ca_bundle};
use serde_json::Value;

/// Whether a condition is `True`.
pub(super) fn is_true(definition: &Value, condition: &str) -> bool {
    find(definition, condition).is_some_and(|c| c["status"] == "True")
}

fn find<'a>(definition: &'a Value, condition: &str) -> Option<&'a Value> {
    definition["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == condition)
}

/// Sets a condition now.
pub(super) fn set(status: &mut Value, condition: &str, value: &str, reason: &str, message: &str) {
    set_condition(status, condition, value, reason, message, now());
}

/// Computes the desired status of a definition, as upstream's naming and establishing controllers; `None` when it has it.
/// `others` are the other definitions of its group.
pub(super) fn desired_status(definition: &Value, others: &[&Value]) -> Option<Value> {
    let (requested, accepted) = (&definition["spec"]["names"], &definition["status"]["acceptedNames"]);
    let mut status = definition["status"].clone();
    set_approval(definition, &mut status);
    let is_accepted =
        *requested == *accepted && is_true(definition, "NamesAccepted") && is_true(definition, "Established");
    if is_accepted {
        return (status != definition["status"]).then_some(status);
    }
    let (names, conflict) = accept_names(requested, accepted, others);
    status["acceptedNames"] = names;
    match &conflict {
        Some((reason, message)) => set(&mut status, "NamesAccepted", "False", reason, message),
        None => set(&mut status, "NamesAccepted", "True", "NoConflicts", "no conflicts found"),
    }
    // An established definition stays established, with the names that it has.
    if !is_true(definition, "Established") {
        match conflict {
            Some(_) => set(&mut status, "Established", "False", "NotAccepted", "not all names are accepted"),
            None if !has_ca_bundle(definition) => {
                let message = "the CA bundle of the conversion webhook is invalid";
                set(&mut status, "Established", "False", "InvalidCABundle", message);
            }
            None => {
                let message = "the initial names have been accepted";
                set(&mut status, "Established", "True", "InitialNamesAccepted", message);
            }
        }
    }
    (status != definition["status"]).then_some(status)
}

/// Sets the condition of definitions in the groups `*.k8s.io` and `*.kubernetes.io`.
fn set_approval(definition: &Value, status: &mut Value) {
    const CONFORMANT: &str = "KubernetesAPIApprovalPolicyConformant";
    let Some(approval) = Approval::from_definition(definition) else { return };
    let (value, reason) = approval.condition();
    set(status, CONFORMANT, value, reason, &approval.message());
}

/// Returns the names that a definition gets, and the conflict with another one, if any.
fn accept_names(requested: &Value, accepted: &Value, others: &[&Value]) -> (Value, Option<(&'static str, String)>) {
    let taken = |keys: &[&str], name: &Value| {
        others.iter().map(|o| &o["status"]["acceptedNames"]).any(|names| {
            keys.iter().any(|key| names[*key] == *name)
                || keys.contains(&"plural") && names["shortNames"].as_array().is_some_and(|s| s.contains(name))
        })
    };
    const RESOURCES: [&str; 2] = ["plural", "singular"];
    const KINDS: [&str; 2] = ["kind", "listKind"];
    let (mut names, mut conflict) = (accepted.clone(), None);
    let mut accept_name = |names: &mut Value, key: &str, keys: &[&str], reason| {
        if requested[key] != accepted[key] && taken(keys, &requested[key]) {
            conflict = Some((reason, format!("{} is already in use", requested[key])));
        } else {
            names[key] = requested[key].clone();
        }
    };
    accept_name(&mut names, "plural", &RESOURCES, "PluralConflict");
    accept_name(&mut names, "singular", &RESOURCES, "SingularConflict");
    accept_name(&mut names, "kind", &KINDS, "KindConflict");
    accept_name(&mut names, "listKind", &KINDS, "ListKindConflict");
    let list = |v: &Value| v["shortNames"].as_array().cloned().unwrap_or_default();
    let current = list(accepted);
    let conflicting: Vec<Value> =
        list(requested).into_iter().filter(|n| !current.contains(n) && taken(&RESOURCES, n)).collect();
    let mut set_list = |key: &str, value: &Value| match (names.as_object_mut(), value) {
        (Some(names), Value::Null) => drop(names.remove(key)),
        (Some(names), value) => drop(names.insert(key.to_owned(), value.clone())),
        _ => {}
    };
    if conflicting.is_empty() {
        set_list("shortNames", &requested["shortNames"]);
    } else if conflict.is_none() {
        let all: Vec<String> = conflicting.iter().map(|name| format!("{name} is already in use")).collect();
        let message = if all.len() == 1 { all.concat() } else { format!("[{}]", all.join(", ")) };
        conflict = Some(("ShortNamesConflict", message));
    }
    set_list("categories", &requested["categories"]);
    (names, conflict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(name: &str, kind: &str, short: &str) -> Value {
        let names = json!({"plural": name, "singular": kind.to_lowercase(), "kind": kind,
            "listKind": format!("{kind}List"), "shortNames": [short]});
        json!({"spec": {"group": "example.com", "names": names}, "status": {}})
    }

    #[test]
    fn community_group_has_approval_condition() {
        let check = |group: &str, output: &str, expected: Option<(&str, &str, &str)>| {
            let mut one = definition("foos", "Foo", "fo");
            one["spec"]["group"] = json!(group);
            one["metadata"] = json!({"annotations": {"api-approved.kubernetes.io": output}});
            one["status"] = desired_status(&one, &[]).unwrap();
            assert_eq!(desired_status(&one, &[]), None);
            let condition = find(&one, "KubernetesAPIApprovalPolicyConformant");
            let text = |field: &str| condition.and_then(|c| c[field].as_str());
            let expected = expected.map(|(value, reason, message)| [value, reason, message].map(Some));
            assert_eq!(["status", "reason", "message"].map(text), expected.unwrap_or_default(), "{group} {output}");
        };
        check("example.com", "unapproved", None);
        check("k8s.io.example.com", "unapproved", None);
        let bypassed = Some(("False", "UnapprovedAnnotation", "not approved: \"unapproved, testing\""));
        check("foo.k8s.io", "unapproved, testing", bypassed);
        let given = "approved in https://github.com/kubernetes/kubernetes/pull/78458";
        check("kubernetes.io", &given["approved in ".len()..], Some(("True", "ApprovedAnnotation", given)));
    }

    #[test]
    fn name_belongs_to_first_definition() {
        let mut first = definition("foos", "Foo", "fo");
        first["status"] = desired_status(&first, &[]).unwrap();
        assert!(is_true(&first, "NamesAccepted") && is_true(&first, "Established"));
        assert_eq!(desired_status(&first, &[]), None);
        for (second, reason, message) in [
            (definition("bars", "Foo", "ba"), "ListKindConflict", "\"FooList\" is already in use"),
            (definition("bars", "Bar", "fo"), "ShortNamesConflict", "\"fo\" is already in use"),
            (definition("bars", "Foos", "ba"), "SingularConflict", "\"foos\" is already in use"),
        ] {
            let status = desired_status(&second, &[&first]).unwrap();
            let second = json!({"status": status});
            assert!(!is_true(&second, "NamesAccepted") && !is_true(&second, "Established"));
            let condition = find(&second, "NamesAccepted").unwrap();
            assert_eq!((&condition["reason"], &condition["message"]), (&json!(reason), &json!(message)));
        }
    }
}
