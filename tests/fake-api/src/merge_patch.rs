//! Merge patches.

use serde_json::Value;

/// Applies a merge patch that merges lists of conditions by type, like a strategic merge patch.
pub(crate) fn merge(into: &mut Value, patch: Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                let empty = if key == "conditions" { Value::Array(Vec::new()) } else { Value::Null };
                match into.entry(key.clone()).or_insert(empty) {
                    Value::Array(list) if key == "conditions" => {
                        for condition in value.as_array().into_iter().flatten() {
                            list.retain(|c| c["type"] != condition["type"]);
                            if condition["$patch"] != "delete" {
                                list.push(condition.clone());
                            }
                        }
                    }
                    slot => merge(slot, value),
                }
            }
        }
        (into, patch) => *into = patch,
    }
}
