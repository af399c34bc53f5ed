//! Authentication and RBAC authorization.

use crate::test_users::{authority, kubeconfig};
use serde_json::{Value, json};
use tests::{Cluster, Kubectl, e2e_test, eventually};

/// Returns kubectl with a token of the namespace's ServiceAccount `default`.
fn with_a_token(cluster: &Cluster, kubectl: &Kubectl) -> impl Fn(&[&str]) -> Vec<String> + use<> {
    let config: Value = serde_json::from_str(&std::fs::read_to_string(cluster.kubeconfig()).unwrap()).unwrap();
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned();
    let authority = kubectl.value("configmap/kube-root-ca.crt", "/data/ca.crt");
    let file = cluster.data_dir().join(format!("ca-of-{}.crt", kubectl.namespace()));
    std::fs::write(&file, authority.as_str().unwrap()).unwrap();
    let token = kubectl.run("create token default").ok().trim().to_owned();
    let file = file.display().to_string();
    let namespace = kubectl.namespace().to_owned();
    move |args| {
        let known = ["--server", &server, "--certificate-authority", &file, "--token", &token, "-n", &namespace];
        known.iter().chain(args).map(|arg| (*arg).to_owned()).collect()
    }
}

#[e2e_test("an unknown client certificate or token gets 401 Unauthorized")]
fn unknown_credentials_are_unauthorized(cluster: &Cluster) {
    let (dir, own) = (tempfile::tempdir().unwrap(), cluster.kubectl());
    let config: Value = serde_json::from_str(&std::fs::read_to_string(cluster.kubeconfig()).unwrap()).unwrap();
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned();
    let pki = |file: &str| std::fs::read_to_string(cluster.data_dir().join("pki").join(file)).unwrap();
    let (ca, key) = (pki("ca.crt"), pki("ca.key"));
    let (others, others_key) = authority();
    let as_user = |name: &str, signer: Option<(&str, &str)>| {
        Kubectl::new(kubeconfig(dir.path(), name, &server, &ca, signer, "system:masters"), own.namespace())
    };
    let other_ca = as_user("stranger", Some((&others, &others_key)));
    let nobody = as_user("nobody", None);
    for who in [&other_ca, &nobody] {
        for path in ["/api/v1/nodes", "/healthz", "/version"] {
            let output = who.run(&format!("get --raw {path}")).failed();
            assert!(output.contains("You must be logged in to the server"), "{path}: {output}");
        }
    }
    assert_eq!(as_user("known", Some((&ca, &key))).run("get --raw /healthz").ok(), "ok");
    // A valid token is enough, whatever the client certificate is.
    eventually("the namespace to have its ServiceAccount", || own.get("serviceaccount/default").is_some());
    let token = own.run("create token default").ok();
    let shown = other_ca.args(&["--token", token.trim(), "get", "--raw", "/version"], "");
    assert!(shown.ok().contains("gitVersion"));
}

#[e2e_test("a service account may do only what its RoleBindings grant")]
fn service_account_is_limited_to_its_bindings(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let namespace = kubectl.namespace().to_owned();
    eventually("the namespace to have its ServiceAccount", || {
        kubectl.get("serviceaccount/default").is_some() && kubectl.get("configmap/kube-root-ca.crt").is_some()
    });
    let (nobody, arguments) = (Kubectl::new("/dev/null".into(), &namespace), with_a_token(cluster, &kubectl));
    let show = |args: &[&str]| {
        let all = arguments(args);
        nobody.args(&all.iter().map(String::as_str).collect::<Vec<_>>(), "")
    };
    let who = format!("system:serviceaccount:{namespace}:default");
    let output = show(&["auth", "whoami"]).ok();
    assert!(output.contains(&who) && output.contains("system:authenticated") && output.contains("JTI="), "{output}");
    let output = show(&["get", "configmaps"]).failed();
    assert!(output.contains(&format!("configmaps is forbidden: User {who:?} cannot list resource")), "{output}");
    kubectl.run(&format!("create rolebinding viewer --clusterrole=view --serviceaccount={namespace}:default")).ok();
    assert!(show(&["get", "configmaps"]).ok().contains("kube-root-ca.crt"));
    for denied in [&["get", "secrets"][..], &["delete", "configmap", "kube-root-ca.crt"], &["get", "nodes"]] {
        assert!(show(denied).failed().contains("is forbidden"), "{denied:?}");
    }
    kubectl.run("create role writer --verb=create,get --resource=roles,configmaps").ok();
    kubectl.run(&format!("create rolebinding writer --role=writer --serviceaccount={namespace}:default")).ok();
    show(&["create", "configmap", "mine"]).ok();
    show(&["create", "role", "same", "--verb=get", "--resource=configmaps"]).ok();
    let output = show(&["create", "role", "more", "--verb=delete", "--resource=configmaps"]).failed();
    let lacking = r#"is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["configmaps"], Verbs:["delete"]}"#;
    assert!(output.contains(lacking), "{output}");
    kubectl.run("delete rolebinding viewer writer").ok();
    show(&["get", "configmaps"]).failed();
}

