//! Image pulls from a registry that needs credentials.

use serde_json::{Value, json};
use std::{os::unix::fs::PermissionsExt, path::Path};
use test_images::{ARCHITECTURE, ImageConfig, OciImage};
use tests::{Cluster, ClusterBuilder, Kubectl, PASSWORD, PodBuilder, Registry, USER, e2e_test};

/// Returns an image configuration that prints a word and waits.
pub(crate) fn printing(word: &str) -> ImageConfig {
    let script = format!("echo {word}; trap 'exit 0' TERM; sleep 100000 & wait");
    ImageConfig { cmd: Some(["sh", "-c", &script].map(str::to_owned).to_vec()), ..ImageConfig::default() }
}

pub(crate) fn push(registry: &Registry, repository: &str, tag: &str, word: &str) -> String {
    registry.push(repository, tag, &OciImage::busybox(&printing(word)).unwrap())
}

/// Returns a Pod of one container; `policy` may be empty.
pub(crate) fn pod(name: &str, image: &str, policy: &str, secrets: &[&str]) -> String {
    let secrets: Vec<Value> = secrets.iter().map(|name| json!({"name": name})).collect();
    let pod = PodBuilder::new(name).grace_period(1).image(image).spec(&json!({"imagePullSecrets": secrets}));
    let pod = if policy.is_empty() { pod } else { pod.container(&json!({"imagePullPolicy": policy})) };
    pod.to_string()
}

pub(crate) fn secret(kubectl: &Kubectl, name: &str, server: &str, password: &str) {
    let (server, user) = (format!("--docker-server={server}"), format!("--docker-username={USER}"));
    let password = format!("--docker-password={password}");
    kubectl.args(&["create", "secret", "docker-registry", name, &server, &user, &password], "").ok();
}

/// Waits until a Pod's container is waiting with this reason, and returns the message.
#[track_caller]
pub(crate) fn wait_for_waiting_reason(kubectl: &Kubectl, name: &str, reason: &str) -> String {
    let pointer = "/status/containerStatuses/0/state/waiting";
    let pod = kubectl.wait_value(&format!("pod/{name}"), &format!("{pointer}/reason"), &json!(reason));
    pod.pointer(pointer).and_then(|waiting| waiting["message"].as_str()).unwrap_or_default().to_owned()
}

/// Returns the messages of a Pod's Events with this reason.
pub(crate) fn event_messages(kubectl: &Kubectl, name: &str, reason: &str) -> Vec<String> {
    kubectl.events(name).into_iter().filter(|(r, _)| r == reason).map(|(_, message)| message).collect()
}

#[e2e_test("imagePullSecrets of a Pod are tried in order")]
fn image_pull_secrets_are_tried_in_order(cluster: &Cluster) {
    let (kubectl, registry) = (cluster.kubectl(), Registry::start());
    let image = push(&registry, "team/private", "1", "hello");
    // The credentials for the longer path are tried first, and are wrong.
    secret(&kubectl, "wrong", &format!("{}/team/private", registry.host()), "nonsense");
    secret(&kubectl, "right", &format!("{}/team", registry.host()), PASSWORD);
    kubectl.apply(&pod("p", &image, "", &["right", "missing", "wrong"]));
    kubectl.wait_ready("p");
    kubectl.wait_for_output("logs p", "hello\n");
    let missing = event_messages(&kubectl, "p", "FailedToRetrieveImagePullSecret");
    let words = "Unable to retrieve some image pull secrets (missing); attempting to pull the image may not succeed.";
    assert_eq!(missing, [words]);
    assert_eq!(event_messages(&kubectl, "p", "Pulling"), [format!("Pulling image {image:?}")]);
    let pulled = event_messages(&kubectl, "p", "Pulled").remove(0);
    let rest = pulled.strip_prefix(&format!("Successfully pulled image {image:?} in ")).unwrap();
    let (took, rest) = rest.split_once("s (").unwrap();
    let (_, size) = rest.split_once("s including waiting). Image size: ").unwrap();
    assert!(took.trim_end_matches('m').parse::<f64>().is_ok_and(|took| took > 0.0), "{pulled}");
    assert!(size.strip_suffix(" bytes.").unwrap().parse::<u64>().unwrap() > 100_000, "{pulled}");
    // The older Secret type, `kubernetes.io/dockercfg`.
    let cfg = json!({format!("http://{}/v2/", registry.host()): {"username": USER, "password": PASSWORD}});
    let old = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "old"},
        "type": "kubernetes.io/dockercfg", "stringData": {".dockercfg": cfg.to_string()}});
    kubectl.apply(&old.to_string());
    kubectl.apply(&pod("q", &push(&registry, "team/other", "1", "again"), "", &["old"]));
    kubectl.wait_ready("q");
}

