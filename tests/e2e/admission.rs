//! Admission: ResourceQuota, LimitRange, Pod Security Standards, AlwaysPullImages, mutating policies.

use crate::image_pulls;
use serde_json::json;
use tests::{Cluster, ClusterBuilder, PASSWORD, PodBuilder, Registry, e2e_test};

fn pod(name: &str, script: &str, cpu: &str) -> PodBuilder {
    PodBuilder::new(name)
        .restart_policy("Never")
        .grace_period(1)
        .script(script)
        .resources(&json!({"requests": {"cpu": cpu}}))
}

#[e2e_test("a ResourceQuota tracks usage, denies excess and frees usage of ended Pods")]
fn resource_quota_denies_excess_and_frees_ended_pods(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.run("create quota q --hard=requests.cpu=100m,count/pods=3,count/deployments.apps=1").ok();
    kubectl.wait_value(
        "quota/q",
        "/status/used",
        &json!({"requests.cpu": "0", "count/pods": "0", "count/deployments.apps": "0"}),
    );
    // The overhead of the RuntimeClass counts.
    let class = format!("{}-heavy", kubectl.namespace());
    let object = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": class}, "handler": "runc",
        "overhead": {"podFixed": {"cpu": "20m"}}});
    kubectl.apply(&object.to_string());
    let heavy = pod("long", "sleep 100000", "40m").spec(&json!({"runtimeClassName": class}));
    kubectl.apply(&heavy.to_string());
    kubectl.wait_value("quota/q", "/status/used/requests.cpu", &json!("60m"));
    let output = kubectl.args(&["apply", "-f", "-"], &pod("more", "sleep 100000", "60m").to_string()).failed();
    let message = "pods \"more\" is forbidden: exceeded quota: q, requested: requests.cpu=60m, used: requests.cpu=60m, limited: requests.cpu=100m";
    assert!(output.contains(message), "{output}");
    // An ended Pod counts for `count/pods` but not for CPU.
    kubectl.apply(&pod("short", "true", "40m").to_string());
    kubectl.wait_value("pod/short", "/status/phase", &json!("Succeeded"));
    kubectl.wait_value(
        "quota/q",
        "/status/used",
        &json!({"requests.cpu": "60m", "count/pods": "2", "count/deployments.apps": "0"}),
    );
    kubectl.apply(&pod("after", "sleep 100000", "40m").to_string());
    kubectl.run("delete pod long short after").ok();
    kubectl.wait_value("quota/q", "/status/used/count~1pods", &json!("0"));
    kubectl.run("create deployment d --image=none.example/none --replicas=0").ok();
    kubectl.wait_value("quota/q", "/status/used/count~1deployments.apps", &json!("1"));
    kubectl.run(&format!("delete runtimeclass {class}")).ok();
    let output = kubectl.run("create deployment e --image=none.example/none --replicas=0").failed();
    assert!(output.contains("exceeded quota: q, requested: count/deployments.apps=1"), "{output}");
    let described = kubectl.run("describe quota q").ok();
    assert!(described.contains("requests.cpu            0     100m"), "{described}");
}

#[e2e_test("a LimitRange sets a Pod's default memory limit, in its cgroup too")]
fn limit_range_sets_default_memory_limit(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "Container", "default": {"memory": "24Mi"}, "max": {"memory": "32Mi"}}]}});
    kubectl.apply(&range.to_string());
    kubectl.apply(&pod("p", "sleep 100000", "1m").to_string());
    kubectl.wait_ready("p");
    let limit = "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes";
    assert_eq!(kubectl.args(&["exec", "p", "--", "sh", "-c", limit], "").ok().trim(), (24 << 20).to_string());
    let large = pod("large", "true", "1m").resources(&json!({"requests": {"cpu": "1m"}, "limits": {"memory": "64Mi"}}));
    let output = kubectl.args(&["create", "-f", "-"], &large.to_string()).failed();
    assert!(output.contains("is forbidden: maximum memory usage per Container is 32Mi, but limit is 64Mi"), "{output}");
    kubectl.run("delete pod p --wait=false").ok();
}

