//! The status of a definition: which names it has, and whether its kind is served
//! (`pkg/controller/status`, `pkg/controller/establish`).

use crate::kinds::{Approval, has_ca_bundle};
use crate::write::now;
use serde_json::{Value, json};

/// Whether a condition is true.
pub(super) fn is(definition: &Value, condition: &str) -> bool {
    find(definition, condition).is_some_and(|c| c["status"] == "True")
}

fn find<'a>(definition: &'a Value, condition: &str) -> Option<&'a Value> {
    definition["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == condition)
}

/// Sets a condition; its time is that of the last change from true to false or back, and never nothing: whoever waits for the
/// condition to be as it is set here would write for ever.
pub(crate) fn set(status: &mut Value, condition: &str, value: &str, reason: &str, message: &str) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(all) = status["conditions"].as_array_mut() else { return };
    let mut new = json!({
        "type": condition, "status": value, "reason": reason, "message": message, "lastTransitionTime": now(),
    });
    match all.iter_mut().find(|c| c["type"] == condition) {
        None => all.push(new),
        Some(old) => {
            if old["status"] == value && old["lastTransitionTime"].is_string() {
                new["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = new;
        }
    }
}

/// The status that a definition should have, if it has another; `others` are those of the same group.
pub(super) fn status(definition: &Value, others: &[&Value]) -> Option<Value> {
    let (wanted, accepted) = (&definition["spec"]["names"], &definition["status"]["acceptedNames"]);
    let mut status = definition["status"].clone();
    tell_approval(definition, &mut status);
    let settled = *wanted == *accepted && is(definition, "NamesAccepted") && is(definition, "Established");
    if settled {
        return (status != definition["status"]).then_some(status);
    }
    let (names, conflict) = accept(wanted, accepted, others);
    status["acceptedNames"] = names;
    match &conflict {
        Some((reason, message)) => set(&mut status, "NamesAccepted", "False", reason, message),
        None => set(&mut status, "NamesAccepted", "True", "NoConflicts", "no conflicts found"),
    }
    // A kind that was served once stays served, under the names that it has.
    if !is(definition, "Established") {
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

/// Of a group of the community's it says whether that was asked.
fn tell_approval(definition: &Value, status: &mut Value) {
    const CONFORMANT: &str = "KubernetesAPIApprovalPolicyConformant";
    let Some(approval) = Approval::of(definition) else { return };
    let (value, reason) = approval.condition();
    set(status, CONFORMANT, value, reason, &approval.message());
}

/// The names that a definition gets of those that it wants, and what it cannot have.
fn accept(wanted: &Value, accepted: &Value, others: &[&Value]) -> (Value, Option<(&'static str, String)>) {
    let taken = |keys: &[&str], name: &Value| {
        others.iter().map(|o| &o["status"]["acceptedNames"]).any(|names| {
            keys.iter().any(|key| names[*key] == *name)
                || keys.contains(&"plural") && names["shortNames"].as_array().is_some_and(|s| s.contains(name))
        })
    };
    const RESOURCES: [&str; 2] = ["plural", "singular"];
    const KINDS: [&str; 2] = ["kind", "listKind"];
    let (mut names, mut conflict) = (accepted.clone(), None);
    let mut one = |names: &mut Value, key: &str, keys: &[&str], reason| {
        if wanted[key] != accepted[key] && taken(keys, &wanted[key]) {
            conflict = Some((reason, format!("{} is already in use", wanted[key])));
        } else {
            names[key] = wanted[key].clone();
        }
    };
    one(&mut names, "plural", &RESOURCES, "PluralConflict");
    one(&mut names, "singular", &RESOURCES, "SingularConflict");
    one(&mut names, "kind", &KINDS, "KindConflict");
    one(&mut names, "listKind", &KINDS, "ListKindConflict");
    let list = |v: &Value| v["shortNames"].as_array().cloned().unwrap_or_default();
    let own = list(accepted);
    let lost: Vec<Value> = list(wanted).into_iter().filter(|n| !own.contains(n) && taken(&RESOURCES, n)).collect();
    let mut set_list = |key: &str, value: &Value| match (names.as_object_mut(), value) {
        (Some(names), Value::Null) => drop(names.remove(key)),
        (Some(names), value) => drop(names.insert(key.to_owned(), value.clone())),
        _ => {}
    };
    if lost.is_empty() {
        set_list("shortNames", &wanted["shortNames"]);
    } else if conflict.is_none() {
        let all: Vec<String> = lost.iter().map(|name| format!("{name} is already in use")).collect();
        let message = if all.len() == 1 { all.concat() } else { format!("[{}]", all.join(", ")) };
        conflict = Some(("ShortNamesConflict", message));
    }
    set_list("categories", &wanted["categories"]);
    (names, conflict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(name: &str, kind: &str, short: &str) -> Value {
        let names = json!({"plural": name, "singular": kind.to_lowercase(), "kind": kind,
            "listKind": format!("{kind}List"), "shortNames": [short]});
        json!({"spec": {"group": "example.com", "names": names}, "status": {}})
    }

    #[test]
    fn a_definition_in_a_group_of_the_communitys_says_whether_it_was_approved() {
        let check = |group: &str, said: &str, expected: Option<(&str, &str, &str)>| {
            let mut one = definition("foos", "Foo", "fo");
            one["spec"]["group"] = json!(group);
            one["metadata"] = json!({"annotations": {"api-approved.kubernetes.io": said}});
            one["status"] = status(&one, &[]).unwrap();
            assert_eq!(status(&one, &[]), None);
            let condition = find(&one, "KubernetesAPIApprovalPolicyConformant");
            let text = |field: &str| condition.and_then(|c| c[field].as_str());
            let expected = expected.map(|(value, reason, message)| [value, reason, message].map(Some));
            assert_eq!(["status", "reason", "message"].map(text), expected.unwrap_or_default(), "{group} {said}");
        };
        check("example.com", "unapproved", None);
        check("k8s.io.example.com", "unapproved", None);
        let bypassed = Some(("False", "UnapprovedAnnotation", "not approved: \"unapproved, testing\""));
        check("foo.k8s.io", "unapproved, testing", bypassed);
        let given = "approved in https://github.com/kubernetes/kubernetes/pull/78458";
        check("kubernetes.io", &given["approved in ".len()..], Some(("True", "ApprovedAnnotation", given)));
    }

    #[test]
    fn a_name_is_had_by_whoever_came_first() {
        let mut first = definition("foos", "Foo", "fo");
        first["status"] = status(&first, &[]).unwrap();
        assert!(is(&first, "NamesAccepted") && is(&first, "Established"));
        assert_eq!(status(&first, &[]), None);
        for (second, reason, message) in [
            (definition("bars", "Foo", "ba"), "ListKindConflict", "\"FooList\" is already in use"),
            (definition("bars", "Bar", "fo"), "ShortNamesConflict", "\"fo\" is already in use"),
            (definition("bars", "Foos", "ba"), "SingularConflict", "\"foos\" is already in use"),
        ] {
            let status = status(&second, &[&first]).unwrap();
            let second = json!({"status": status});
            assert!(!is(&second, "NamesAccepted") && !is(&second, "Established"));
            let condition = find(&second, "NamesAccepted").unwrap();
            assert_eq!((&condition["reason"], &condition["message"]), (&json!(reason), &json!(message)));
        }
    }
}