#[e2e_test("a Pod gets the imagePullSecrets of its ServiceAccount")]
fn pod_gets_pull_secrets_of_service_account(cluster: &Cluster) {
    let (kubectl, registry) = (cluster.kubectl(), Registry::start());
    secret(&kubectl, "lent", registry.host(), PASSWORD);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"},
        "imagePullSecrets": [{"name": "lent"}]});
    kubectl.apply(&account.to_string());
    kubectl.apply(&pod("p", &push(&registry, "private", "1", "hello"), "", &[]));
    kubectl.wait_ready("p");
    assert_eq!(kubectl.value("pod/p", "/spec/imagePullSecrets"), json!([{"name": "lent"}]));
}

#[e2e_test("a pull without credentials fails, backs off and reports the reason")]
fn pull_without_credentials_fails_and_backs_off(cluster: &Cluster) {
    let (kubectl, registry) = (cluster.kubectl(), Registry::start());
    let image = push(&registry, "private", "1", "hello");
    kubectl.apply(&pod("p", &image, "", &[]));
    let message = wait_for_waiting_reason(&kubectl, "p", "ImagePullBackOff");
    let start = format!("Back-off pulling image {image:?}: ErrImagePull: ");
    // As containerd 1.6 words it, and as 2.0 and the engine do.
    let is_named = ["401 Unauthorized", "no basic auth credentials"].iter().any(|words| message.contains(words));
    assert!(message.starts_with(&start) && is_named, "{message}");
    let failed = event_messages(&kubectl, "p", "Failed");
    assert!(failed[0].starts_with(&format!("Failed to pull image {image:?}: ")), "{failed:?}");
    assert_eq!(failed[1..], ["Error: ErrImagePull", "Error: ImagePullBackOff"]);
    assert_eq!(event_messages(&kubectl, "p", "BackOff"), [format!("Back-off pulling image {image:?}")]);
    // A Secret that is created later is used by the next attempt.
    kubectl.apply(&pod("late", &image, "", &["late"]));
    wait_for_waiting_reason(&kubectl, "late", "ImagePullBackOff");
    secret(&kubectl, "late", registry.host(), PASSWORD);
    kubectl.wait_ready("late");
}

#[e2e_test("the default pull policy is Always without a tag, else IfNotPresent")]
fn default_pull_policy_depends_on_tag(cluster: &Cluster) {
    let (kubectl, registry) = (cluster.kubectl(), Registry::start());
    secret(&kubectl, "s", registry.host(), PASSWORD);
    for (tag, expected, policy) in [("latest", "new\n", "Always"), ("1", "old\n", "IfNotPresent")] {
        let name = format!("tagged-{tag}");
        let image = push(&registry, &name, tag, "old");
        let image = image.strip_suffix(":latest").unwrap_or(&image);
        for word in ["old", "new"] {
            push(&registry, &name, tag, word);
            kubectl.apply(&pod(&name, image, "", &["s"]));
            kubectl.wait_ready(&name);
            if word == "new" {
                kubectl.wait_for_output(&format!("logs {name}"), expected);
            }
            assert_eq!(
                kubectl.value(&format!("pod/{name}"), "/spec/containers/0/imagePullPolicy"),
                json!(policy),
                "{name}"
            );
            kubectl.run(&format!("delete pod {name} --timeout=90s")).ok();
        }
    }
}

