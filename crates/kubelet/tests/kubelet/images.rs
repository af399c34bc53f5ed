//! Image pulls, credentials and image volumes.

use super::Node;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn hanging_pull_blocks_others_only_if_serialized() {
    for (config, runs) in [("", false), ("serializeImagePulls: false", true), ("maxParallelImagePulls: 2", true)] {
        let node = Node::started(config);
        node.runtime.hang_pull("example.com/slow:1");
        node.runtime.add_image("example.com/quick:1");
        for (name, image) in [("slow", "example.com/slow:1"), ("quick", "example.com/quick:1")] {
            node.pod(name, &json!({"container": {"image": image, "imagePullPolicy": "Always"}}));
            node.api.wait_until("its pull was asked for", |_| node.runtime.pulls().len() == 1 || name == "quick").await;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(node.status("quick")["phase"] == "Running", runs, "{config}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_pull_is_retried_after_10_20_40_seconds() {
    let node = Node::started("");
    node.pod("p", &json!({"container": {"image": "example.com/late:1"}}));
    let reason = |s: &Value| s["containerStatuses"][0]["state"]["waiting"]["reason"].clone();
    node.until_status("p", "cannot pull", |s| reason(s) == "ErrImagePull").await;
    node.until_status("p", "backs off", |s| reason(s) == "ImagePullBackOff").await;
    node.api.wait_until("four pulls", |_| node.runtime.pulls().len() >= 4).await;
    let pulls = node.runtime.pulls();
    let waits: Vec<i64> = pulls.windows(2).map(|w| w[1].duration_since(w[0]).as_secs()).collect();
    assert_eq!(waits, [10, 20, 40]);
    node.runtime.add_image("example.com/late:1");
    node.until_running("p").await;
}

/// Creates an image pull Secret with these passwords by registry.
fn put_secret(node: &Node, name: &str, passwords: &Value) {
    let logins = passwords.as_object().expect("a map").iter();
    let auths: Value =
        logins.map(|(at, password)| (at.clone(), json!({"username": "u", "password": password}))).collect();
    let data = STANDARD.encode(json!({"auths": auths}).to_string());
    let secret = json!({"metadata": {"name": name, "namespace": "x", "uid": format!("uid-{name}")},
        "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": data}});
    node.api.put(&format!("api/v1/namespaces/x/secrets/{name}"), secret);
}

fn waiting(status: &Value) -> (String, String) {
    let waiting = &status["containerStatuses"][0]["state"]["waiting"];
    let word = |field: &str| waiting[field].as_str().unwrap_or_default().to_owned();
    (word("reason"), word("message"))
}

#[tokio::test(start_paused = true)]
async fn credentials_are_tried_in_turn_and_all_errors_reported() {
    let node = Node::started("");
    node.runtime.make_private("r.io/team/a:1", "right");
    put_secret(&node, "s", &json!({"r.io/team": "wrong", "r.io": "right"}));
    put_secret(&node, "t", &json!({"r.io/team/a": "other", "r.io": "wrong"}));
    let pod = |name: &str, secrets: &[&str]| {
        let secrets: Vec<Value> = secrets.iter().map(|name| json!({"name": name})).collect();
        node.pod(name, &json!({"container": {"image": "r.io/team/a:1"}, "imagePullSecrets": secrets}));
    };
    pod("refused", &["t"]);
    node.until_status("refused", "is refused", |s| waiting(s).0 == "ErrImagePull").await;
    let message = waiting(&node.status("refused")).1;
    assert_eq!(message, "[r.io/team/a:1: other is refused, r.io/team/a:1: wrong is refused]");
    pod("nobody", &["absent"]);
    node.until_status("nobody", "is refused", |s| waiting(s).1 == "r.io/team/a:1: nobody is refused").await;
    let before = node.runtime.pulls().len();
    pod("p", &["t", "s"]);
    node.until_running("p").await;
    // `other`, `wrong` for the longer path, `wrong` of the first Secret, `right` of the second.
    assert_eq!(node.runtime.pulls().len() - before, 4);
}

#[tokio::test(start_paused = true)]
async fn image_pulled_with_a_secret_requires_the_secret() {
    let mut node = Node::started("");
    node.runtime.make_private("r.io/a:1", "right");
    put_secret(&node, "s", &json!({"r.io": "right"}));
    let pod = |node: &Node, name: &str, policy: &str, secrets: Value| {
        let container = json!({"image": "r.io/a:1", "imagePullPolicy": policy});
        node.pod(name, &json!({"container": container, "imagePullSecrets": secrets}));
    };
    pod(&node, "first", "IfNotPresent", json!([{"name": "s"}]));
    node.until_running("first").await;
    for round in ["before", "after"] {
        let pulls = node.runtime.pulls().len();
        let name = |prefix: &str| format!("{prefix}-{round}");
        pod(&node, &name("second"), "IfNotPresent", json!([{"name": "s"}]));
        node.until_running(&name("second")).await;
        pod(&node, &name("never"), "Never", json!([{"name": "s"}]));
        node.until_running(&name("never")).await;
        assert_eq!(node.runtime.pulls().len(), pulls, "{round}: no registry is asked");
        pod(&node, &name("other"), "IfNotPresent", json!([]));
        node.until_status(&name("other"), "is refused", |s| waiting(s).1 == "r.io/a:1: nobody is refused").await;
        pod(&node, &name("nobody"), "Never", json!([]));
        let refused = "Container image \"r.io/a:1\" is not present with pull policy of Never";
        node.until_status(&name("nobody"), "is refused", |s| waiting(s).1 == refused).await;
        // The pull records survive a restart of the kubelet.
        node.stop().await;
        node.start();
    }
}

#[tokio::test(start_paused = true)]
async fn pulls_respect_the_registry_rate_limit() {
    let node = Node::started("serializeImagePulls: false\nregistryPullQPS: 1\nregistryBurst: 2");
    for n in 0..4 {
        let image = format!("example.com/{n}:1");
        node.runtime.add_image(&image);
        node.pod(&format!("p{n}"), &json!({"container": {"image": image, "imagePullPolicy": "Always"}}));
    }
    let refused =
        || (0..4).filter(|n| waiting(&node.status(&format!("p{n}"))).1.ends_with("pull QPS exceeded")).count();
    node.api.wait_until("two to be refused", |_| refused() == 2).await;
    for n in 0..4 {
        node.until_running(&format!("p{n}")).await;
    }
    assert_eq!(node.runtime.pulls().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn image_volume_is_pulled_and_mounted_by_the_runtime() {
    let node = Node::started("");
    node.runtime.make_private("r.io/data:1", "right");
    put_secret(&node, "s", &json!({"r.io": "right"}));
    let volumes = json!([{"name": "v", "image": {"reference": "r.io/data:1", "pullPolicy": "IfNotPresent"}}]);
    let mounts = json!([{"name": "v", "mountPath": "/v", "subPath": "a/b"}]);
    let pod = |name: &str, secrets: Value| {
        let container = json!({"volumeMounts": mounts});
        node.pod(name, &json!({"volumes": volumes, "imagePullSecrets": secrets, "container": container}));
    };
    pod("refused", json!([]));
    node.until_status("refused", "is refused", |s| waiting(s).0 == "ErrImagePull").await;
    assert_eq!(waiting(&node.status("refused")).1, "r.io/data:1: nobody is refused");
    node.until_status("refused", "backs off", |s| waiting(s).0 == "ImagePullBackOff").await;
    let text = "Back-off pulling image \"r.io/data:1\": ErrImagePull: r.io/data:1: nobody is refused";
    assert_eq!(waiting(&node.status("refused")).1, text);
    assert!(node.runtime.made("refused").is_empty());
    pod("p", json!([{"name": "s"}]));
    node.until_running("p").await;
    let made = node.runtime.made("p").remove(0);
    let mount = made.mounts.iter().find(|m| m.container_path == "/v").expect("a mount");
    let image = mount.image.as_ref().expect("an image");
    assert_eq!(
        (image.image_ref.as_str(), image.image.as_str(), image.sub_path.as_str()),
        ("r.io/data:1", "r.io/data:1", "a/b")
    );
    assert!(mount.readonly && mount.host_path.as_os_str().is_empty());
    // A container that does not mount the volume does not wait for it.
    node.pod("other", &json!({"volumes": volumes}));
    node.until_running("other").await;
}

#[tokio::test(start_paused = true)]
async fn image_is_pulled_for_the_runtime_handler_with_the_gate() {
    for (config, handler) in [("", ""), ("featureGates: {RuntimeClassInImageCriApi: true}", "vm")] {
        let node = Node::started(config);
        let class = json!({"metadata": {"name": "isolated", "uid": "uid-isolated"}, "handler": "vm"});
        node.api.put("apis/node.k8s.io/v1/runtimeclasses/isolated", class);
        node.runtime.make_private("example.com/a:1", "none");
        node.pod("p", &json!({"container": {"image": "example.com/a:1"}, "runtimeClassName": "isolated"}));
        node.api.wait_until("its pull was asked for", |_| !node.runtime.pulled_for().is_empty()).await;
        assert_eq!(node.runtime.pulled_for()[0], handler, "{config:?}");
    }
}
