//! What a RuntimeClass does to a new Pod (upstream's admission plugin `RuntimeClass`).

use api::quantity::Amount;
use serde_json::{Value, json};

/// Gives the Pod the overhead of its class, and narrows it to the nodes that can run it; `class` is that of its
/// `runtimeClassName`, if it is there. The message is that of a 403.
///
/// # Errors
/// When there is no such class, or the Pod says something else than it.
pub(crate) fn admit(pod: &mut Value, class: Option<&Value>) -> Result<(), String> {
    let spec = &mut pod["spec"];
    let class = match (spec["runtimeClassName"].as_str(), class) {
        (Some(name), None) => return Err(format!("pod rejected: RuntimeClass {name:?} not found")),
        (_, class) => class.unwrap_or(&Value::Null),
    };
    overhead(spec, &class["overhead"])?;
    let scheduling = &class["scheduling"];
    node_selector(spec, &scheduling["nodeSelector"])?;
    if scheduling.is_object() {
        let list = |v: &Value| v["tolerations"].as_array().cloned().unwrap_or_default();
        spec["tolerations"] = json!(merged([list(spec), list(scheduling)].concat()));
    }
    Ok(())
}

fn overhead(spec: &mut Value, overhead: &Value) -> Result<(), String> {
    let given = spec["overhead"].as_object().is_some_and(|o| !o.is_empty());
    if overhead.is_null() {
        return if given {
            Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned())
        } else {
            Ok(())
        };
    }
    let fixed = &overhead["podFixed"];
    if given && !are_equal(&spec["overhead"], fixed) {
        return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned());
    }
    if fixed.is_object() {
        spec["overhead"] = fixed.clone();
    }
    Ok(())
}

/// Whether these are the same amounts, however they are written.
fn are_equal(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    let amount = |quantity: &Value| Amount::parse(quantity.as_str().unwrap_or("")).ok();
    one.len() == other.len() && one.iter().all(|(name, of)| other.get(name).is_some_and(|o| amount(o) == amount(of)))
}

/// Only nodes that both select are left.
fn node_selector(spec: &mut Value, selector: &Value) -> Result<(), String> {
    for (key, wanted) in selector.as_object().into_iter().flatten() {
        let own = &spec["nodeSelector"][key];
        if !own.is_null() && own != wanted {
            let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                text(wanted),
                text(own)
            ));
        }
        spec["nodeSelector"][key] = wanted.clone();
    }
    Ok(())
}

/// How many tolerations are compared with each other.
const MAX_MERGED: usize = 1_000;

/// All tolerations but those that another one makes needless; of equal ones the first stays (`MergeTolerations`). A list
/// that is too long to compare all pairs of it stays as it is, which tolerates the same.
fn merged(all: Vec<Value>) -> Vec<Value> {
    if all.len() > MAX_MERGED {
        return all;
    }
    let mut merged: Vec<Value> = Vec::new();
    for (i, toleration) in all.iter().enumerate() {
        let later = || all[i + 1..].iter().any(|other| other != toleration && covers(other, toleration));
        if !merged.iter().any(|kept| covers(kept, toleration)) && !later() {
            merged.push(toleration.clone());
        }
    }
    merged
}