#[e2e_test("a namespace that enforces restricted refuses all other Pods")]
fn restricted_namespace_refuses_other_pods(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let namespace = kubectl.namespace().to_owned();
    kubectl.apply(&pod("before", "sleep 100000", "1m").to_string());
    let output = kubectl.run(&format!("label ns {namespace} pod-security.kubernetes.io/enforce=restricted")).ok();
    assert!(output.contains("labeled"), "{output}");
    let output = kubectl.run("run p --image=busybox:1.28 --restart=Never").failed();
    let message = "pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"p\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities";
    assert!(output.contains(message), "{output}");
    let user = json!({"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}});
    let context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let hardened = PodBuilder::new("p")
        .restart_policy("Never")
        .grace_period(1)
        .spec(&json!({"securityContext": user}))
        .command(&["id", "-u"])
        .container(&json!({"securityContext": context}));
    kubectl.apply(&hardened.to_string());
    kubectl.wait_value("pod/p", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.run("logs p").ok(), "1000\n");
    kubectl.run("delete pod before --wait=false").ok();
}

#[e2e_test("AlwaysPullImages pulls every image with the Pod's own credentials")]
fn always_pull_images_checks_credentials() {
    let registry = Registry::start();
    let cluster =
        ClusterBuilder::default().without_images().args(&["--enable-admission-plugins", "AlwaysPullImages"]).start();
    let kubectl = cluster.kubectl_in("default");
    let image = image_pulls::push(&registry, "private", "1", "hello");
    image_pulls::secret(&kubectl, "mine", registry.host(), PASSWORD);
    kubectl.apply(&image_pulls::pod("owner", &image, "IfNotPresent", &["mine"]));
    kubectl.wait_ready("owner");
    assert_eq!(kubectl.value("pod/owner", "/spec/containers/0/imagePullPolicy"), "Always");
    // The image is present, but needs the Pod's own credentials.
    kubectl.apply(&image_pulls::pod("stranger", &image, "Never", &[]));
    image_pulls::wait_for_waiting_reason(&kubectl, "stranger", "ImagePullBackOff");
    kubectl.apply(&image_pulls::pod("friend", &image, "Never", &["mine"]));
    kubectl.wait_ready("friend");
    assert_eq!(image_pulls::event_messages(&kubectl, "friend", "Pulling"), [format!("Pulling image {image:?}")]);
}

#[e2e_test("a MutatingAdmissionPolicy adds a sidecar that runs")]
fn mutating_admission_policy_adds_sidecar() {
    let cluster = ClusterBuilder::default().args(&["--feature-gates", "MutatingAdmissionPolicy=true"]).start();
    let kubectl = cluster.kubectl_in("default");
    let side = "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'side', image: object.spec.containers[0].image, stdin: true, restartPolicy: 'Always'}]}}";
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
    let version = "admissionregistration.k8s.io/v1beta1";
    let policy = json!({"apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": {"name": "side"}, "spec": {
    "matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never",
    "matchConditions": [{"name": "once", "expression": "!has(object.spec.initContainers)"}],
    "mutations": [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": side}},
        {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'side': 'yes'}}]"}},
    ]}});
    let binding = json!({"apiVersion": version, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "side"},
        "spec": {"policyName": "side"}});
    kubectl.apply(&policy.to_string());
    kubectl.apply(&binding.to_string());
    kubectl.apply(&pod("p", "sleep 100000", "1m").to_string());
    kubectl.run("wait --for=condition=Ready --timeout=60s pod -l side=yes").ok();
    assert_eq!(kubectl.value("pod/p", "/status/initContainerStatuses/0/ready"), json!(true));
    let output = kubectl.run("get mutatingadmissionpolicies --no-headers").ok();
    let cells: Vec<&str> = output.split_whitespace().take(3).collect();
    assert_eq!(cells, ["side", "2", "<unset>"]);
    assert!(kubectl.run("explain mutatingadmissionpolicy.spec.mutations").ok().contains("patchType"));
}
