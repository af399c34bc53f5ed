//! ServiceAccount tokens: claims, permissions and lifetime.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually};

const DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn pod() -> PodBuilder {
    PodBuilder::new("p").grace_period(1).command(&["sleep", "100000"])
}

fn apply(kubectl: &Kubectl, pod: &PodBuilder) {
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
}

fn read(kubectl: &Kubectl, file: &str) -> String {
    kubectl.args(&["exec", "p", "--", "cat", file], "").ok()
}

/// Returns the output of a request with this token only.
fn show(cluster: &Cluster, token: &str, authority: &str) -> String {
    let config = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
    let file = cluster.data_dir().join("ca-of-a-pod.crt");
    std::fs::write(&file, authority).unwrap();
    let arguments = [
        "--server",
        server,
        "--certificate-authority",
        &file.display().to_string(),
        "--token",
        token,
        "get",
        "pods",
        "p",
    ];
    let nobody = Kubectl::new("/dev/null".into(), "default");
    nobody.args(&arguments, "").failed()
}

#[e2e_test("a Pod's token is bound to its ServiceAccount and revoked with the Pod")]
fn pod_token_is_revoked_with_the_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let namespace = kubectl.namespace().to_owned();
    apply(&kubectl, &pod());
    let (token, authority) = (read(&kubectl, &format!("{DIR}/token")), read(&kubectl, &format!("{DIR}/ca.crt")));
    assert_eq!(read(&kubectl, &format!("{DIR}/namespace")), namespace);
    let forbidden = format!(
        "pods \"p\" is forbidden: User \"system:serviceaccount:{namespace}:default\" cannot get resource \"pods\""
    );
    let output = show(cluster, &token, &authority);
    assert!(output.contains(&forbidden), "{output}");
    kubectl.run("delete pod p --wait --timeout=90s").ok();
    eventually("the token to be refused", || show(cluster, &token, &authority).contains("You must be logged in"));
    let requested = kubectl.run("create token default --duration=10m").ok();
    let output = show(cluster, requested.trim(), &authority);
    assert!(output.contains(&forbidden), "{output}");
    let short = kubectl.run("create token default --duration=5m").failed();
    assert!(short.contains("may not specify a duration less than 10 minutes"), "{short}");
}

#[e2e_test("automountServiceAccountToken and projected tokens are respected")]
fn token_projection_and_automount_are_respected(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    apply(&kubectl, &pod().spec(&json!({"automountServiceAccountToken": false})));
    kubectl.args(&["exec", "p", "--", "ls", DIR], "").failed();
    kubectl.run("delete pod p --wait --timeout=90s").ok();
    kubectl.run("create serviceaccount app").ok();
    let token = json!({"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 7200}});
    let spec = json!({"serviceAccountName": "app", "securityContext": {"runAsUser": 1000}});
    let projected = json!({"projected": {"sources": [token]}});
    apply(&kubectl, &pod().spec(&spec).volume("t", &projected).mount("t", "/t"));
    assert_eq!(kubectl.args(&["exec", "p", "--", "stat", "-L", "-c", "%u %a", "/t/vault"], "").ok(), "1000 600\n");
    assert_eq!(read(&kubectl, "/t/vault").split('.').count(), 3);
}

#[e2e_test("a service-account-token Secret is filled and deleted with its account")]
fn token_secret_is_filled_and_deleted_with_account(cluster: &Cluster) {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let kubectl = cluster.kubectl();
    let namespace = kubectl.namespace().to_owned();
    kubectl.run("create serviceaccount app").ok();
    let annotations = json!({"kubernetes.io/service-account.name": "app"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "kept", "annotations": annotations}});
    kubectl.apply(&secret.to_string());
    eventually("the token in the Secret", || kubectl.value("secret/kept", "/data/token").is_string());
    let text = |field: &str| {
        let data = kubectl.value("secret/kept", &format!("/data/{field}"));
        String::from_utf8(STANDARD.decode(data.as_str().unwrap()).unwrap()).unwrap()
    };
    assert_eq!(text("namespace"), namespace);
    let (token, authority) = (text("token"), text("ca.crt"));
    let output = show(cluster, &token, &authority);
    assert!(
        output.contains(&format!("User \"system:serviceaccount:{namespace}:app\" cannot get resource")),
        "{output}"
    );
    let used = "/metadata/labels/kubernetes.io~1legacy-token-last-used";
    eventually("the last-used label", || kubectl.value("secret/kept", used).is_string());
    let tracking = "kube-apiserver-legacy-service-account-token-tracking";
    let since = kubectl.run(&format!("get configmap -n kube-system {tracking} -o jsonpath={{.data.since}}")).ok();
    assert!(kubectl.value("secret/kept", used).as_str().unwrap() >= since.as_str(), "{since}");
    kubectl.run("delete serviceaccount app").ok();
    eventually("the Secret to be deleted with its ServiceAccount", || kubectl.get("secret/kept").is_none());
    assert!(show(cluster, &token, &authority).contains("You must be logged in"));
}
