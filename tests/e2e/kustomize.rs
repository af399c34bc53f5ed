//! `kubectl apply -k`: a base and an overlay in tests/clients/kustomize.

use serde_json::json;
use tests::{Cluster, Shell, e2e_test};

const OVERLAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/kustomize/overlay");

#[e2e_test("kustomize applies, diffs, prunes and deletes an overlay")]
fn kustomize_overlay_is_applied_and_pruned(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let shell = Shell::new(kubectl.clone());
    shell.check(&[
        (&format!("kubectl diff -k {OVERLAY}"), 1, "...staging-sleeper..."),
        (
            &format!("kubectl apply -k {OVERLAY}"),
            0,
            "configmap/staging-settings-... created deployment.apps/staging-sleeper created",
        ),
        (&format!("kubectl diff -k {OVERLAY}"), 0, ""),
        (
            &format!("kubectl apply -k {OVERLAY}"),
            0,
            "configmap/staging-settings-... unchanged deployment.apps/staging-sleeper unchanged",
        ),
        ("kubectl rollout status deployment/staging-sleeper --timeout=90s", 0, "...successfully rolled out"),
        ("kubectl exec deploy/staging-sleeper -- sh -c 'echo $LEVEL $PATCHED'", 0, "debug yes"),
        // Server-side apply takes over fields of client-side apply.
        (
            &format!("kubectl apply -k {OVERLAY} --server-side"),
            0,
            "configmap/staging-settings-... serverside-applied deployment.apps/staging-sleeper serverside-applied",
        ),
        (&format!("kubectl diff -k {OVERLAY} --server-side"), 0, ""),
    ]);
    assert_eq!(kubectl.value("deployment/staging-sleeper", "/spec/replicas"), json!(2));
    assert_eq!(kubectl.value("deployment/staging-sleeper", "/metadata/labels/stage"), json!("staging"));
    shell.check(&[
        (
            &format!("kubectl delete -k {OVERLAY} --wait --timeout=60s"),
            0,
            "configmap \"staging-settings-...\" deleted... deployment.apps \"staging-sleeper\" deleted...",
        ),
        ("kubectl get deployments", 0, "No resources found..."),
    ]);
}
