//! Workloads of `apps/v1` for tests: their Pods have the label `app: NAME`, sleep, and end without a grace period.

use serde_json::{Value, json};
use tests::Kubectl;

/// Applies an object of `apps/v1` with these fields of its spec and container. A later field overrides an earlier one.
pub(crate) fn apply(kubectl: &Kubectl, kind: &str, name: &str, specs: &[&Value], container: &Value) {
    let labels = json!({"app": name});
    let mut all = json!({"selector": {"matchLabels": labels}, "template": {
        "metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": test_images::BUSYBOX, "command": ["sleep", "100000"]}]}}});
    for (field, value) in specs.iter().filter_map(|spec| spec.as_object()).flatten() {
        all[field] = value.clone();
    }
    for (field, value) in container.as_object().into_iter().flatten() {
        all["template"]["spec"]["containers"][0][field] = value.clone();
    }
    let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": all});
    kubectl.apply(&object.to_string());
}
