//! Security contexts, seccomp, sysctls and AppArmor.

use serde_json::{Value, json};
use tests::{Cluster, ClusterBuilder, Kubectl, PodBuilder, e2e_test, eventually};

/// Returns a Pod that runs this script with this security context, and exits.
fn pod(script: &str, context: &Value) -> PodBuilder {
    PodBuilder::new("p").script(script).runs_once(context)
}

#[track_caller]
fn check(kubectl: &Kubectl, pod: &PodBuilder, expected: &str) {
    assert_eq!(kubectl.output_of(pod), expected);
}

#[e2e_test("a securityContext sets user, groups and capabilities")]
fn security_context_sets_user_groups_capabilities(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let who = "id -u; id -g; id -G; grep -E 'NoNewPrivs' /proc/self/status | cut -f2";
    let spec = json!({"securityContext": {"runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000, "supplementalGroups": [4000]}});
    check(&kubectl, &pod(who, &json!({})).spec(&spec), "1000\n3000\n3000 2000 4000\n0\n");
    let own = json!({"runAsUser": 7, "allowPrivilegeEscalation": false});
    check(&kubectl, &pod(who, &own).spec(&spec), "7\n3000\n3000 2000 4000\n1\n");
    // A group without a user runs as the image's user, which is root.
    check(&kubectl, &pod("id -u; id -g", &json!({"runAsGroup": 5})), "0\n5\n");
    // The group of the image's user is kept too.
    let dir = tempfile::tempdir().unwrap();
    let config = test_images::ImageConfig { user: Some("1000:2000".to_owned()), ..Default::default() };
    test_images::busybox(&dir.path().join("own.tar"), &["docker.io/library/own-user:1"], &config).unwrap();
    cluster.import(&dir.path().join("own.tar"));
    check(&kubectl, &pod("id -u; id -g", &json!({})).image("docker.io/library/own-user:1"), "1000\n2000\n");
    let rights = |context: Value| kubectl.output_of(&pod("grep CapEff /proc/self/status | cut -f2", &context));
    let bits = |text: String| u64::from_str_radix(text.trim(), 16).unwrap();
    let (net_admin, chown) = (1 << 12, 1);
    assert_eq!(bits(rights(json!({}))) & (net_admin | chown), chown);
    let exchanged = json!({"capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}});
    assert_eq!(bits(rights(exchanged)), net_admin);
    let all = bits(rights(json!({"privileged": true})));
    assert_eq!(all & (1 << 21), 1 << 21, "a privileged process is an administrator of the system: {all:x}");
}

#[e2e_test("runAsNonRoot refuses root with upstream's message")]
fn run_as_non_root_refuses_root(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let spec = json!({"securityContext": {"runAsNonRoot": true}});
    kubectl.apply(&pod("id -u", &json!({})).spec(&spec).to_string());
    let waiting = "/status/containerStatuses/0/state/waiting";
    kubectl.wait_value("pod/p", &format!("{waiting}/reason"), &json!("CreateContainerConfigError"));
    let (uid, namespace) = (kubectl.value("pod/p", "/metadata/uid"), kubectl.namespace().to_owned());
    let place = format!("(pod: \"p_{namespace}({})\", container: c)", uid.as_str().unwrap());
    let message = kubectl.value("pod/p", &format!("{waiting}/message"));
    assert_eq!(message, json!(format!("container has runAsNonRoot and image will run as root {place}")));
    kubectl.run("delete pod p --wait").ok();
    let spec = json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 65534}});
    check(&kubectl, &pod("id -u", &json!({})).spec(&spec), "65534\n");
}

#[e2e_test("readOnlyRootFilesystem and fsGroup are applied")]
fn read_only_root_and_fs_group_are_applied(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let script = "touch /x 2>/dev/null && echo written || echo refused; touch /v/x && stat -c '%g %a' /v /v/x";
    let group =
        json!({"securityContext": {"fsGroup": 2345, "runAsUser": 1000, "fsGroupChangePolicy": "OnRootMismatch"}});
    let disk = pod(script, &json!({"readOnlyRootFilesystem": true}))
        .spec(&group)
        .volume("v", &json!({"emptyDir": {}}))
        .mount("v", "/v");
    check(&kubectl, &disk, "refused\n2345 2777\n2345 644\n");
    let memory = json!({"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}});
    let script = "grep -c ' /v tmpfs ' /proc/mounts; df -k /v | tail -1 | awk '{print $2}'";
    let memory = pod(script, &json!({})).volume("v", &memory).mount("v", "/v");
    check(&kubectl, &memory, "1\n1024\n");
}

#[e2e_test("seccomp profiles restrict system calls")]
fn seccomp_profile_restricts_system_calls(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let mode = "grep Seccomp: /proc/self/status | cut -f2";
    check(&kubectl, &pod(mode, &json!({})), "0\n");
    let with_profile = |profile: Value| json!({"seccompProfile": profile});
    let spec = json!({"securityContext": with_profile(json!({"type": "RuntimeDefault"}))});
    check(&kubectl, &pod(mode, &json!({})).spec(&spec), "2\n");
    check(&kubectl, &pod(mode, &with_profile(json!({"type": "Unconfined"}))).spec(&spec), "0\n");
    let profiles = cluster.data_dir().join("kubelet/seccomp");
    std::fs::create_dir_all(&profiles).unwrap();
    let no_mkdir = json!({"defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]});
    std::fs::write(profiles.join("no-mkdir.json"), no_mkdir.to_string()).unwrap();
    let local = with_profile(json!({"type": "Localhost", "localhostProfile": "no-mkdir.json"}));
    check(&kubectl, &pod("mkdir /x 2>/dev/null && echo made || echo refused", &local), "refused\n");
}

#[e2e_test("safe sysctls are set and forbidden sysctls are rejected")]
fn safe_sysctls_are_set_and_others_rejected(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let with_sysctl =
        |name: &str, value: &str| json!({"securityContext": {"sysctls": [{"name": name, "value": value}]}});
    let read = "cat /proc/sys/net/ipv4/ip_unprivileged_port_start";
    let safe = with_sysctl("net.ipv4.ip_unprivileged_port_start", "77");
    check(&kubectl, &pod(read, &json!({})).spec(&safe), "77\n");
    kubectl.apply(&pod(read, &json!({})).spec(&with_sysctl("net.core.somaxconn", "9")).to_string());
    kubectl.wait_value("pod/p", "/status/reason", &json!("SysctlForbidden"));
    let message = kubectl.value("pod/p", "/status/message");
    assert_eq!(message, json!("Pod was rejected: forbidden sysctl: \"net.core.somaxconn\" not allowlisted"));
}

#[e2e_test("unsupported security fields are rejected with a reason")]
fn unsupported_security_fields_are_rejected(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    // Podium's own engine supports it (`tests/e2e/engine_attacks.rs`).
    let node = kubectl.run("get nodes -o name").ok();
    let features = kubectl.value(node.trim(), "/status/features");
    let is_supported = features["supplementalGroupsPolicy"].as_bool().expect("the node reports its features");
    if !is_supported {
        let strict = json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}});
        kubectl.apply(&pod("id", &json!({})).spec(&strict).to_string());
        kubectl.wait_value("pod/p", "/status/reason", &json!("SupplementalGroupsPolicyNotSupported"));
        kubectl.run("delete pod p --wait").ok();
    }
    // `tests/e2e/user_namespaces.rs`.
    let handlers = kubectl.value(node.trim(), "/status/runtimeHandlers");
    let is_default = |handler: &&Value| handler["name"] == "";
    if handlers
        .as_array()
        .into_iter()
        .flatten()
        .find(is_default)
        .is_some_and(|h| h["features"]["userNamespaces"] == true)
    {
        return;
    }
    kubectl.apply(&pod("id", &json!({})).spec(&json!({"hostUsers": false})).to_string());
    eventually("an event about user namespaces", || {
        let text =
            "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces";
        kubectl
            .events("p")
            .iter()
            .any(|(reason, message)| reason == "FailedCreatePodSandBox" && message.starts_with(text))
    });
}

#[e2e_test("KubeletConfiguration allows unsafe sysctls and sets seccompDefault")]
fn kubelet_config_allows_sysctls_and_default_seccomp() {
    let kubelet = json!({"seccompDefault": true, "allowedUnsafeSysctls": ["net.core.*"]});
    let cluster = ClusterBuilder::default().kubelet_config(kubelet).start();
    let kubectl = cluster.kubectl();
    let spec = json!({"securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "9"}]}});
    let script = "cat /proc/sys/net/core/somaxconn; grep Seccomp: /proc/self/status | cut -f2";
    check(&kubectl, &pod(script, &json!({})).spec(&spec), "9\n2\n");
}

#[e2e_test("AppArmor profiles are enforced, or the Pod is rejected without AppArmor")]
fn apparmor_is_enforced_or_pod_is_rejected(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let profile = json!({"appArmorProfile": {"type": "RuntimeDefault"}});
    kubectl.apply(&pod("cat /proc/self/attr/current", &profile).to_string());
    let on = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|on| on.starts_with('Y'));
    if on {
        kubectl.wait_value("pod/p", "/status/phase", &json!("Succeeded"));
        let reported = kubectl.run("logs p").ok();
        assert!(reported.contains("podium-default (enforce)"), "{reported}");
    } else {
        kubectl.wait_value("pod/p", "/status/phase", &json!("Failed"));
        let status = kubectl.value("pod/p", "/status");
        assert_eq!(status["reason"], "AppArmor");
        let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
        assert!(status["message"].as_str().unwrap().contains(message), "{status}");
    }
    // A Pod with Unconfined runs on every node.
    kubectl.run("delete pod p --wait").ok();
    let profile = json!({"appArmorProfile": {"type": "Unconfined"}});
    check(&kubectl, &pod("echo free", &profile), "free\n");
}
