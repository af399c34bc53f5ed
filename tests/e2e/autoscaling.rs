//! HorizontalPodAutoscalers.

use serde_json::{Value, json};
use std::time::Duration;
use tests::{Cluster, Kubectl, e2e_test, eventually, wait_for};

/// Applies a Deployment `web` whose containers run a script.
fn deployment(kubectl: &Kubectl, script: &str, resources: &Value) {
    let labels = json!({"app": "web"});
    let container =
        json!({"name": "c", "image": test_images::BUSYBOX, "command": ["sh", "-c", script], "resources": resources});
    let template = json!({"metadata": {"labels": labels},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": labels}, "template": template}});
    kubectl.apply(&object.to_string());
}

fn replicas(kubectl: &Kubectl) -> Value {
    kubectl.value("deployment/web", "/spec/replicas")
}

/// Waits for a number of replicas that depends on metrics, which take a while.
fn wait_for_replicas(kubectl: &Kubectl, resource: &str, expected: i64) {
    wait_for(resource, Duration::from_secs(180), || match replicas(kubectl) {
        found if found == expected => Ok(()),
        found => Err(format!("{found}, {}", kubectl.condition("hpa/web", "ScalingActive"))),
    });
}

#[e2e_test("an autoscaler keeps its replica bounds and reports missing metrics")]
fn autoscaler_keeps_bounds_and_reports_missing_metrics(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    deployment(&kubectl, "sleep 100000", &json!({}));
    kubectl.run("autoscale deployment web --cpu-percent=50 --min=2 --max=3").ok();
    eventually("minReplicas replicas", || replicas(&kubectl) == 2);
    eventually("the Events", || {
        let output = "New size: 2; reason: Current number of replicas below Spec.MinReplicas";
        kubectl.events("web").contains(&("SuccessfulRescale".to_owned(), output.to_owned()))
    });
    eventually("the missing metrics to be reported", || {
        kubectl.condition("hpa/web", "ScalingActive")["reason"] == "FailedGetResourceMetric"
    });
    let table = kubectl.run("get hpa web --no-headers").ok();
    let cells: Vec<&str> = table.split_whitespace().take(7).collect();
    assert_eq!(cells, ["web", "Deployment/web", "cpu:", "<unknown>/50%", "2", "3", "2"]);
    let described = kubectl.run("describe hpa web").ok();
    for part in ["Deployment pods:", "2 current / 2 desired", "AbleToScale", "SucceededGetScale", "SuccessfulRescale"] {
        assert!(described.contains(part), "{part:?} is not in {described}");
    }
    kubectl.run("scale deployment web --replicas=9").ok();
    eventually("maxReplicas replicas", || replicas(&kubectl) == 3);
    kubectl.run("scale deployment web --replicas=0").ok();
    eventually("a Deployment scaled to 0 to keep 0 replicas", || {
        kubectl.condition("hpa/web", "ScalingActive")["reason"] == "ScalingDisabled"
    });
    assert_eq!(replicas(&kubectl), 0);
    kubectl.run("delete hpa,deployment web").ok();
}

#[e2e_test("an autoscaler scales a custom resource and reports a missing scale")]
fn autoscaler_scales_custom_resource(cluster: &Cluster) {
    let (kubectl, group) = (cluster.kubectl(), "scaled.example.com");
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector"});
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any},
        "subresources": {"scale": scale}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("foos.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"}, "versions": [version]}});
    // It exists when the test runs again after a failure.
    kubectl.run(&format!("delete crd foos.{group} --ignore-not-found")).ok();
    let target = json!({"apiVersion": format!("{group}/v1"), "kind": "Foo", "name": "f"});
    let autoscaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"}, "spec": {"minReplicas": 4, "maxReplicas": 5, "scaleTargetRef": target}});
    kubectl.apply(&autoscaler.to_string());
    let unknown = format!(
        "the HPA controller was unable to get the target's current scale: no matches for kind \"Foo\" in group \"{group}\""
    );
    eventually("the missing kind to be reported", || {
        kubectl.condition("hpa/web", "AbleToScale")["message"] == json!(unknown)
    });
    kubectl.apply(&definition.to_string());
    kubectl.run(&format!("wait --for=condition=Established --timeout=90s crd/foos.{group}")).ok();
    let object =
        json!({"apiVersion": format!("{group}/v1"), "kind": "Foo", "metadata": {"name": "f"}, "spec": {"replicas": 1}});
    kubectl.apply(&object.to_string());
    eventually("the custom resource to be scaled", || kubectl.value(&format!("foos.{group}/f"), "/spec/replicas") == 4);
    eventually("the missing selector to be reported", || {
        kubectl.condition("hpa/web", "ScalingActive")["reason"] == "InvalidSelector"
    });
    kubectl.run("delete hpa web").ok();
    kubectl.run(&format!("delete crd foos.{group}")).ok();
}

#[e2e_test("CPU load scales a Deployment up, and idle Pods scale it down")]
fn cpu_load_scales_deployment_up_and_down(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let resources = json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "100m"}});
    deployment(&kubectl, "while [ ! -e /tmp/rest ]; do :; done; sleep 100000", &resources);
    kubectl.run("autoscale deployment web --cpu-percent=50 --min=1 --max=3").ok();
    let at_once = json!({"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}}).to_string();
    kubectl.args(&["patch", "hpa", "web", "--type=merge", "-p", &at_once], "").ok();
    wait_for_replicas(&kubectl, "more, for what it uses", 3);
    eventually("the Events", || {
        let output = "reason: cpu resource utilization (percentage of request) above target";
        kubectl.events("web").iter().any(|(reason, text)| reason == "SuccessfulRescale" && text.ends_with(output))
    });
    assert_eq!(kubectl.condition("hpa/web", "ScalingActive")["reason"], "ValidMetricFound");
    kubectl.run("rollout status deployment web --timeout=120s").ok();
    for pod in kubectl.run("get pods -l app=web -o name").ok().lines() {
        kubectl.args(&["exec", pod, "--", "touch", "/tmp/rest"], "").ok();
    }
    wait_for_replicas(&kubectl, "fewer, for they rest", 1);
    kubectl.run("delete hpa,deployment web").ok();
}
