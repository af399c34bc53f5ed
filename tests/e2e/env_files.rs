//! Environment variables from files (`fileKeyRef`).

use serde_json::{Value, json};
use tests::{Cluster, PodBuilder, e2e_test};

#[e2e_test("fileKeyRef reads a variable from a file of an init container")]
fn file_key_ref_reads_variable(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let write = "printf \"# made here\\nADDRESS='db.example'\\nWORDS='two\\nlines'\\n\" > /e/config.env";
    let from = |key: &str, file: &str, optional: bool| json!({"fileKeyRef": {"volumeName": "e", "path": file, "key": key, "optional": optional}});
    let pod = |name: &str, env: Value| {
        let mut writes = tests::container("writes", write);
        writes["volumeMounts"] = json!([{"name": "e", "mountPath": "/e"}]);
        PodBuilder::new(name)
            .restart_policy("Never")
            .grace_period(0)
            .volume("e", &json!({"emptyDir": {}}))
            .init_container(writes)
            .script("echo \"$A|$W|${N-none}\"")
            .container(&json!({"name": "reads", "env": env}))
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
        let output = kubectl.value(&format!("pod/{name}"), "/status/containerStatuses/0/state/waiting/message");
        assert!(output.as_str().unwrap().contains(words), "{name}: {output}");
        kubectl.run(&format!("delete pod {name} --wait=false")).ok();
    }
}