/// Whether `wide` tolerates all that `narrow` does (`isSuperset`).
fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let text = |t: &Value, field: &str| t[field].as_str().unwrap_or("").to_owned();
    let any_key = text(wide, "key").is_empty() && text(wide, "operator") == "Exists";
    if text(wide, "key") != text(narrow, "key") && !any_key {
        return false;
    }
    let effect = text(wide, "effect");
    if !effect.is_empty() && effect != text(narrow, "effect") {
        return false;
    }
    let shorter = |limit: i64| narrow["tolerationSeconds"].as_i64().is_none_or(|seconds| seconds > limit);
    if effect == "NoExecute" && wide["tolerationSeconds"].as_i64().is_some_and(shorter) {
        return false;
    }
    match text(wide, "operator").as_str() {
        "" | "Equal" => {
            text(wide, "operator") == text(narrow, "operator") && text(wide, "value") == text(narrow, "value")
        }
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a spec, or why it is refused.
    #[track_caller]
    fn check(mut spec: Value, class: &Value, expected: &Result<Value, &str>) {
        spec["runtimeClassName"] = json!("fast");
        let mut pod = json!({"spec": spec});
        let got = admit(&mut pod, Some(class)).map(|()| {
            pod["spec"].as_object_mut().unwrap().remove("runtimeClassName");
            pod["spec"].clone()
        });
        assert_eq!(got.as_ref().map_err(String::as_str), expected.as_ref().map_err(|e| *e));
    }

    #[test]
    fn the_overhead_is_that_of_the_class() {
        let class = json!({"overhead": {"podFixed": {"cpu": "100m"}}});
        check(json!({}), &class, &Ok(json!({"overhead": {"cpu": "100m"}})));
        check(json!({"overhead": {"cpu": "100m"}}), &class, &Ok(json!({"overhead": {"cpu": "100m"}})));
        let same = json!({"overhead": {"cpu": "+100m"}});
        check(same, &class, &Ok(json!({"overhead": {"cpu": "100m"}})));
        let other = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
        check(json!({"overhead": {"cpu": "200m"}}), &class, &Err(other));
        let none = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
        check(json!({"overhead": {"cpu": "200m"}}), &json!({}), &Err(none));
        check(json!({}), &json!({}), &Ok(json!({})));
    }

    #[test]
    fn only_nodes_that_both_select_are_left() {
        let class = json!({"scheduling": {"nodeSelector": {"a": "1"}}});
        let both = |tolerations| json!({"nodeSelector": {"a": "1", "b": "2"}, "tolerations": tolerations});
        check(json!({"nodeSelector": {"b": "2"}}), &class, &Ok(both(json!([]))));
        let conflict = "conflict: runtimeClass.scheduling.nodeSelector[a] = 1; pod.spec.nodeSelector[a] = 2";
        check(json!({"nodeSelector": {"a": "2"}}), &class, &Err(conflict));
    }

    #[test]
    fn tolerations_are_joined_without_those_that_others_cover() {
        let t = |key: &str, effect: &str| json!({"key": key, "operator": "Exists", "effect": effect});
        for (own, added, expected) in [
            (json!([t("a", "NoSchedule")]), json!([t("b", "")]), json!([t("a", "NoSchedule"), t("b", "")])),
            (json!([t("a", "NoSchedule")]), json!([t("a", "")]), json!([t("a", "")])),
            (json!([t("a", "")]), json!([t("a", "NoSchedule")]), json!([t("a", "")])),
            (json!([t("a", "")]), json!([t("a", "")]), json!([t("a", "")])),
            (json!([t("a", "x")]), json!([{"operator": "Exists"}]), json!([{"operator": "Exists"}])),
            (
                json!([{"key": "a", "value": "1"}]),
                json!([{"key": "a", "value": "2"}]),
                json!([{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]),
            ),
        ] {
            let class = json!({"scheduling": {"tolerations": added}});
            check(json!({"tolerations": own}), &class, &Ok(json!({"tolerations": expected})));
        }
    }

    #[test]
    fn what_lasts_shorter_covers_nothing_that_lasts_longer() {
        let t = |seconds: Option<i64>| {
            let mut t = json!({"key": "a", "operator": "Exists", "effect": "NoExecute"});
            if let Some(seconds) = seconds {
                t["tolerationSeconds"] = json!(seconds);
            }
            t
        };
        assert!(covers(&t(None), &t(Some(5))) && covers(&t(Some(5)), &t(Some(4))));
        assert!(!covers(&t(Some(5)), &t(None)) && !covers(&t(Some(5)), &t(Some(6))));
    }

    #[test]
    fn a_class_must_be_there() {
        let mut pod = json!({"spec": {"runtimeClassName": "x"}});
        assert_eq!(admit(&mut pod, None), Err("pod rejected: RuntimeClass \"x\" not found".to_owned()));
        assert_eq!(admit(&mut json!({"spec": {}}), None), Ok(()));
    }
}
