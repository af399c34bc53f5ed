//! HorizontalPodAutoscaler in `autoscaling/v1` and `v2`.

use super::*;

const V1: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
const V2: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";

fn autoscaler(version: &str, fields: Value) -> Value {
    let mut object = json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
    merge_into(&mut object, &fields);
    object
}

#[tokio::test]
async fn horizontal_pod_autoscaler_versions() {
    let discovery = json!({"singularName": "horizontalpodautoscaler", "shortNames": ["hpa"], "categories": ["all"], "status": true});
    let columns = "Name|Reference|Targets|MinPods|MaxPods|Replicas|Age";
    let cells = json!(["h", "Deployment/web", "cpu: <unknown>/80%", "1", 3, 0, null]);
    KindCase {
        path: V2,
        discovery: discovery.clone(),
        manifest: autoscaler("v2", json!({})),
        made: json!({"spec": {"minReplicas": 1, "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]}}),
        invalid: &[
            (r#"{"spec": {"minReplicas": 5}}"#, "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`"),
            (r#"{"spec": {"minReplicas": 0}}"#, "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"),
            (r#"{"spec": {"scaleTargetRef": {"name": null}}}"#, "spec.scaleTargetRef.name: Required value"),
            (
                r#"{"spec": {"scaleTargetRef": {"apiVersion": "v1"}}}"#,
                "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group",
            ),
            (
                r#"{"spec": {"scaleTargetRef": {"apiVersion": null}}}"#,
                "spec.scaleTargetRef.apiVersion: Invalid value: \"\": apiVersion must specify API group",
            ),
            (
                r#"{"spec": {"scaleTargetRef": {"apiVersion": "a/b/c"}}}"#,
                "spec.scaleTargetRef.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            ),
            (
                r#"{"spec": {"metrics": [{"type": "Object", "object": {"describedObject": {"apiVersion": "a/b/c", "kind": "X", "name": "x"}, "metric": {"name": "a"}, "target": {"type": "Value", "value": "1"}}}]}}"#,
                "spec.metrics[0].object.describedObject.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            ),
            (
                r#"{"spec": {"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}]}}"#,
                "spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw value or a target utilization",
            ),
            (
                r#"{"spec": {"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 5, "averageValue": "1"}}}]}}"#,
                "spec.metrics[0].resource.target.averageValue: Forbidden: may not set both a target raw value and a target utilization",
            ),
            (
                r#"{"spec": {"metrics": [{"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "-1"}}}]}}"#,
                "spec.metrics[0].pods.target.averageValue: Invalid value: \"-1\": must be positive",
            ),
            (
                r#"{"spec": {"metrics": [{"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value"}}}]}}"#,
                "spec.metrics[0].external.target.averageValue: Required value: must set either a target value for metric or a per-pod target",
            ),
            (
                r#"{"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 3601, "selectPolicy": "Avg", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 1801}]}}}}"#,
                "[spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600, spec.behavior.scaleDown.selectPolicy: Unsupported value: \"Avg\": supported values: \"Disabled\", \"Max\", \"Min\", spec.behavior.scaleDown.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800]",
            ),
            (
                r#"{"spec": {"behavior": {"scaleUp": {"policies": []}}}}"#,
                "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy",
            ),
            (
                r#"{"spec": {"metrics": [{"type": "Pods", "pods": {"metric": {"name": "a/b"}, "target": {"type": "AverageValue", "averageValue": "1"}}}]}}"#,
                "spec.metrics[0].pods.metric.name: Invalid value: \"a/b\": may not contain '/'",
            ),
            (
                r#"{"spec": {"metrics": [{"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "", "target": {"type": "Utilization", "averageUtilization": 5}}}]}}"#,
                "spec.metrics[0].containerResource.container: Required value: must specify a container",
            ),
            (
                r#"{"spec": {"scaleTargetRef": {"kind": "..", "name": "a/b"}}}"#,
                "[spec.scaleTargetRef.kind: Invalid value: \"..\": may not be '..', spec.scaleTargetRef.name: Invalid value: \"a/b\": may not contain '/']",
            ),
            (
                r#"{"spec": {"behavior": {"scaleDown": {"tolerance": "-1"}}}}"#,
                "spec.behavior.scaleDown.tolerance: Invalid value: \"-1\": must be greater than or equal to 0",
            ),
            (
                r#"{"spec": {"metrics": [{"type": "Object", "object": {"describedObject": {"kind": "", "name": "x"}, "metric": {"name": "a"}, "target": {"type": "Value", "value": "1"}}}]}}"#,
                "spec.metrics[0].object.describedObject.kind: Required value",
            ),
            (
                r#"{"spec": {"metrics": [{"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "a.b", "target": {"type": "Utilization", "averageUtilization": 5}}}]}}"#,
                "spec.metrics[0].containerResource.container: Invalid value: \"a.b\": must not contain dots",
            ),
            (
                r#"{"spec": {"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 5}}, "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}}]}}"#,
                "spec.metrics[0].pods: Forbidden: must populate the given metric source only",
            ),
            (r#"{"spec": {"metrics": [{"type": "Pods"}]}}"#, "spec.metrics[0].pods: Required value: must populate information for the given metric source"),
        ],
        columns,
        cells: cells.clone(),
    }
    .check()
    .await;
    KindCase {
        path: V1,
        discovery,
        manifest: autoscaler("v1", json!({})),
        made: json!({"apiVersion": "autoscaling/v1", "spec": {"minReplicas": 1, "targetCPUUtilizationPercentage": 80, "metrics": null}}),
        invalid: &[(r#"{"spec": {"maxReplicas": -1}}"#, "[spec.maxReplicas: Invalid value: -1: must be greater than 0, spec.maxReplicas: Invalid value: -1: must be greater than or equal to `minReplicas`]")],
        columns,
        cells,
    }
    .check()
    .await;
}

#[tokio::test]
async fn hpa_is_converted_between_v1_and_v2() {
    let api = TestApi::new().await;
    let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}});
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    api.check(post(V2, &autoscaler("v2", json!({"spec": {"metrics": [cpu, memory]}}))), 201, json!({})).await;
    let note = json!([{"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}}]).to_string();
    let key = "autoscaling.alpha.kubernetes.io/metrics";
    let older = api
        .check(
            get(format!("{V1}/h")),
            200,
            json!({"apiVersion": "autoscaling/v1", "metadata": {"annotations": {key: note}}, "spec": {"targetCPUUtilizationPercentage": 50}}),
        )
        .await
        .body;
    let mut changed = older.clone();
    changed["spec"]["targetCPUUtilizationPercentage"] = json!(60);
    api.check(put(format!("{V1}/h"), &changed), 200, json!({"spec": {"targetCPUUtilizationPercentage": 60}})).await;
    let newer = json!({"apiVersion": "autoscaling/v2", "metadata": {"annotations": null},
        "spec": {"metrics": [{"resource": {"target": {"averageUtilization": 60}}}, {"resource": {"name": "memory"}}]}});
    api.check(get(format!("{V2}/h")), 200, newer).await;
    let mut events = api.watch(&format!("{V1}?watch=1")).await;
    events.check("ADDED", json!({"apiVersion": "autoscaling/v1", "spec": {"metrics": null}})).await;
    let list = json!({"kind": "HorizontalPodAutoscalerList", "apiVersion": "autoscaling/v1", "items": [{"apiVersion": null, "spec": {"targetCPUUtilizationPercentage": 60}}]});
    api.check(get(V1), 200, list).await;
}

#[tokio::test]
async fn hpa_behavior_is_an_annotation_in_v1() {
    let api = TestApi::new().await;
    let key = "autoscaling.alpha.kubernetes.io/behavior";
    let note = r#"{"ScaleUp":{"StabilizationWindowSeconds":7},"Unknown":1}"#;
    api.check(post(V1, &autoscaler("v1", json!({"metadata": {"annotations": {key: note}}}))), 201, json!({})).await;
    let up = json!({"stabilizationWindowSeconds": 7, "selectPolicy": "Max"});
    let newer = json!({"metadata": {"annotations": null}, "spec": {"behavior": {"scaleUp": up, "ScaleUp": null, "Unknown": null}}});
    api.check(get(format!("{V2}/h")), 200, newer).await;
    let older = api.check(get(format!("{V1}/h")), 200, json!({})).await.body;
    let text = older["metadata"]["annotations"][key].as_str().unwrap_or("").to_owned();
    let begins = r#"{"ScaleUp":{"StabilizationWindowSeconds":7,"SelectPolicy":"Max","Policies":[{"Type":"#;
    assert!(text.starts_with(begins), "{text}");
    assert!(text.contains(r#""ScaleDown":{"StabilizationWindowSeconds":null,"#), "{text}");
}

#[tokio::test]
async fn discovery_names_the_preferred_version() {
    let api = TestApi::new().await;
    let group = json!({"name": "autoscaling", "versions": [{"version": "v2"}, {"version": "v1"}], "preferredVersion": {"groupVersion": "autoscaling/v2"}});
    api.check(get("/apis/autoscaling"), 200, group.clone()).await;
    let all = api.check(get("/apis"), 200, json!({})).await.body;
    let names: Vec<&str> = all["groups"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
    assert!(names.len() > 15 && names.iter().filter(|n| **n == "autoscaling").count() == 1, "{names:?}");
    let aggregated =
        get("/apis").header("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    let all = api.check(aggregated, 200, json!({"kind": "APIGroupDiscoveryList"})).await.body;
    let found = all["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "autoscaling").unwrap();
    let versions: Vec<&str> =
        found["versions"].as_array().unwrap().iter().map(|v| v["version"].as_str().unwrap()).collect();
    assert_eq!(versions, ["v2", "v1"]);
}