#[e2e_test("an image imported during pull back-off is used")]
fn image_imported_during_backoff_is_used(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    // Nothing listens on this loopback port.
    // The name is new, also when the test runs again: the machine's store keeps the image.
    let image = format!("127.0.0.1:9/brought-{}-{}:1", std::process::id(), kubectl.namespace());
    kubectl.apply(&pod("p", &image, "", &[]));
    wait_for_waiting_reason(&kubectl, "p", "ImagePullBackOff");
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("image.tar");
    // A separate image: one that the kubelet has pulled with a secret does not count as preloaded.
    test_images::busybox(&tar, &[&image], &printing("brought")).unwrap();
    cluster.import(&tar);
    kubectl.wait_ready("p");
    let present = format!("Container image {image:?} already present on machine and can be accessed by the pod");
    assert_eq!(event_messages(&kubectl, "p", "Pulled"), [present]);
}

#[e2e_test("an image index resolves to the machine's platform")]
fn image_index_resolves_to_platform(cluster: &Cluster) {
    let (kubectl, registry) = (cluster.kubectl(), Registry::start());
    secret(&kubectl, "s", registry.host(), PASSWORD);
    // Separate images: one that was pulled with a secret does not count as imported, whatever its name.
    let configs = |how: &str| {
        ["s390x", ARCHITECTURE, "riscv64"].map(|machine| {
            let config = printing(&format!("{how} {machine}"));
            ImageConfig { architecture: Some(machine.to_owned()), ..config }
        })
    };
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("image.tar");
    test_images::busybox_index(&tar, "example.com/index:1", &configs("imported")).unwrap();
    cluster.import(&tar);
    let images = configs("pulled").each_ref().map(|config| OciImage::busybox(config).unwrap());
    let pulled = registry.push_index("index", "1", &images);
    for (name, image, policy) in [("pulled", pulled.as_str(), "Always"), ("imported", "example.com/index:1", "Never")] {
        kubectl.apply(&pod(name, image, policy, &["s"]));
        kubectl.wait_ready(name);
        kubectl.wait_for_output(&format!("logs {name}"), &format!("{name} {ARCHITECTURE}\n"));
    }
}

#[e2e_test("a Pod without credentials gets no image that a secret pulled")]
fn pulled_image_needs_credentials(cluster: &Cluster) {
    let (kubectl, other, registry) = (cluster.kubectl(), cluster.kubectl(), Registry::start());
    let image = push(&registry, "private", "1", "hello");
    secret(&kubectl, "s", registry.host(), PASSWORD);
    kubectl.apply(&pod("first", &image, "", &["s"]));
    kubectl.wait_ready("first");
    kubectl.apply(&pod("second", &image, "Never", &["s"]));
    kubectl.wait_ready("second");
    let present = format!("Container image {image:?} already present on machine and can be accessed by the pod");
    assert_eq!(event_messages(&kubectl, "second", "Pulled"), [present]);
    // The same image in a namespace whose Pods have no credentials, or other ones.
    secret(&other, "s", registry.host(), "nonsense");
    for (name, policy, secrets, reason) in [
        ("none", "IfNotPresent", &[][..], "ImagePullBackOff"),
        ("wrong", "IfNotPresent", &["s"], "ImagePullBackOff"),
        ("never", "Never", &[], "ErrImageNeverPull"),
    ] {
        other.apply(&pod(name, &image, policy, secrets));
        wait_for_waiting_reason(&other, name, reason);
    }
    // Credentials that the registry accepts are valid, whatever their source.
    other.run("delete secret s").ok();
    secret(&other, "s", registry.host(), PASSWORD);
    other.wait_ready("wrong");
}

#[e2e_test("image credential verification is off by configuration or feature gate")]
fn image_verification_can_be_disabled() {
    let registry = Registry::start();
    let image = push(&registry, "private", "1", "hello");
    let never =
        ClusterBuilder::default().kubelet_config(json!({"imagePullCredentialsVerificationPolicy": "NeverVerify"}));
    let off = ClusterBuilder::default().args(&["--feature-gates", "KubeletEnsureSecretPulledImages=false"]);
    for (setup, and) in [(never, " and can be accessed by the pod"), (off, "")] {
        let cluster = setup.without_images().start();
        let kubectl = cluster.kubectl_in("default");
        secret(&kubectl, "s", registry.host(), PASSWORD);
        kubectl.apply(&pod("first", &image, "", &["s"]));
        kubectl.wait_ready("first");
        kubectl.apply(&pod("second", &image, "Never", &[]));
        kubectl.wait_ready("second");
        let present = format!("Container image {image:?} already present on machine{and}");
        assert_eq!(event_messages(&kubectl, "second", "Pulled"), [present]);
    }
}

