//! Protection finalizers of PersistentVolumeClaims, PersistentVolumes and ServiceCIDRs.

use serde_json::json;
use tests::{Cluster, PodBuilder, e2e_test, eventually};

#[e2e_test("a deleted PersistentVolumeClaim stays until no Pod uses it")]
fn deleted_claim_stays_while_used(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let node = kubectl.run("get nodes -o jsonpath={.items[0].metadata.name}").ok();
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    kubectl.apply(&claim.to_string());
    // With WaitForFirstConsumer the bound Pod does not start, but it has a node, so the claim is in use.
    let pod = PodBuilder::new("p")
        .grace_period(1)
        .spec(&json!({"nodeName": node}))
        .volume("v", &json!({"persistentVolumeClaim": {"claimName": "c"}}))
        .mount("v", "/v");
    kubectl.apply(&pod.to_string());
    kubectl.run("delete persistentvolumeclaim c --wait=false").ok();
    assert!(kubectl.run("get persistentvolumeclaim c").ok().contains("Terminating"));
    assert_eq!(
        kubectl.value("persistentvolumeclaim/c", "/metadata/finalizers"),
        json!(["kubernetes.io/pvc-protection"])
    );
    let described = kubectl.run("describe persistentvolumeclaim c").ok();
    assert!(described.contains("Used By:       p"), "{described}");
    kubectl.run("delete pod p --timeout=60s").ok();
    eventually("the claim to be deleted", || kubectl.get("persistentvolumeclaim/c").is_none());
}

#[e2e_test("a deleted PersistentVolume stays while it is bound")]
fn deleted_volume_stays_while_bound(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "manual"});
    let mut volume =
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "held"}, "spec": spec});
    volume["spec"]["capacity"] = json!({"storage": "1Mi"});
    volume["spec"]["hostPath"] = json!({"path": "/tmp"});
    let mut claim =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": spec});
    claim["spec"]["resources"] = json!({"requests": {"storage": "1Mi"}});
    claim["spec"]["volumeName"] = json!("held");
    kubectl.apply(&volume.to_string());
    kubectl.apply(&claim.to_string());
    kubectl.wait_value("pv/held", "/status/phase", &json!("Bound"));
    kubectl.run("delete pv held --wait=false").ok();
    assert_eq!(kubectl.value("pv/held", "/metadata/finalizers"), json!(["kubernetes.io/pv-protection"]));
    kubectl.run("delete persistentvolumeclaim c").ok();
    eventually("the volume to be deleted", || kubectl.get("pv/held").is_none());
}

#[e2e_test("a deleted ServiceCIDR stays while a Service has an address of it")]
fn deleted_service_cidr_stays_while_used(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "spare"},
        "spec": {"cidrs": ["10.98.7.0/28"]}});
    kubectl.apply(&range.to_string());
    kubectl.run("wait --for=condition=Ready servicecidr/spare --timeout=90s").ok();
    assert!(kubectl.run("get servicecidr spare").ok().contains("10.98.7.0/28"));
    kubectl.run("create service clusterip far --clusterip=10.98.7.3 --tcp=80:80").ok();
    assert!(kubectl.run("get ipaddress 10.98.7.3").ok().contains("/far"));
    kubectl.run("delete servicecidr spare --wait=false").ok();
    eventually("the reason in the condition", || {
        kubectl.value("servicecidr/spare", "/status/conditions/0/reason") == "Terminating"
    });
    let refused = kubectl.run("create service clusterip late --clusterip=10.98.7.4 --tcp=80:80").failed();
    assert!(refused.contains("the provided network does not match the current range"), "{refused}");
    kubectl.run("delete service far").ok();
    eventually("the ServiceCIDR to be deleted", || kubectl.get("servicecidr/spare").is_none());
}
