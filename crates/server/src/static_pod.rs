//! Defaults and validation of static Pods, which the kubelet runs from a manifest.

use crate::http::clock::now;
use api::feature_gates::FeatureGates;
use kinds::{FieldErrors, Kind, WriteContext, WriteTarget, object_meta, priority_class};
use serde_json::Value;
use std::sync::Arc;

/// Invalid fields of a static Pod, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[{}]", .fields.join(", "))]
pub struct InvalidStaticPod {
    /// The error of each field.
    fields: Vec<String>,
}

/// Defaults and validates the manifest of a static Pod as a new Pod, without a service account.
///
/// # Errors
/// Upstream's validation errors.
pub fn prepare_static_pod(object: &mut Value, gates: &FeatureGates) -> Result<(), InvalidStaticPod> {
    let kind: &dyn Kind = kinds::POD;
    let account = ["serviceAccountName", "serviceAccount"].map(|field| object["spec"].get(field).cloned());
    kind.set_defaults(object);
    kind.apply_admission_defaults(object);
    if account.iter().all(Option::is_none)
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.remove("serviceAccountName");
        spec.remove("serviceAccount");
    }
    let named = object["spec"]["priorityClassName"].as_str().unwrap_or("").to_owned();
    let class = priority_class::system_priority_class(&named);
    if named.is_empty() || class.is_some() {
        // A priority that contradicts the class is rejected when the mirror Pod is created.
        let _ = priority_class::admit(object, class.as_ref());
    }
    let mut errors = FieldErrors::default();
    let ctx = WriteContext { now: now(), gates: Arc::new(gates.clone()), target: WriteTarget::Main };
    object_meta::validate(kind, object, &mut errors);
    kind.validate_create(object, &ctx, &mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    Err(InvalidStaticPod { fields: errors.0.iter().map(ToString::to_string).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(spec: Value, expected: Result<Value, &str>) {
        let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p-n", "namespace": "default", "uid": "u"}, "spec": spec});
        let got = prepare_static_pod(&mut object, &FeatureGates::default());
        match expected {
            Ok(fields) => {
                assert_eq!(got, Ok(()));
                for (key, value) in fields.as_object().unwrap() {
                    assert_eq!(object["spec"].get(key).unwrap_or(&Value::Null), value, "{key}");
                }
            }
            Err(expected) => assert!(got.as_ref().is_err_and(|e| e.to_string().contains(expected)), "{got:?}"),
        }
    }

    #[test]
    fn static_pod_gets_pod_defaults_without_service_account() {
        let containers = json!([{"name": "c", "image": "i"}]);
        check(
            json!({"containers": containers}),
            Ok(
                json!({"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "serviceAccountName": null, "serviceAccount": null}),
            ),
        );
        check(
            json!({"containers": containers, "priorityClassName": "system-node-critical"}),
            Ok(json!({"priority": 2_000_001_000})),
        );
        check(json!({"containers": containers, "serviceAccountName": "a"}), Ok(json!({"serviceAccountName": "a"})));
        check(json!({"containers": containers, "priorityClassName": "of-the-cluster"}), Ok(json!({"priority": null})));
    }

    #[test]
    fn static_pod_is_validated_as_a_pod() {
        check(json!({"containers": []}), Err("spec.containers: Required value"));
        check(json!({"containers": [{"name": "C", "image": "i"}]}), Err("spec.containers[0].name: Invalid value"));
    }
}
