//! Updates of volumes, subPaths, and DNS configuration of Pods.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually};

/// Returns a Pod that sleeps.
fn pod() -> PodBuilder {
    PodBuilder::new("p").grace_period(1).command(&["sleep", "100000"])
}

/// Runs a Pod that sleeps, with a label and these fields.
fn run(kubectl: &Kubectl, spec: &Value, container: &Value) {
    kubectl.apply(&pod().label("app", "one").spec(spec).container(container).to_string());
    kubectl.wait_ready("p");
}

#[e2e_test("volumes follow changes of ConfigMaps, Secrets and labels")]
fn volumes_follow_api_changes(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let apply = |text: &str| {
        let config_map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"k": text}});
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"p": text}});
        kubectl.apply(&config_map.to_string());
        kubectl.apply(&secret.to_string());
    };
    apply("one");
    let labels = json!({"items": [{"path": "app", "fieldRef": {"fieldPath": "metadata.labels['app']"}}]});
    let sources = json!([{"configMap": {"name": "cm"}}, {"secret": {"name": "s"}}, {"downwardAPI": labels}]);
    let mounts = json!([{"name": "all", "mountPath": "/all"}, {"name": "all", "mountPath": "/one", "subPath": "k"}]);
    let volumes = json!([{"name": "all", "projected": {"sources": sources}}]);
    run(&kubectl, &json!({"volumes": volumes}), &json!({"volumeMounts": mounts}));
    let read = || kubectl.args(&["exec", "p", "--", "sh", "-c", "cat /all/k /all/p /all/app /one"], "").ok();
    assert_eq!(read(), "oneoneoneone");
    let mounts = kubectl.args(&["exec", "p", "--", "cat", "/proc/mounts"], "").ok();
    for secret in ["/all", "/var/run/secrets/kubernetes.io/serviceaccount"] {
        assert!(
            mounts.contains(&format!("tmpfs {secret} tmpfs ro")),
            "{secret}: a Secret must not be on disk: {mounts}"
        );
    }
    apply("two");
    kubectl.run("label pod p app=two --overwrite").ok();
    // A subPath mount is not updated, as upstream documents.
    eventually("the files to be updated", || read() == "twotwotwoone");
}

#[e2e_test("a symlink cannot lead a subPath out of its volume")]
fn symlink_cannot_escape_sub_path(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let mount = |name: &str, script: &str, sub: Value| {
        let mut container = tests::container(name, script);
        container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v", "subPath": sub}]);
        container
    };
    let pod = PodBuilder::new("p")
        .grace_period(1)
        .volume("v", &json!({"emptyDir": {}}))
        .init_container(mount("links", "ln -s /etc /v/out; mkdir /v/in", Value::Null))
        .init_container(mount("inside", "echo x > /v/f", json!("in/deep")))
        .container(&mount("c", "ls /v; sleep 100000", json!("out")));
    kubectl.apply(&pod.to_string());
    let waiting = "/status/containerStatuses/0/state/waiting";
    kubectl.wait_value("pod/p", &format!("{waiting}/reason"), &json!("CreateContainerConfigError"));
    let message = kubectl.value("pod/p", &format!("{waiting}/message"));
    assert_eq!(message, "failed to prepare subPath for volumeMount \"v\" of container \"c\"");
    assert_eq!(kubectl.value("pod/p", "/status/initContainerStatuses/1/state/terminated/exitCode"), json!(0));
}

#[e2e_test("a container waits for the variables of its subPathExpr")]
fn sub_path_expr_waits_for_variables(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let dir = json!({"name": "DIR", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['dir']"}}});
    let mounts =
        json!([{"name": "v", "mountPath": "/all"}, {"name": "v", "mountPath": "/own", "subPathExpr": "of/$(DIR)"}]);
    let pod = pod().volume("v", &json!({"emptyDir": {}})).container(&json!({"env": [dir], "volumeMounts": mounts}));
    kubectl.apply(&pod.to_string());
    let waiting = "/status/containerStatuses/0/state/waiting";
    kubectl.wait_value("pod/p", &format!("{waiting}/reason"), &json!("CreateContainerConfigError"));
    assert_eq!(kubectl.value("pod/p", &format!("{waiting}/message")), "missing value for DIR");
    kubectl.run("annotate pod p dir=here").ok();
    kubectl.wait_ready("p");
    let script = "echo x > /own/f && cat /all/of/here/f";
    assert_eq!(kubectl.args(&["exec", "p", "--", "sh", "-c", script], "").ok(), "x\n");
}

#[e2e_test("dnsConfig, hostname and hostAliases are written to /etc")]
fn dns_config_hostname_and_host_aliases_are_written(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let spec = json!({
        "hostname": "h", "hostAliases": [{"ip": "192.0.2.9", "hostnames": ["a", "b"]}], "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["192.0.2.53"], "searches": ["x.example"], "options": [{"name": "ndots", "value": "2"}]},
    });
    run(&kubectl, &spec, &json!({}));
    let read = |path: &str| kubectl.args(&["exec", "p", "--", "cat", path], "").ok();
    assert_eq!(read("/etc/resolv.conf"), "search x.example\nnameserver 192.0.2.53\noptions ndots:2\n");
    assert_eq!(kubectl.args(&["exec", "p", "--", "hostname"], "").ok(), "h\n");
    let (hosts, ip) = (read("/etc/hosts"), kubectl.value("pod/p", "/status/podIP"));
    let own = format!("{}\th\n", ip.as_str().unwrap());
    assert!(hosts.contains(&own) && hosts.ends_with("192.0.2.9\ta\tb\n"), "{hosts}");
}
