//! Patches: JSON patch, merge patch, strategic merge patch.

use crate::status::ApiError;
use serde_json::{Map, Value};

/// Lists that strategic merge patch merges by a key (`x-kubernetes-patch-merge-key`), by field name.
const MERGE_KEYS: &[(&str, &str)] = &[
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("ports", "containerPort"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("imagePullSecrets", "name"),
    ("secrets", "name"),
    ("hostAliases", "ip"),
    ("schedulingGates", "name"),
    ("resourceClaims", "name"),
    ("topologySpreadConstraints", "topologyKey"),
    ("conditions", "type"),
    ("addresses", "type"),
    ("ownerReferences", "uid"),
    ("podIPs", "ip"),
    ("hostIPs", "ip"),
];
/// Lists of plain values that strategic merge patch joins.
const MERGED_VALUES: &[&str] = &["finalizers", "podCIDRs"];

/// Upstream's bound on the operations of one JSON patch.
const MAX_OPERATIONS: usize = 10_000;

/// Applies a patch of this content type.
pub(crate) fn apply(content_type: &str, object: &Value, patch: &[u8]) -> Result<Value, ApiError> {
    let bad = |e: &dyn std::fmt::Display| ApiError::bad_request(format!("error decoding patch: {e}"));
    match content_type {
        "application/json-patch+json" => {
            let patch: json_patch::Patch = serde_json::from_slice(patch).map_err(|e| bad(&e))?;
            if patch.0.len() > MAX_OPERATIONS {
                let text = format!(
                    "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                    patch.0.len()
                );
                return Err(ApiError::new(413, "RequestEntityTooLarge", text));
            }
            let mut object = object.clone();
            json_patch::patch(&mut object, &patch).map_err(|e| {
                ApiError::new(
                    422,
                    "Invalid",
                    format!("the server rejected our request due to an error in our request: {e}"),
                )
            })?;
            Ok(object)
        }
        "application/merge-patch+json" => {
            let patch: Value = serde_json::from_slice(patch).map_err(|e| bad(&e))?;
            let mut object = object.clone();
            json_patch::merge(&mut object, &patch);
            Ok(object)
        }
        "application/strategic-merge-patch+json" => {
            let Value::Object(patch) = serde_json::from_slice(patch).map_err(|e| bad(&e))? else {
                return Err(bad(&"a patch must be an object"));
            };
            let mut object = object.clone();
            strategic(&mut object, &patch)?;
            Ok(object)
        }
        "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
            Err(unsupported("server-side apply is not implemented yet"))
        }
        other => Err(unsupported(&format!("the body of the request was in an unknown format - {other:?}"))),
    }
}

fn unsupported(why: &str) -> ApiError {
    let accepted = "accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json";
    ApiError::new(415, "UnsupportedMediaType", format!("{why} - {accepted}"))
}

fn strategic(object: &mut Value, patch: &Map<String, Value>) -> Result<(), ApiError> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *object = Value::Object(plain(patch));
            return Ok(());
        }
        Some("delete") => {
            *object = Value::Object(Map::new());
            return Ok(());
        }
        _ => {}
    }
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Some(target) = object.as_object_mut() else { return Ok(()) };
    if let Some(kept) = patch.get("$retainKeys").and_then(Value::as_array) {
        target.retain(|key, _| kept.iter().any(|k| k == key));
    }
    for (key, value) in patch.iter().filter(|(k, _)| !k.starts_with('$')) {
        match value {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(inner) => strategic(target.entry(key.clone()).or_insert(Value::Null), inner)?,
            Value::Array(items) => {
                let merged = list(key, target.get(key), items)?;
                target.insert(key.clone(), Value::Array(merged));
            }
            other => {
                target.insert(key.clone(), other.clone());
            }
        }
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().map(Vec::as_slice).unwrap_or_default();
            if let Some(Value::Array(list)) = target.get_mut(field) {
                list.retain(|v| !gone.contains(v));
            }
        } else if let Some(field) = key.strip_prefix("$setElementOrder/") {
            set_order(field, target, value.as_array().map(Vec::as_slice).unwrap_or_default());
        }
    }
    Ok(())
}

