use super::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn level_version(text: &str) -> LevelVersion {
    let (level, version) = text.split_once(':').unwrap();
    let label = |name: &str, value: &str| (format!("pod-security.kubernetes.io/{name}"), value.to_owned());
    let (policy, wrong) = Policy::from_labels(&[label("enforce", level), label("enforce-version", version)].into());
    assert_eq!(wrong, [], "{text}");
    policy.enforce
}

/// Returns the violations of a Pod. `pod` may contain `annotations` and fields of the spec.
#[track_caller]
fn check(level: &str, pod: &Value, expected: &str) {
    let meta = ObjectMeta {
        annotations: serde_json::from_value(pod["annotations"].clone()).unwrap(),
        ..ObjectMeta::default()
    };
    let mut spec = pod.clone();
    spec.as_object_mut().unwrap().remove("annotations");
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "a"}]);
    }
    let spec = serde_json::from_value(spec).unwrap();
    assert_eq!(format_with_details(&violations(level_version(level), &meta, &spec)), expected, "{level} {pod}");
}

/// Returns a container with a security context.
fn with(context: &Value) -> Value {
    json!({"containers": [{"name": "a", "securityContext": context}]})
}

#[test]
fn default_pod_is_baseline_but_not_restricted() {
    check("privileged:latest", &json!({"hostNetwork": true}), "");
    check("baseline:latest", &json!({}), "");
    check(
        "restricted:latest",
        &json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]}),
        "allowPrivilegeEscalation != false (containers \"i\", \"a\" must set securityContext.allowPrivilegeEscalation=false), \
         unrestricted capabilities (containers \"i\", \"a\" must set securityContext.capabilities.drop=[\"ALL\"]), \
         runAsNonRoot != true (pod or containers \"i\", \"a\" must set securityContext.runAsNonRoot=true), \
         seccompProfile (pod or containers \"i\", \"a\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
    );
    let context =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}});
    let mut hardened = with(&context);
    hardened["securityContext"] = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    hardened["volumes"] = json!([{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "s"}}]);
    check("restricted:latest", &hardened, "");
}

#[test]
fn baseline_violations_match_upstream_text_and_order() {
    check(
        "baseline:latest",
        &json!({
            "hostNetwork": true, "hostPID": true,
            "volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "hostPath": {"path": "/x"}}],
            "containers": [{
                "name": "a", "ports": [{"containerPort": 1, "hostPort": 80}, {"containerPort": 2, "hostPort": 443}],
                "securityContext": {"privileged": true, "procMount": "Unmasked", "capabilities": {"add": ["SYS_ADMIN", "KILL"]}},
                "livenessProbe": {"httpGet": {"port": 1, "host": "example.org"}},
            }],
        }),
        "non-default capabilities (container \"a\" must not include \"SYS_ADMIN\" in securityContext.capabilities.add), \
         host namespaces (hostNetwork=true, hostPID=true), hostPath volumes (volumes \"v\", \"w\"), \
         hostPort (container \"a\" uses hostPorts 443, 80), \
         probe or lifecycle host (container \"a\" uses probe or lifecycle host \"example.org\"), \
         privileged (container \"a\" must not set securityContext.privileged=true), \
         procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")",
    );
    check(
        "baseline:latest",
        &json!({
            "annotations": {"container.apparmor.security.beta.kubernetes.io/a": "unconfined"},
            "securityContext": {
                "seLinuxOptions": {"type": "spc_t", "user": "u", "role": "r"}, "seccompProfile": {"type": "Unconfined"},
                "sysctls": [{"name": "kernel.msgmax", "value": "1"}, {"name": "net.ipv4.tcp_rmem", "value": "1"}],
                "windowsOptions": {"hostProcess": true}, "appArmorProfile": {"type": "Unconfined"},
            },
        }),
        "forbidden AppArmor profiles (pod and annotation must not set AppArmor profile type to \"Unconfined\", \
         \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\"), \
         seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"spc_t\"; user may not be set; role may not be set), \
         seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\"), \
         forbidden sysctls (kernel.msgmax), \
         hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
    );
}

