//! Environment variables from files (`fileKeyRef`).

use serde_json::{Value, json};
use tests::{Cluster, e2e_test};

#[e2e_test("fileKeyRef reads a variable from a file of an init container")]
fn file_key_ref_reads_variable(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let write = "printf \"# made here\\nADDRESS='db.example'\\nWORDS='two\\nlines'\\n\" > /e/config.env";
    let from = |key: &str, file: &str, optional: bool| json!({"fileKeyRef": {"volumeName": "e", "path": file, "key": key, "optional": optional}});
    let pod = |name: &str, env: Value| {
        let container = |name: &str, script: &str| json!({"name": name, "image": test_images::BUSYBOX, "command": ["sh", "-c", script]});
        let (mut writes, mut reads) = (container("writes", write), container("reads", "echo \"$A|$W|${N-none}\""));
        writes["volumeMounts"] = json!([{"name": "e", "mountPath": "/e"}]);
        reads["env"] = env;
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0, "volumes": [{"name": "e", "emptyDir": {}}],
            "initContainers": [writes], "containers": [reads]}})
    };
    let env = json!([{"name": "A", "valueFrom": from("ADDRESS", "config.env", false)},
        {"name": "W", "valueFrom": from("WORDS", "config.env", false)},
        {"name": "N", "valueFrom": from("NOTHING", "config.env", true)}]);
    kubectl.apply(&pod("reads", env).to_string());
    kubectl.wait_value("pod/reads", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.run("logs reads -c reads").ok(), "db.example|two\nlines|none\n");
    for (name, key, file, words) in [
        ("keyless", "NOTHING", "config.env", "environment variable key \"NOTHING\" not found in file"),
        ("fileless", "ADDRESS", "none.env", "couldn't parse env file"),
    ] {
        kubectl.apply(&pod(name, json!([{"name": "A", "valueFrom": from(key, file, false)}])).to_string());
        kubectl.wait_value(
            &format!("pod/{name}"),
            "/status/containerStatuses/0/state/waiting/reason",
            &json!("CreateContainerConfigError"),
        );
        let said = kubectl.value(&format!("pod/{name}"), "/status/containerStatuses/0/state/waiting/message");
        assert!(said.as_str().unwrap().contains(words), "{said}");
        kubectl.run(&format!("delete pod {name} --wait=false")).ok();
    }
}
