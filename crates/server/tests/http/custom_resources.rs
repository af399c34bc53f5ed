//! Custom resources and CustomResourceDefinitions.

mod conversion;
mod definitions;
mod objects;
mod ratcheting;
mod scale;
mod schemas;
mod validation_rules;

use crate::common::*;
use serde_json::{Value, json};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const CRONTABS: &str = "/apis/stable.example.com/v1/namespaces/default/crontabs";

/// Returns a CustomResourceDefinition of CronTabs with these properties of `spec`.
pub(crate) fn crontab_definition(spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "crontabs.stable.example.com"},
        "spec": {
            "group": "stable.example.com", "scope": "Namespaced",
            "names": {"plural": "crontabs", "kind": "CronTab", "shortNames": ["ct"], "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": spec},
                    "status": {"type": "object", "properties": {
                        "replicas": {"type": "integer"}, "labelSelector": {"type": "string"},
                    }},
                }}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.labelSelector",
                }},
                "additionalPrinterColumns": [
                    {"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec"},
                    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}

/// Returns the properties of `spec` in the documentation's example.
pub(crate) fn crontab_properties() -> Value {
    json!({
        "cronSpec": {"type": "string", "pattern": r"^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$"},
        "image": {"type": "string", "default": "busybox"},
        "replicas": {"type": "integer", "minimum": 1, "maximum": 10},
    })
}

pub(crate) fn crontab(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name}, "spec": spec})
}

/// Starts a server with the CronTab definition.
pub(crate) async fn api_with_crontabs(spec: &Value) -> TestApi {
    let api = TestApi::new().await;
    api.check(post(DEFINITIONS, &crontab_definition(spec)), 201, json!({})).await;
    api
}

/// Repeats a GET until the response has this status code.
pub(crate) async fn wait_for_status(api: &TestApi, path: &str, status: u16) -> Value {
    loop {
        let response = api.send(&get(path)).await;
        if response.status == status {
            return response.body;
        }
        tokio::task::yield_now().await;
    }
}
