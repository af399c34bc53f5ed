//! Server-side apply with kubectl and kube-rs.

use super::{pod, shell, shell_with_pod};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tests::{Cluster, e2e_test};

const ONE: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {k: v, l: w}
";
const TWO: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {k: x}
";

#[e2e_test("kubectl apply --server-side creates, configures and records its manager")]
fn server_side_apply_records_its_manager(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.file("one.yaml", ONE);
    shell.file("two.yaml", TWO);
    shell.file("wrong.yaml", ONE.replace("\ndata:", "\ndat:"));
    shell.check(&[
        (
            "kubectl apply --server-side -f one.yaml --dry-run=server",
            0,
            "configmap/c serverside-applied (server dry run)",
        ),
        ("kubectl get configmap c", 1, "Error from server (NotFound): configmaps \"c\" not found"),
        ("kubectl diff --server-side -f one.yaml", 1, "diff ...+ k: v + l: w..."),
        ("kubectl apply --server-side -f one.yaml", 0, "configmap/c serverside-applied"),
        ("kubectl diff --server-side -f one.yaml", 0, ""),
        ("kubectl diff --server-side -f two.yaml", 1, "diff ...- k: v - l: w + k: x..."),
        ("kubectl apply --server-side -f two.yaml", 0, "configmap/c serverside-applied"),
        ("kubectl get configmap c -o jsonpath={.data}", 0, "{\"k\":\"x\"}"),
        (
            "kubectl apply --server-side -f wrong.yaml",
            1,
            "Error from server (BadRequest): failed to create typed patch object (test-.../c; /v1, Kind=ConfigMap): \
             .dat: field not declared in schema",
        ),
        (
            "kubectl get configmap c -o yaml --show-managed-fields",
            0,
            "apiVersion: v1 ...managedFields: - apiVersion: v1 fieldsType: FieldsV1 fieldsV1: f:data: f:k: {} \
             manager: kubectl operation: Apply time: ...",
        ),
    ]);
    let version = || shell.kubectl().value("configmap/c", "/metadata/resourceVersion");
    let before = version();
    shell.check(&[("kubectl apply --server-side -f two.yaml", 0, "configmap/c serverside-applied")]);
    assert_eq!(version(), before, "an apply of the same is no change");
    let shown = shell.run("kubectl get configmap c -o yaml").ok();
    assert!(!shown.contains("managedFields"), "{shown}");
}

#[e2e_test("kubectl apply --server-side reports conflicts and forces them")]
fn server_side_apply_reports_and_forces_conflicts(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.file("one.yaml", ONE);
    shell.file("two.yaml", TWO);
    shell.check(&[
        ("kubectl apply --server-side -f one.yaml --field-manager=first", 0, "configmap/c serverside-applied"),
        (
            "kubectl apply --server-side -f two.yaml",
            1,
            "error: Apply failed with 1 conflict: conflict with \"first\": .data.k Please review the fields above--they \
             currently have other managers...",
        ),
        (
            "kubectl patch configmap c --type=merge -p '{\"data\":{\"l\":\"edited\"}}'",
            0,
            "configmap/c patched",
        ),
        (
            "kubectl apply --server-side -f one.yaml --field-manager=first",
            1,
            "error: Apply failed with 1 conflict: conflict with \"kubectl-patch\" using v1: .data.l Please review...",
        ),
        ("kubectl apply --server-side -f two.yaml --force-conflicts", 0, "configmap/c serverside-applied"),
        ("kubectl get configmap c -o jsonpath={.data}", 0, "{\"k\":\"x\",\"l\":\"edited\"}"),
        (
            "kubectl get configmap c -o jsonpath={.metadata.managedFields[*].manager} --show-managed-fields",
            0,
            "kubectl kubectl-patch",
        ),
    ]);
}

#[e2e_test("kubectl apply --server-side migrates fields of client-side apply")]
fn server_side_apply_migrates_client_side_fields(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.file("one.yaml", ONE);
    shell.file("two.yaml", TWO);
    shell.check(&[
        ("kubectl apply -f one.yaml", 0, "configmap/c created"),
        ("kubectl apply --server-side -f two.yaml", 0, "configmap/c serverside-applied"),
        // Fields of the client-side apply that are no longer applied are removed too.
        ("kubectl get configmap c -o jsonpath={.data}", 0, "{\"k\":\"x\"}"),
        (
            "kubectl get configmap c -o jsonpath={.metadata.managedFields[*].manager} --show-managed-fields",
            0,
            "kubectl...",
        ),
        ("kubectl apply -f one.yaml", 0, "configmap/c configured"),
        ("kubectl get configmap c -o jsonpath={.data}", 0, "{\"k\":\"v\",\"l\":\"w\"}"),
    ]);
}

#[e2e_test("a Pod shows its managedFields")]
fn pod_shows_its_managed_fields(cluster: &Cluster) {
    let shell = shell_with_pod(cluster);
    shell.file("label.yaml", pod("p", "back"));
    let managers = "{range .metadata.managedFields[*]}{.manager}/{.operation}/{.subresource}{\" \"}{end}";
    shell.check(&[
        (
            &format!("kubectl get pod p --show-managed-fields -o jsonpath='{managers}'"),
            0,
            "kubectl-client-side-apply/Update/ kubelet/Update/status",
        ),
        ("kubectl apply --server-side -f label.yaml --force-conflicts", 0, "pod/p serverside-applied"),
        ("kubectl get pod p -o jsonpath={.metadata.labels.tier}", 0, "back"),
        ("kubectl apply --server-side -f label.yaml", 0, "pod/p serverside-applied"),
    ]);
}

#[e2e_test("kube-rs applies and gets conflicts")]
fn kube_rs_applies_and_gets_conflicts(cluster: &Cluster) {
    let shell = shell(cluster);
    let namespace = shell.kubectl().namespace().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(&runtime), &namespace);
    runtime.block_on(async {
        let config = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": value}});
        let mine = PatchParams::apply("mine");
        let made = api.patch("c", &mine, &Patch::Apply(config("v"))).await.unwrap();
        assert_eq!(made.metadata.managed_fields.unwrap()[0].manager.as_deref(), Some("mine"));
        let other = PatchParams::apply("other");
        let error = api.patch("c", &other, &Patch::Apply(config("w"))).await.unwrap_err();
        let kube::Error::Api(status) = error else { panic!("{error}") };
        assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
        let taken = api.patch("c", &other.force(), &Patch::Apply(config("w"))).await.unwrap();
        assert_eq!(taken.data.unwrap()["k"], "w");
    });
}