#[e2e_test("kubectl auth can-i and --as follow RBAC")]
fn can_i_and_impersonation_follow_rbac(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let ask = |line: &str| kubectl.run(&format!("auth can-i {line}"));
    assert_eq!(ask("delete nodes").ok(), "yes\n");
    // "no" is exit code 1 without an error.
    assert_eq!(ask("list pods --as=ann").failed(), "");
    kubectl.run("create role reader --verb=get,list --resource=pods,pods/log").ok();
    kubectl.run("create rolebinding reader --role=reader --user=ann").ok();
    assert_eq!(ask("list pods --as=ann").ok(), "yes\n");
    assert_eq!(ask("get pods --subresource=log --as=ann").ok(), "yes\n");
    assert_eq!(ask("get /healthz --as=ann").ok(), "yes\n");
    assert_eq!(ask("create pods --as=ann").failed(), "");
    let rules = ask("--list --as=ann").ok();
    let line = |start: &str, verbs: &str| rules.lines().any(|l| l.starts_with(start) && l.trim_end().ends_with(verbs));
    assert!(line("pods/log", "[get list]") && line("selfsubjectreviews.authentication.k8s.io", "[create]"), "{rules}");
    kubectl.run("get pods --as=ann").ok();
    let output = kubectl.run("get services --as=ann").failed();
    assert!(output.contains("User \"ann\" cannot list resource \"services\""), "{output}");
    let output = kubectl.run("auth whoami --as=ann --as-group=devs --as-uid=7").ok();
    assert!(["ann", "devs", "system:authenticated", "7"].iter().all(|word| output.contains(word)), "{output}");
    let output = kubectl.run("auth whoami").ok();
    assert!(["kubernetes-admin", "system:masters", "X509SHA256="].iter().all(|word| output.contains(word)), "{output}");
}

#[e2e_test("an aggregated ClusterRole follows the ClusterRoles that it selects")]
fn aggregated_cluster_role_follows_its_sources(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let name = format!("part-of-view-{}", kubectl.namespace());
    kubectl.run("create rolebinding viewer --clusterrole=view --user=vic").ok();
    let may = || kubectl.run("auth can-i get roles.rbac.authorization.k8s.io --as=vic");
    assert_eq!(may().failed(), "");
    let labels = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    let rules = json!([{"verbs": ["get"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"]}]);
    let part = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name, "labels": labels}, "rules": rules});
    kubectl.apply(&part.to_string());
    let sees = |expected: bool| {
        let rules = kubectl.value("clusterrole/view", "/rules");
        rules.as_array().unwrap().iter().any(|r| r["resources"] == json!(["roles"])) == expected
    };
    eventually("the role to have the rules of its source", || sees(true));
    assert_eq!(may().ok(), "yes\n");
    kubectl.run(&format!("delete clusterrole {name}")).ok();
    eventually("the role to lose them", || sees(false));
    assert_eq!(may().failed(), "");
}
