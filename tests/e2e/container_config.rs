//! Container configuration: env, command, volumes, resources, termination messages, image pull policies.

use serde_json::{Value, json};
use test_images::ImageConfig;
use tests::{Cluster, Kubectl, PodBuilder, e2e_test};

/// Returns a Pod that ends by itself.
fn pod() -> PodBuilder {
    PodBuilder::new("p").label("app", "web").restart_policy("Never").grace_period(0)
}

/// Runs a Pod to its end and returns its log.
fn printed(kubectl: &Kubectl, pod: PodBuilder) -> String {
    let pod = pod.build();
    let name = pod["metadata"]["name"].as_str().unwrap();
    kubectl.apply(&pod.to_string());
    kubectl.wait_value(&format!("pod/{name}"), "/status/phase", &json!("Succeeded"));
    kubectl.run(&format!("logs {name} -c c")).ok()
}

fn config(kubectl: &Kubectl) {
    kubectl.run("create configmap cm --from-literal=one=1 --from-literal=two=2 --from-literal=not.a.name=3").ok();
    kubectl.run("create secret generic s --from-literal=user=me --from-literal=password=hush").ok();
}

/// Returns fields of a container with variables from every source.
fn env_of_all_sources() -> Value {
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let resource = |name: &str, divisor: &str| json!({"resourceFieldRef": {"resource": name, "divisor": divisor}});
    let key = |kind: &str, name: &str, key: &str| json!({kind: {"name": name, "key": key}});
    json!({
    "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1500m", "memory": "64Mi"}},
    "envFrom": [{"configMapRef": {"name": "cm"}}, {"prefix": "SECRET_", "secretRef": {"name": "s"}},
        {"configMapRef": {"name": "nothing", "optional": true}}],
    "env": [
        {"name": "PLAIN", "value": "a b"},
        {"name": "EXPANDED", "value": "<$(PLAIN)> $(one) $$(PLAIN) $(NOTHING)"},
        {"name": "TOO_EARLY", "value": "$(LATE)"},
        {"name": "LATE", "value": "late"},
        {"name": "two", "value": "env wins"},
        {"name": "EMPTY"},
        {"name": "POD", "valueFrom": field("metadata.name")},
        {"name": "NAMESPACE", "valueFrom": field("metadata.namespace")},
        {"name": "LABEL", "valueFrom": field("metadata.labels['app']")},
        {"name": "SOURCE", "valueFrom": field("metadata.annotations['kubernetes.io/config.source']")},
        {"name": "NODE", "valueFrom": field("spec.nodeName")},
        {"name": "ACCOUNT", "valueFrom": field("spec.serviceAccountName")},
        {"name": "POD_IP", "valueFrom": field("status.podIP")},
        {"name": "HOST_IP", "valueFrom": field("status.hostIP")},
        {"name": "CPU", "valueFrom": resource("limits.cpu", "1")},
        {"name": "CPU_ASKED", "valueFrom": resource("requests.cpu", "1m")},
        {"name": "MEMORY", "valueFrom": resource("limits.memory", "1Mi")},
        {"name": "FROM_CM", "valueFrom": key("configMapKeyRef", "cm", "two")},
        {"name": "FROM_SECRET", "valueFrom": key("secretKeyRef", "s", "password")},
        {"name": "ABSENT", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "nothing", "optional": true}}},
        {"name": "ABSENT_TOO", "valueFrom": {"secretKeyRef": {"name": "nothing", "key": "k", "optional": true}}},
    ]})
}

