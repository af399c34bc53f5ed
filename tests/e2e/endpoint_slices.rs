//! EndpointSlices and Endpoints of Services.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually};

fn service(kubectl: &Kubectl, spec: &Value) {
    let mut all = json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]});
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": all});
    kubectl.apply(&object.to_string());
}

/// Returns all endpoints of the Service.
fn endpoints(kubectl: &Kubectl) -> Vec<Value> {
    let list = kubectl.run("get endpointslices -l kubernetes.io/service-name=web -o json").ok();
    let list: Value = serde_json::from_str(&list).unwrap();
    let slices = list["items"].as_array().cloned().unwrap_or_default();
    slices.iter().flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default()).collect()
}

/// Returns the conditions of the only endpoint.
fn conditions(kubectl: &Kubectl) -> Value {
    endpoints(kubectl).first().map(|e| e["conditions"].clone()).unwrap_or_default()
}

#[e2e_test("EndpointSlices follow a Pod's readiness and termination")]
fn endpoint_slices_follow_pod_readiness(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    service(&kubectl, &json!({}));
    eventually("an empty slice", || {
        let list = kubectl.run("get endpointslices -o json").ok();
        let list: Value = serde_json::from_str(&list).unwrap();
        list["items"].as_array().is_some_and(|items| items.len() == 1) && endpoints(&kubectl).is_empty()
    });
    let probe = json!({"exec": {"command": ["test", "-f", "/tmp/ready"]}, "periodSeconds": 1,
        "timeoutSeconds": 30});
    // The container ignores SIGTERM.
    let pod = PodBuilder::new("web")
        .label("app", "web")
        .grace_period(600)
        .script("trap '' TERM; while true; do sleep 1; done")
        .container(&json!({"readinessProbe": probe}));
    kubectl.apply(&pod.to_string());
    let is = |ready: bool, serving: bool, terminating: bool| json!({"ready": ready, "serving": serving, "terminating": terminating});
    eventually("an endpoint that is not ready", || conditions(&kubectl) == is(false, false, false));
    let ip = kubectl.value("pod/web", "/status/podIP");
    assert_eq!(endpoints(&kubectl)[0]["addresses"][0], ip);
    eventually("the Endpoints to match", || {
        let subset = kubectl.value("endpoints/web", "/subsets/0");
        subset["notReadyAddresses"][0]["ip"] == ip && subset["addresses"].is_null()
    });
    eventually("exec in the Pod", || kubectl.run("exec web -- touch /tmp/ready").code == 0);
    eventually("a ready endpoint", || conditions(&kubectl) == is(true, true, false));
    eventually("the Endpoints to match", || kubectl.value("endpoints/web", "/subsets/0/addresses/0/ip") == ip);
    let output = kubectl.run("describe service web").ok();
    assert!(output.contains(&format!("{}:8080", ip.as_str().unwrap())), "{output}");
    kubectl.run("delete pod web --wait=false").ok();
    eventually("a terminating endpoint that serves", || conditions(&kubectl) == is(false, true, true));
    eventually("empty Endpoints", || kubectl.value("endpoints/web", "/subsets").is_null());
    kubectl.run("exec web -- rm /tmp/ready").ok();
    eventually("a terminating endpoint that does not serve", || conditions(&kubectl) == is(false, false, true));
    kubectl.run("delete pod web --grace-period=0 --force").ok();
    eventually("no endpoints", || endpoints(&kubectl).is_empty());
    kubectl.run("delete service web").ok();
    eventually("the slices to be deleted with the Service", || {
        kubectl.run("get endpointslices,endpoints -o name").is_ok_and(str::is_empty)
    });
}

#[e2e_test("endpoints resolve named ports and serve headless Services")]
fn endpoints_resolve_named_ports(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let port = json!([{"name": "http", "port": 80, "targetPort": "web"}]);
    service(&kubectl, &json!({"clusterIP": "None", "publishNotReadyAddresses": true, "ports": port}));
    let ports = json!([{"name": "web", "containerPort": 8080}]);
    let pod = PodBuilder::new("p")
        .label("app", "web")
        .grace_period(0)
        .spec(&json!({"hostname": "h", "subdomain": "web"}))
        .command(&["sleep", "100000"])
        .container(&json!({"ports": ports, "readinessProbe": {"exec": {"command": ["false"]}}}));
    kubectl.apply(&pod.to_string());
    eventually("the not ready address to be published", || conditions(&kubectl)["ready"] == true);
    assert_eq!((&conditions(&kubectl)["serving"], &endpoints(&kubectl)[0]["hostname"]), (&json!(false), &json!("h")));
    let list = kubectl.run("get endpointslices -o json").ok();
    let list: Value = serde_json::from_str(&list).unwrap();
    let slice = &list["items"][0];
    assert_eq!((&slice["ports"][0]["port"], &slice["ports"][0]["name"]), (&json!(8080), &json!("http")));
    assert_eq!(slice["metadata"]["labels"]["service.kubernetes.io/headless"], "");
    assert_eq!(slice["metadata"]["ownerReferences"][0]["name"], "web");
    kubectl.run("delete pod p").ok();
}

#[e2e_test("EndpointSlices follow a Service's Pods through a rollout")]
fn endpoint_slices_follow_rollout(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    service(&kubectl, &json!({}));
    let container = json!({"name": "c", "image": test_images::BUSYBOX, "command": ["sleep", "100000"]});
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}});
    kubectl.apply(&object.to_string());
    let ready = || {
        let all = endpoints(&kubectl);
        let mut names: Vec<String> =
            all.iter().map(|e| e["targetRef"]["name"].as_str().unwrap_or("").to_owned()).collect();
        names.sort();
        if all.iter().all(|e| e["conditions"]["ready"] == true) { names } else { vec![] }
    };
    eventually("two ready endpoints", || ready().len() == 2);
    let before = ready();
    kubectl.run("rollout restart deployment web").ok();
    kubectl.run("rollout status deployment web --timeout=120s").ok();
    eventually("two new endpoints", || {
        let now = ready();
        now.len() == 2 && !now.iter().any(|name| before.contains(name))
    });
    kubectl.run("delete deployment web").ok();
    eventually("no endpoints", || endpoints(&kubectl).is_empty());
}

#[e2e_test("Endpoints of a Service without selector are mirrored into EndpointSlices")]
fn endpoints_without_selector_are_mirrored(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    service(&kubectl, &json!({"selector": null}));
    let write = |ip: &str| {
        let subsets = json!([{"addresses": [{"ip": ip}], "ports": [{"port": 8080}]}]);
        let object = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web"}, "subsets": subsets});
        kubectl.apply(&object.to_string());
    };
    let shown = |ip: &str| json!([{"addresses": [ip], "conditions": {"ready": true}}]);
    write("192.0.2.1");
    eventually("a mirrored slice", || json!(endpoints(&kubectl)) == shown("192.0.2.1"));
    write("192.0.2.2");
    eventually("the slice to be updated", || json!(endpoints(&kubectl)) == shown("192.0.2.2"));
    kubectl.run("delete endpoints/web").ok();
    eventually("the slice to be deleted", || endpoints(&kubectl).is_empty());
}
