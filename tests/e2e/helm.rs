//! Helm installs, upgrades, rolls back and removes a chart: tests/clients/greeter.

use serde_json::json;
use tests::{Cluster, Shell, e2e_test};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/greeter");

#[e2e_test("Helm 3 installs, upgrades, rolls back, tests and uninstalls a chart")]
fn helm_3_manages_a_chart(cluster: &Cluster) {
    walk(cluster, "helm-3", "v3");
}

#[e2e_test("Helm 4 installs, upgrades, rolls back, tests and uninstalls a chart")]
fn helm_4_manages_a_chart(cluster: &Cluster) {
    walk(cluster, "helm-4", "v4");
}

fn walk(cluster: &Cluster, tool: &str, version: &str) {
    let kubectl = cluster.kubectl();
    let shell = Shell::new(kubectl.clone()).with("helm", tests::tool(tool));
    let place = format!("-n {} --timeout 90s", kubectl.namespace());
    let namespace = format!("-n {}", kubectl.namespace());
    shell.check(&[
        ("helm version --short", 0, &format!("{version}...")),
        (&format!("helm lint {CHART}"), 0, "...0 chart(s) failed..."),
        (&format!("helm install one {CHART} {place} --dry-run=server"), 0, "...one says hello in test-..."),
        ("kubectl get all", 0, "No resources found in test-..."),
        (&format!("helm install one {CHART} {place} --wait"), 0, "...STATUS: deployed REVISION: 1 ..."),
        // The hook ran and was deleted, and the awaited objects exist.
        ("kubectl get jobs", 0, "No resources found in test-..."),
        ("kubectl get deployment one", 0, "NAME READY UP-TO-DATE AVAILABLE AGE one 1/1 1 1 ..."),
        (&format!("helm install one {CHART} {place}"), 1, "...a name that is still in use..."),
        (&format!("helm test one {place}"), 0, "...Phase: Succeeded..."),
        (
            &format!("helm upgrade one {CHART} {place} --wait --set replicas=2,greeting=servus"),
            0,
            "...has been upgraded...REVISION: 2...one says servus...",
        ),
        // Helm 3 looks at the ReplicaSet, whose state is a moment later in the Deployment.
        ("kubectl wait deployment/one --for=jsonpath={.status.readyReplicas}=2 --timeout=60s", 0, "...condition met"),
        ("kubectl get deployment one", 0, "NAME READY UP-TO-DATE AVAILABLE AGE one 2/2 2 2 ..."),
        (&format!("helm test one {place}"), 0, "...Phase: Succeeded..."),
        (&format!("helm rollback one 1 {place} --wait"), 0, "Rollback was a success!..."),
        (&format!("helm history one {namespace}"), 0, "...superseded...superseded...deployed...Rollback to 1"),
        (&format!("helm get values one {namespace} --all"), 0, "...greeting: hello..."),
    ]);
    assert_eq!(kubectl.value("configmap/one", "/data/greeting"), json!("hello"));
    assert_eq!(kubectl.value("deployment/one", "/spec/replicas"), json!(1));
    // A failed upgrade is reported, and the release can be repaired.
    shell.check(&[
        (&format!("helm upgrade one {CHART} {place} --set replicas=-1"), 1, "...must be greater than or equal to 0..."),
        (&format!("helm upgrade one {CHART} {place} --wait"), 0, "...STATUS: deployed..."),
        (&format!("helm uninstall one {place} --wait"), 0, "release \"one\" uninstalled"),
        (
            "kubectl get deployments,services,configmaps,roles,secrets -l app.kubernetes.io/managed-by=Helm",
            0,
            "No resources found...",
        ),
        (&format!("helm list {namespace} -q"), 0, ""),
    ]);
}