#[e2e_test("env comes from values, fields, resources, ConfigMaps and Secrets")]
fn env_comes_from_all_sources(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    config(&kubectl);
    let seen = printed(&kubectl, pod().command(&["env"]).container(&env_of_all_sources()));
    let status = kubectl.value("pod/p", "/status");
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let node = text(&kubectl.value("pod/p", "/spec/nodeName"));
    let values = [
        ("PLAIN", "a b"),
        ("EXPANDED", "<a b> 1 $(PLAIN) $(NOTHING)"),
        ("TOO_EARLY", "$(LATE)"),
        ("LATE", "late"),
        ("one", "1"),
        ("two", "env wins"),
        ("SECRET_user", "me"),
        ("SECRET_password", "hush"),
        ("EMPTY", ""),
        ("POD", "p"),
        ("NAMESPACE", kubectl.namespace()),
        ("LABEL", "web"),
        ("SOURCE", "api"),
        ("NODE", &node),
        ("ACCOUNT", "default"),
        ("POD_IP", &text(&status["podIP"])),
        ("HOST_IP", &text(&status["hostIP"])),
        // 1500m is rounded up to whole CPUs.
        ("CPU", "2"),
        ("CPU_ASKED", "100"),
        ("MEMORY", "64"),
        ("FROM_CM", "2"),
        ("FROM_SECRET", "hush"),
    ];
    for (name, value) in values {
        assert!(seen.lines().any(|l| l == format!("{name}={value}")), "{name}={value} is not in\n{seen}");
    }
    assert!(!seen.contains("ABSENT"), "{seen}");
    // A key that is not a C identifier is a valid variable name.
    assert!(seen.contains("not.a.name=3"), "{seen}");
}

fn check_blocked(kubectl: &Kubectl, message: &str) {
    kubectl.wait_value(
        "pod/p",
        "/status/containerStatuses/0/state/waiting/reason",
        &json!("CreateContainerConfigError"),
    );
    assert_eq!(kubectl.value("pod/p", "/status/containerStatuses/0/state/waiting/message"), message);
}

#[e2e_test("a missing key of a ConfigMap or Secret blocks the container's start")]
fn missing_key_blocks_container_start(cluster: &Cluster) {
    for (source, message, mend) in [
        (
            json!({"configMapKeyRef": {"name": "cm", "key": "word"}}),
            "couldn't find key word in ConfigMap NS/cm",
            r#"patch configmap cm -p {"data":{"word":"hello"}}"#,
        ),
        (
            json!({"secretKeyRef": {"name": "s", "key": "word"}}),
            "couldn't find key word in Secret NS/s",
            r#"patch secret s -p {"stringData":{"word":"hello"}}"#,
        ),
        (
            json!({"secretKeyRef": {"name": "other", "key": "word"}}),
            "secret \"other\" not found",
            "create secret generic other --from-literal=word=hello",
        ),
    ] {
        let kubectl = cluster.kubectl();
        config(&kubectl);
        let env = json!([{"name": "WORD", "valueFrom": source}]);
        kubectl.apply(&pod().script("echo $WORD").container(&json!({"env": env})).to_string());
        check_blocked(&kubectl, &message.replace("NS", kubectl.namespace()));
        kubectl.run(mend).ok();
        kubectl.wait_value("pod/p", "/status/phase", &json!("Succeeded"));
        assert_eq!(kubectl.run("logs p").ok(), "hello\n", "{source}");
    }
}

#[e2e_test("command and args replace the image's ENTRYPOINT and CMD")]
fn command_and_args_replace_entrypoint_and_cmd(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("image.tar");
    let words = |words: &[&str]| Some(words.iter().map(|w| (*w).to_owned()).collect());
    let image = ImageConfig { entrypoint: words(&["echo", "entry"]), cmd: words(&["cmd"]), ..ImageConfig::default() };
    test_images::busybox(&tar, &["docker.io/library/says:1"], &image).unwrap();
    cluster.import(&tar);
    let both = json!({"command": ["echo", "$(WORD)"], "args": ["$(WORD)s", "$$(WORD)", "$(NOTHING)", "$WORD"]});
    for (name, container, expected) in [
        ("neither", json!({}), "entry cmd"),
        ("args", json!({"args": ["a", "b c"]}), "entry a b c"),
        // A command replaces ENTRYPOINT and CMD of the image.
        ("command", json!({"command": ["echo", "c"]}), "c"),
        ("both", both, "word words $(WORD) $(NOTHING) $WORD"),
    ] {
        let pod = pod().metadata(&json!({"name": name})).image("docker.io/library/says:1").env("WORD", "word");
        assert_eq!(printed(&kubectl, pod.container(&container)).trim_end(), expected, "{name}");
    }
}

