//! Quantities become canonical where an object holds them: `1000m` is stored as `1`, a number as a string.

use api::quantity::{Amount, canonical};
use serde_json::{Map, Value};

/// Fields that hold maps of quantities (`ResourceList`).
const LISTS: [&str; 7] =
    ["limits", "requests", "capacity", "allocatable", "allocatedResources", "overhead", "podFixed"];
/// Fields that hold one quantity, with the field that they stand in.
const SINGLE: [(&str, &str); 2] = [("emptyDir", "sizeLimit"), ("resourceFieldRef", "divisor")];
/// Maps with keys of the user's choice, in which nothing is a quantity.
const FREE: [&str; 6] = ["nodeSelector", "matchLabels", "labels", "annotations", "volumeAttributes", "options"];

/// Makes every quantity of a Pod, Node or RuntimeClass canonical.
///
/// # Errors
/// When one is none, with the path of the field and upstream's words.
pub(crate) fn canonicalize(kind: &str, object: &mut Value) -> Result<(), String> {
    let parts: &[&str] = match kind {
        "Pod" | "Node" => &["spec", "status"],
        "RuntimeClass" => &["overhead"],
        _ => return Ok(()),
    };
    for part in parts {
        if let Some(value) = object.get_mut(*part) {
            walk(value, part)?;
        }
    }
    Ok(())
}

fn walk(value: &mut Value, path: &str) -> Result<(), String> {
    match value {
        Value::Object(map) => {
            let field = path.rsplit('.').next().unwrap_or("").to_owned();
            for (key, inner) in map.iter_mut().filter(|(key, _)| !FREE.contains(&key.as_str())) {
                let path = format!("{path}.{key}");
                match inner {
                    Value::Object(list) if LISTS.contains(&key.as_str()) => resource_list(list, &path)?,
                    _ if SINGLE.contains(&(field.as_str(), key.as_str())) => *inner = quantity(inner, &path)?,
                    _ => walk(inner, &path)?,
                }
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| walk(item, path)),
        _ => Ok(()),
    }
}

/// Upstream rounds the values of a `ResourceList` up to a thousandth (`SetDefaults_ResourceList`).
fn resource_list(list: &mut Map<String, Value>, path: &str) -> Result<(), String> {
    for (name, value) in list {
        *value = quantity(value, &format!("{path}[{name}]"))?;
        let Some(text) = value.as_str().filter(|s| s.ends_with(['n', 'u'])) else { continue };
        if let Ok(amount) = Amount::parse(text) {
            *value = Value::String(Amount::milli_units(amount.milli()).to_string());
        }
    }
    Ok(())
}

/// What is neither text nor a number is left for the type to refuse.
fn quantity(value: &Value, path: &str) -> Result<Value, String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        other => return Ok(other.clone()),
    };
    canonical(&text).map(Value::String).map_err(|e| format!("{path}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(spec: &Value, expected: &Value) {
        let mut object = json!({"spec": spec, "metadata": {"annotations": {"limits": "1000m"}}});
        let got = canonicalize("Pod", &mut object).map_or_else(Value::String, |()| object["spec"].clone());
        assert_eq!(got, *expected);
        assert_eq!(object["metadata"]["annotations"]["limits"], "1000m");
    }

    #[test]
    fn quantities_are_stored_as_upstream_stores_them() {
        let container = |cpu: Value| json!({"containers": [{"resources": {"limits": {"cpu": cpu}}}]});
        for (given, stored) in [("1000m", "1"), ("0.5", "500m"), ("1u", "1m"), ("1024Ki", "1Mi"), ("1e3", "1e3")] {
            check(&container(json!(given)), &container(json!(stored)));
        }
        check(&container(json!(2)), &container(json!("2")));
        check(&container(json!(0.1)), &container(json!("100m")));
        check(
            &container(json!("x")),
            &json!(
                "spec.containers.resources.limits[cpu]: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            ),
        );
        check(
            &json!({"volumes": [{"emptyDir": {"sizeLimit": "1024Mi"}}], "nodeSelector": {"sizeLimit": "1024Mi"}}),
            &json!({"volumes": [{"emptyDir": {"sizeLimit": "1Gi"}}], "nodeSelector": {"sizeLimit": "1024Mi"}}),
        );
    }
}