#[test]
fn restricted_check_overrides_the_baseline_check() {
    check(
        "restricted:v1.22",
        &with(&json!({"allowPrivilegeEscalation": false, "runAsNonRoot": false,
            "seccompProfile": {"type": "Unconfined"}, "capabilities": {"add": ["KILL"]}})),
        "unrestricted capabilities (container \"a\" must set securityContext.capabilities.drop=[\"ALL\"]; \
         container \"a\" must not include \"KILL\" in securityContext.capabilities.add), \
         runAsNonRoot != true (container \"a\" must not set securityContext.runAsNonRoot=false), \
         seccompProfile (container \"a\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
    );
    check(
        "restricted:v1.7",
        &json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 0}, "volumes": [{"name": "v", "hostPath": {"path": "/"}},
            {"name": "n", "nfs": {"server": "s", "path": "/"}}]}),
        "restricted volume types (volumes \"v\", \"n\" use restricted volume types \"hostPath\", \"nfs\")",
    );
}

#[test]
fn checks_depend_on_the_version() {
    let root = json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 0}, "containers": []});
    check("restricted:v1.18", &root, "");
    check("restricted:v1.23", &root, "runAsUser=0 (pod must not set runAsUser=0)");
    check("restricted:v1.999", &root, "runAsUser=0 (pod must not set runAsUser=0)");
    let mut own_users = root.clone();
    own_users["hostUsers"] = json!(false);
    check("restricted:v1.34", &own_users, "runAsUser=0 (pod must not set runAsUser=0)");
    check("restricted:v1.35", &own_users, "");
    let host = json!({"containers": [{"name": "a", "lifecycle": {"preStop": {"httpGet": {"port": 1, "host": "h"}}}}]});
    check("baseline:v1.33", &host, "");
    let expected = "probe or lifecycle host (container \"a\" uses probe or lifecycle host \"h\")";
    check("baseline:v1.34", &host, expected);
    let sysctl = json!({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_wmem", "value": "1"}]}});
    check("baseline:v1.31", &sysctl, "forbidden sysctls (net.ipv4.tcp_wmem)");
    check("baseline:v1.32", &sysctl, "");
    let old = json!({"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}});
    let expected = "seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")";
    check("baseline:v1.18", &old, expected);
    check("baseline:v1.19", &old, "");
    let windows = json!({"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": true}});
    check("restricted:v1.25", &windows, "");
}

#[test]
fn namespace_labels_are_parsed_as_upstream() {
    let read = |labels: &[(&str, &str)]| {
        let key = |name: &str| format!("pod-security.kubernetes.io/{name}");
        let labels: BTreeMap<String, String> = labels.iter().map(|(k, v)| (key(k), (*v).to_owned())).collect();
        let (policy, wrong) = Policy::from_labels(&labels);
        let wrong: Vec<String> = wrong.into_iter().map(|w| format!("{}={} {}", w.label, w.value, w.message)).collect();
        (format!("{} {} {}", policy.enforce, policy.audit, policy.warn), wrong.join("; "))
    };
    let none = "privileged:latest privileged:latest privileged:latest";
    assert_eq!(read(&[]), (none.to_owned(), String::new()));
    let (policy, wrong) = read(&[("enforce", "baseline"), ("enforce-version", "v1.30")]);
    assert_eq!((policy.as_str(), wrong.as_str()), ("baseline:v1.30 privileged:latest baseline:v1.30", ""));
    let (policy, _) = read(&[("enforce", "restricted"), ("warn", "privileged"), ("audit", "baseline")]);
    assert_eq!(policy, "restricted:latest baseline:latest privileged:latest");
    let (policy, wrong) =
        read(&[("enforce", "none"), ("warn", "all"), ("audit-version", "1.30"), ("warn-version", "v1.01")]);
    assert_eq!(policy, "restricted:latest privileged:latest privileged:latest");
    let message = "must be one of privileged, baseline, restricted";
    let key = "pod-security.kubernetes.io";
    assert_eq!(
        wrong,
        format!(
            "{key}/enforce=none {message}; {key}/audit-version=1.30 must be \"latest\" or \"v1.x\"; {key}/warn=all {message}; \
             {key}/warn-version=v1.01 must be \"latest\" or \"v1.x\""
        )
    );
}