/// Writes a credential provider plugin that returns the registry's password for a valid request.
fn write_plugin(dir: &Path, registry: &Registry) {
    let answer = json!({"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Registry", "auth": {registry.host(): {"username": USER, "password": "$PASSWORD"}}});
    let script =
        format!("#!/bin/sh\ncat >> {}/questions\n[ \"$1\" = ask ] && cat <<EOF\n{answer}\nEOF\n", dir.display());
    std::fs::write(dir.join("plugin"), script).unwrap();
    std::fs::set_permissions(dir.join("plugin"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let provider = json!({"name": "plugin", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "matchImages": [format!("{}/private", registry.host())], "defaultCacheDuration": "1h", "args": ["ask"],
        "env": [{"name": "PASSWORD", "value": PASSWORD}]});
    let config =
        json!({"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [provider]});
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
}

#[e2e_test("the kubelet uses credential providers and the node's Docker config")]
fn kubelet_uses_credential_providers_and_node_config() {
    let (registry, dir) = (Registry::start(), tempfile::tempdir().unwrap());
    write_plugin(dir.path(), &registry);
    let config = dir.path().join("config.json");
    let [config, bin_dir] = [config.to_str().unwrap(), dir.path().to_str().unwrap()];
    let flags = ["--image-credential-provider-config", config, "--image-credential-provider-bin-dir", bin_dir];
    let cluster = ClusterBuilder::default().without_images().args(&flags).start();
    let kubectl = cluster.kubectl_in("default");
    for name in ["a", "b"] {
        kubectl.apply(&pod(name, &push(&registry, &format!("private/{name}"), "1", "hello"), "", &[]));
        kubectl.wait_ready(name);
    }
    let question = json!({"kind": "CredentialProviderRequest", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "image": format!("{}/private/a", registry.host())});
    let request = std::fs::read_to_string(dir.path().join("questions")).unwrap();
    let request: Value = serde_json::from_str(&request).expect("one request: the response is cached for the registry");
    assert_eq!(request, question);
    // An image pulled with the node's credentials is for every Pod; one that they do not match is not.
    kubectl.apply(&pod("again", &format!("{}/private/a:1", registry.host()), "Never", &[]));
    kubectl.wait_ready("again");
    kubectl.apply(&pod("other", &push(&registry, "other", "1", "hello"), "", &[]));
    wait_for_waiting_reason(&kubectl, "other", "ImagePullBackOff");
    // When the node gets credentials, the next attempt uses them.
    let login = json!({"username": USER, "password": PASSWORD});
    let own = json!({"auths": {format!("{}/other", registry.host()): login}});
    std::fs::write(cluster.data_dir().join("kubelet/config.json"), own.to_string()).unwrap();
    kubectl.wait_ready("other");
}

#[e2e_test("an image volume is mounted read-only")]
fn image_volume_is_mounted_read_only(cluster: &Cluster) {
    let (kubectl, registry) = (cluster.kubectl(), Registry::start());
    let image = push(&registry, "data", "1", "data");
    let pod = |name: &str, secrets: Value| {
        let pod = PodBuilder::new(name)
            .grace_period(1)
            .script("sleep 100000")
            .volume("v", &json!({"image": {"reference": image}}))
            .mount("v", "/v")
            .spec(&json!({"imagePullSecrets": secrets}));
        kubectl.apply(&pod.to_string());
    };
    pod("stranger", json!([]));
    let message = wait_for_waiting_reason(&kubectl, "stranger", "ImagePullBackOff");
    assert!(message.starts_with(&format!("Back-off pulling image {image:?}: ErrImagePull: ")), "{message}");
    secret(&kubectl, "s", registry.host(), PASSWORD);
    pod("p", json!([{"name": "s"}]));
    kubectl.wait_ready("p");
    assert!(kubectl.run("exec p -- ls /v/bin").ok().contains("busybox"));
    let refused = kubectl.args(&["exec", "p", "--", "touch", "/v/x"], "").failed();
    assert!(refused.contains("Read-only file system"), "{refused}");
}
