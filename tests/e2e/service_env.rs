//! Environment variables for Services.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test};

fn env_of(kubectl: &Kubectl, name: &str, links: bool) -> String {
    let pod = PodBuilder::new(name)
        .restart_policy("Never")
        .spec(&json!({"enableServiceLinks": links}))
        .script("env | sort")
        .env("AT", "at $(WEB_SERVICE_HOST)");
    kubectl.apply(&pod.to_string());
    kubectl.wait_value(&format!("pod/{name}"), "/status/phase", &json!("Succeeded"));
    kubectl.run(&format!("logs {name}")).ok()
}

#[e2e_test("env has the Services of the namespace and always the API's")]
fn service_env_vars_are_set(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.run("create service clusterip web --tcp=80:8080").ok();
    let ip = kubectl.value("service/web", "/spec/clusterIP");
    let ip = ip.as_str().unwrap();
    let listed = kubectl.run("get service web").ok();
    assert!(listed.contains("ClusterIP") && listed.contains(ip) && listed.contains("80/TCP"), "{listed}");
    let all = env_of(&kubectl, "linked", true);
    for line in [format!("AT=at {ip}"), format!("WEB_PORT=tcp://{ip}:80"), "WEB_SERVICE_PORT_80_8080=80".to_owned()] {
        assert!(all.lines().any(|l| l == line), "{line}: {all}");
    }
    let alone = env_of(&kubectl, "alone", false);
    assert!(!alone.contains("WEB_PORT") && alone.contains("AT=at $(WEB_SERVICE_HOST)\n"), "{alone}");
    for text in [&all, &alone] {
        assert!(text.contains("KUBERNETES_SERVICE_HOST=10.96.0.1\nKUBERNETES_SERVICE_PORT=443"), "{text}");
    }
    let port = kubectl.get("service/web").map(|s| s["spec"]["ports"][0]["targetPort"].clone());
    assert_eq!(port, Some(Value::from(8080)));
}