#[e2e_test("a container runs in its workingDir")]
fn container_runs_in_its_working_dir(cluster: &Cluster) {
    for (dir, expected) in [(json!("/tmp"), "/tmp\n"), (json!("/made/for/it"), "/made/for/it\n"), (Value::Null, "/\n")]
    {
        let kubectl = cluster.kubectl();
        let pod = pod().command(&["pwd"]).container(&json!({"workingDir": dir}));
        assert_eq!(printed(&kubectl, pod), expected, "workingDir: {dir}");
    }
}

#[e2e_test("containers of a Pod share an emptyDir, on disk or in memory")]
fn containers_share_empty_dir(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let mut writer = tests::container("writer", "echo memory > /memory/word; echo disk > /disk/word");
    writer["volumeMounts"] =
        json!([{"name": "disk", "mountPath": "/disk"}, {"name": "memory", "mountPath": "/memory"}]);
    // The reader's script waits for the writer, for containers start in any order.
    let read = "until [ -s /disk/word ]; do sleep 0.1; done; cat /disk/word /memory/word; stat -c %a /disk /memory; \
                grep -c ' /memory tmpfs ' /proc/mounts; df -k /memory | tail -1 | tr -s ' ' | cut -d' ' -f2; \
                ls /read; touch /read/x 2>/dev/null || echo read-only; cat /sub/word";
    let mounts = json!([{"name": "disk", "mountPath": "/disk"}, {"name": "memory", "mountPath": "/memory"},
        {"name": "disk", "mountPath": "/read", "readOnly": true}, {"name": "disk", "mountPath": "/sub", "subPath": "below"}]);
    let mut init = tests::container("i", "mkdir /disk/below; echo sub > /disk/below/word");
    init["volumeMounts"] = json!([{"name": "disk", "mountPath": "/disk"}]);
    let pod = pod()
        .script(read)
        .container(&json!({"volumeMounts": mounts}))
        .volume("disk", &json!({"emptyDir": {}}))
        .volume("memory", &json!({"emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}}))
        .init_container(init)
        .add_container(writer);
    assert_eq!(printed(&kubectl, pod), "disk\nmemory\n777\n1777\n1\n8192\nbelow\nword\nread-only\nsub\n");
}

#[e2e_test("ConfigMap and Secret volumes can be mounted inside each other, in any order")]
fn api_volumes_can_be_nested_mounts(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    config(&kubectl);
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    let mounts = [
        json!({"name": "cm", "mountPath": "/etc/conf/data/one.txt", "subPath": "one"}),
        json!({"name": "cm", "mountPath": "/etc/conf/two.txt", "subPath": "two"}),
        mount("disk", "/etc/conf/x/y/z"),
        mount("secret", "/etc/conf/data/sec"),
        mount("other", "/etc/conf/data"),
        mount("cm", "/etc/conf"),
        // The ServiceAccount volume is mounted inside this one.
        mount("secret", "/var/run/secrets"),
    ];
    let volumes = json!([{"name": "cm", "configMap": {"name": "cm"}}, {"name": "other", "configMap": {"name": "cm"}},
        {"name": "secret", "secret": {"secretName": "s"}}, {"name": "disk", "emptyDir": {}}]);
    let read = "cd /etc/conf; cat one data/two data/one.txt two.txt data/sec/user /var/run/secrets/user; \
                touch x/y/z/f && ls x/y/z; stat -c %a data data/sec; \
                test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token";
    for (n, reversed) in [false, true].into_iter().enumerate() {
        let mounts: Vec<&Value> = if reversed { mounts.iter().rev().collect() } else { mounts.iter().collect() };
        let pod = pod()
            .metadata(&json!({"name": format!("p{n}")}))
            .script(read)
            .container(&json!({"volumeMounts": mounts}))
            .spec(&json!({"volumes": volumes}));
        assert_eq!(printed(&kubectl, pod), "1212memef\n777\n1777\ntoken\n", "reversed: {reversed}");
    }
}

#[e2e_test("ConfigMap and Secret volumes have their items and modes")]
fn api_volumes_have_items_and_modes(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    config(&kubectl);
    let volumes = json!([
        {"name": "all", "configMap": {"name": "cm"}},
        {"name": "some", "configMap": {"name": "cm", "defaultMode": 0o400, "items": [
            {"key": "one", "path": "deep/down/first"}, {"key": "two", "path": "second", "mode": 0o755}]}},
        {"name": "secret", "secret": {"secretName": "s", "defaultMode": 0o440}},
    ]);
    let mounts: Vec<Value> =
        ["all", "some", "secret"].iter().map(|v| json!({"name": v, "mountPath": format!("/{v}")})).collect();
    let read = "for f in /all/* /some/deep/down/first /some/second /secret/*; do echo $f $(stat -L -c %a $f) $(cat $f); done; \
                ls /some; touch /all/x 2>/dev/null || echo read-only";
    let pod = pod().script(read).container(&json!({"volumeMounts": mounts})).spec(&json!({"volumes": volumes}));
    assert_eq!(
        printed(&kubectl, pod),
        "/all/not.a.name 644 3\n/all/one 644 1\n/all/two 644 2\n/some/deep/down/first 400 1\n/some/second 755 2\n\
         /secret/password 440 hush\n/secret/user 440 me\ndeep\nsecond\nread-only\n"
    );
}

#[e2e_test("a missing source blocks a container's start unless it is optional")]
fn missing_source_blocks_unless_optional(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    config(&kubectl);
    let volumes = json!([
        {"name": "none", "configMap": {"name": "nothing", "optional": true}},
        {"name": "part", "secret": {"secretName": "s", "optional": true, "items": [{"key": "user", "path": "user"}, {"key": "nothing", "path": "nothing"}]}},
    ]);
    let mounts: Vec<Value> =
        ["none", "part"].iter().map(|v| json!({"name": v, "mountPath": format!("/{v}")})).collect();
    let optional = pod().script("ls /none /part").container(&json!({"volumeMounts": mounts}));
    let optional = optional.spec(&json!({"volumes": volumes}));
    assert_eq!(printed(&kubectl, optional), "/none:\n\n/part:\nuser\n");
    let kubectl = cluster.kubectl();
    let late = pod().script("cat /v/k").volume("v", &json!({"configMap": {"name": "late"}})).mount("v", "/v");
    kubectl.apply(&late.to_string());
    tests::eventually("FailedMount", || {
        let expected = "MountVolume.SetUp failed for volume \"v\" : configmap \"late\" not found";
        kubectl.events("p").iter().any(|(reason, message)| reason == "FailedMount" && message == expected)
    });
    let row = kubectl.run("get pod p --no-headers").ok();
    assert_eq!(row.split_whitespace().nth(2), Some("ContainerCreating"), "{row}");
    kubectl.run("create configmap late --from-literal=k=found").ok();
    kubectl.wait_value("pod/p", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.run("logs p").ok(), "found");
}

#[e2e_test("resource limits are set in the container's cgroup")]
fn limits_are_set_in_the_cgroup(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    // The first file is of cgroup v1, the second of v2.
    let read = "cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes memory.max 2>/dev/null; \
                cat cpu/cpu.cfs_quota_us cpu.max 2>/dev/null; cat cpu/cpu.shares cpu.weight 2>/dev/null; true";
    let resources = json!({"requests": {"cpu": "125m"}, "limits": {"cpu": "250m", "memory": "64Mi"}});
    let seen = printed(&kubectl, pod().script(read).resources(&resources));
    let words: Vec<&str> = seen.split_whitespace().collect();
    assert!(words.starts_with(&["67108864", "25000"]), "{seen}");
    // 128 of 1,024 shares in v1; v2 has weights, which newer OCI runtimes compute by another formula.
    let share = words.last().unwrap();
    assert!(["128", "5", "21"].contains(share), "{seen}");
    assert_eq!(kubectl.value("pod/p", "/status/qosClass"), "Burstable");
}

#[e2e_test("a container that exceeds its memory limit is OOMKilled")]
fn container_over_memory_limit_is_oom_killed(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let pod = pod().command(&["tail", "/dev/zero"]).resources(&json!({"limits": {"memory": "16Mi"}}));
    kubectl.apply(&pod.to_string());
    kubectl.wait_value("pod/p", "/status/phase", &json!("Failed"));
    let terminated = kubectl.value("pod/p", "/status/containerStatuses/0/state/terminated");
    assert_eq!((&terminated["exitCode"], &terminated["reason"]), (&json!(137), &json!("OOMKilled")));
    let row = kubectl.run("get pod p --no-headers").ok();
    assert_eq!(row.split_whitespace().nth(2), Some("OOMKilled"), "{row}");
}

#[e2e_test("all processes of a container are OOM-killed with cgroup v2")]
fn all_processes_are_oom_killed_with_cgroup_v2(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let script = "tail /dev/zero; exit 3";
    kubectl.apply(&pod().script(script).resources(&json!({"limits": {"memory": "16Mi"}})).to_string());
    kubectl.wait_value("pod/p", "/status/phase", &json!("Failed"));
    let is_v2 = std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let code = kubectl.value("pod/p", "/status/containerStatuses/0/state/terminated/exitCode");
    assert_eq!(code, if is_v2 { 137 } else { 3 });
}

#[e2e_test("a container's termination message is reported")]
fn termination_message_is_reported(cluster: &Cluster) {
    let fallback = json!("FallbackToLogsOnError");
    let long = "yes | tr -d '\\n' | head -c 5000 > /dev/termination-log";
    for (script, fields, message) in [
        ("echo -n done > /dev/termination-log", json!({}), "done".to_owned()),
        ("echo -n there > /tmp/words", json!({"terminationMessagePath": "/tmp/words"}), "there".to_owned()),
        ("echo logged; exit 3", json!({}), String::new()),
        ("echo logged; exit 3", json!({"terminationMessagePolicy": fallback}), "logged\n".to_owned()),
        ("echo logged; exit 0", json!({"terminationMessagePolicy": fallback}), String::new()),
        (
            "echo logged; echo -n file > /dev/termination-log; exit 3",
            json!({"terminationMessagePolicy": fallback}),
            "file".to_owned(),
        ),
        // At most 4,096 bytes of a file.
        (long, json!({}), "y".repeat(4096)),
        // At most 80 lines of a log.
        (
            "seq 100; exit 3",
            json!({"terminationMessagePolicy": fallback}),
            (21..=100).map(|n| format!("{n}\n")).collect(),
        ),
    ] {
        let kubectl = cluster.kubectl();
        kubectl.apply(&pod().script(script).container(&fields).to_string());
        let terminated = "/status/containerStatuses/0/state/terminated";
        tests::eventually("the container to terminate", || kubectl.value("pod/p", terminated).is_object());
        let seen = kubectl.value("pod/p", &format!("{terminated}/message"));
        assert_eq!(seen.as_str().unwrap_or_default(), message, "{script} {fields}");
    }
}

#[e2e_test("imagePullPolicy decides whether an image is pulled")]
fn image_pull_policy_decides_pulls(cluster: &Cluster) {
    // Nothing listens on this loopback port, so each pull fails.
    let (here, gone) = ("127.0.0.1:9/here:1", "127.0.0.1:9/gone:1");
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("image.tar");
    test_images::busybox(&tar, &[here, "127.0.0.1:9/here:latest"], &ImageConfig::default()).unwrap();
    cluster.import(&tar);
    for (image, policy, reason) in [
        (here, Some("IfNotPresent"), None),
        (here, Some("Never"), None),
        (here, None, None),
        (here, Some("Always"), Some("ImagePullBackOff")),
        // Without a tag, or with `latest`, the default is Always.
        ("127.0.0.1:9/here", None, Some("ImagePullBackOff")),
        ("127.0.0.1:9/here:latest", None, Some("ImagePullBackOff")),
        ("127.0.0.1:9/here", Some("Never"), None),
        (gone, Some("Never"), Some("ErrImageNeverPull")),
        (gone, Some("IfNotPresent"), Some("ImagePullBackOff")),
    ] {
        let kubectl = cluster.kubectl();
        let pod = pod().image(image).command(&["true"]);
        let pod = match policy {
            Some(policy) => pod.container(&json!({"imagePullPolicy": policy})),
            None => pod,
        };
        kubectl.apply(&pod.to_string());
        match reason {
            None => drop(kubectl.wait_value("pod/p", "/status/phase", &json!("Succeeded"))),
            Some(reason) => {
                let waiting = "/status/containerStatuses/0/state/waiting/reason";
                let pod = kubectl.wait_value("pod/p", waiting, &json!(reason));
                assert_eq!(pod["status"]["phase"], "Pending", "{image} {policy:?}");
            }
        }
    }
}