/// A patch's content without directives.
fn plain(patch: &Map<String, Value>) -> Map<String, Value> {
    patch.iter().filter(|(k, v)| !k.starts_with('$') && !v.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn list(field: &str, old: Option<&Value>, items: &[Value]) -> Result<Vec<Value>, ApiError> {
    let old = old.and_then(Value::as_array).cloned().unwrap_or_default();
    if MERGED_VALUES.contains(&field) && items.iter().all(|i| !i.is_object()) {
        let fresh: Vec<Value> = items.iter().filter(|i| !old.contains(i)).cloned().collect();
        return Ok(old.into_iter().chain(fresh).collect());
    }
    let Some((_, key)) = MERGE_KEYS.iter().find(|(f, _)| *f == field).filter(|_| items.iter().all(Value::is_object))
    else {
        return Ok(items.to_vec());
    };
    let replace = items.iter().any(|i| i["$patch"] == "replace");
    let mut merged = if replace { Vec::new() } else { old };
    for item in items.iter().filter_map(Value::as_object) {
        let directive = item.get("$patch").and_then(Value::as_str);
        let Some(id) = item.get(*key) else {
            if directive == Some("replace") {
                continue;
            }
            let text = format!("map: {} does not contain declared merge key: {key}", Value::Object(item.clone()));
            return Err(ApiError::bad_request(text));
        };
        let at = merged.iter().position(|m| m[*key] == *id);
        match (directive, at) {
            (Some("delete"), at) => {
                at.map(|i| merged.remove(i));
            }
            (_, Some(i)) => strategic(&mut merged[i], item)?,
            (_, None) => {
                let mut fresh = Value::Null;
                strategic(&mut fresh, item)?;
                merged.push(fresh);
            }
        }
    }
    Ok(merged)
}

/// Elements that the order names stand in that order, the others behind them.
fn set_order(field: &str, target: &mut Map<String, Value>, order: &[Value]) {
    let key = MERGE_KEYS.iter().find(|(f, _)| *f == field).map(|(_, k)| *k);
    let Some(Value::Array(list)) = target.get_mut(field) else { return };
    let rank = |v: &Value| {
        let same = |o: &Value| key.map_or(o == v, |k| o[k] == v[k]);
        order.iter().position(same).unwrap_or(usize::MAX)
    };
    list.sort_by_key(rank);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[track_caller]
    fn check(original: &Value, patch: &Value, expected: &Value) {
        let got = apply("application/strategic-merge-patch+json", original, patch.to_string().as_bytes()).unwrap();
        assert_eq!(got, *expected);
    }

    #[test]
    fn strategic_merge_follows_keys_and_directives() {
        let two = json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]});
        check(
            &two,
            &json!({"containers": [{"name": "b", "image": "3"}]}),
            &json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "3"}]}),
        );
        check(
            &two,
            &json!({"containers": [{"name": "a", "$patch": "delete"}]}),
            &json!({"containers": [{"name": "b", "image": "2"}]}),
        );
        check(
            &two,
            &json!({"containers": [{"$patch": "replace"}, {"name": "c"}]}),
            &json!({"containers": [{"name": "c"}]}),
        );
        check(&json!({"a": {"b": 1, "c": 2}}), &json!({"a": {"b": null, "d": 3}}), &json!({"a": {"c": 2, "d": 3}}));
        check(&json!({"a": {"b": 1}}), &json!({"a": {"$patch": "replace", "c": 2}}), &json!({"a": {"c": 2}}));
        check(&json!({"finalizers": ["x"]}), &json!({"finalizers": ["y"]}), &json!({"finalizers": ["x", "y"]}));
        check(
            &json!({"finalizers": ["x", "y"]}),
            &json!({"$deleteFromPrimitiveList/finalizers": ["x"]}),
            &json!({"finalizers": ["y"]}),
        );
        check(&json!({"args": ["x"]}), &json!({"args": ["y"]}), &json!({"args": ["y"]}));
        let order = json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": []});
        check(&two, &order, &json!({"containers": [{"name": "b", "image": "2"}, {"name": "a", "image": "1"}]}));
    }

    proptest! {
        #[test]
        fn no_patch_panics(text in "[\\[\\]{}\":,a-c$0-9nul/patchdele]{0,64}") {
            for kind in ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"] {
                let _ = apply(kind, &json!({"a": [{"name": "x"}]}), text.as_bytes());
            }
        }
    }
}
