//! What upstream warns of in a Pod, though it takes it (`pkg/api/pod/warnings.go`).

use api::quantity::Amount;
use serde_json::Value;
use std::collections::HashMap;

pub(super) fn pod(object: &Value) -> Vec<String> {
    let (mut all, spec) = (Vec::new(), &object["spec"]);
    let name = object["metadata"]["name"].as_str().unwrap_or("");
    let hostname = api::names::dns1123_label(name);
    if !hostname.is_empty() {
        all.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            hostname.join(" ")
        ));
    }
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0) {
        all.push(
            "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
                .to_owned(),
        );
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (i, c) in items(spec, list).enumerate() {
            container(c, &format!("spec.{list}[{i}]"), &mut all);
        }
    }
    for (i, v) in items(spec, "volumes").enumerate() {
        for gone in ["gitRepo", "glusterfs", "cephfs", "rbd", "scaleIO", "flocker", "storageos", "quobyte"] {
            if v.get(gone).is_some() {
                all.push(format!("spec.volumes[{i}].{gone}: deprecated or removed, non-functional"));
            }
        }
    }
    all
}

fn items<'a>(v: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    v[list].as_array().into_iter().flatten()
}

fn container(c: &Value, path: &str, all: &mut Vec<String>) {
    let mut seen = HashMap::new();
    for (i, e) in items(c, "env").enumerate() {
        let name = e["name"].as_str().unwrap_or("");
        // A value that refers to the earlier one of its name is meant.
        let refers = e["value"].as_str().is_some_and(|v| v.contains(&format!("$({name})")));
        if seen.insert(name, i).is_some() && !refers {
            all.push(format!(
                "{path}.env[{i}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
    let mut ports = HashMap::new();
    for (i, p) in items(c, "ports").enumerate() {
        let key = (
            p["containerPort"].to_string(),
            p["protocol"].to_string(),
            p["hostPort"].to_string(),
            p["hostIP"].to_string(),
        );
        if let Some(first) = ports.get(&key) {
            all.push(format!("{path}.ports[{i}]: duplicate port definition with {path}.ports[{first}]"));
        }
        ports.entry(key).or_insert(i);
    }
    for side in ["limits", "requests"] {
        for name in ["memory", "ephemeral-storage"] {
            let value = c["resources"][side][name].as_str().unwrap_or("");
            if Amount::parse(value).is_ok_and(|a| a.milli() % 1000 != 0) {
                all.push(format!(
                    "{path}.resources.{side}[{name}]: fractional byte value {value:?} is invalid, must be an integer"
                ));
            }
        }
    }
}
