//! CertificateSigningRequests: created, approved, signed and used.

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use tests::{Cluster, Kubectl, e2e_test, eventually};

/// Returns a certificate request in PEM and its key.
fn request(name: &str, organization: &str) -> (String, KeyPair) {
    let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, organization);
    (params.serialize_request(&key).unwrap().pem().unwrap(), key)
}

/// Returns the manifest and name of a CertificateSigningRequest.
fn manifest(kubectl: &Kubectl, name: &str, pem: &str, signer: &str, uses: Value) -> (String, String) {
    let name = format!("{}-{name}", kubectl.namespace());
    let spec = json!({"request": STANDARD.encode(pem), "signerName": signer, "expirationSeconds": 600, "usages": uses});
    let object = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name}, "spec": spec});
    (object.to_string(), name)
}

fn shown(kubectl: &Kubectl, name: &str) -> String {
    let row = kubectl.run(&format!("get csr {name} --no-headers")).ok();
    row.split_whitespace().last().unwrap_or_default().to_owned()
}

#[e2e_test("an approved CertificateSigningRequest authenticates its client")]
fn approved_csr_authenticates_its_client(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let (pem, key) = request("jane", "devs");
    let signer = "kubernetes.io/kube-apiserver-client";
    let (requested, name) = manifest(&kubectl, "jane", &pem, signer, json!(["client auth"]));
    kubectl.apply(&requested);
    assert_eq!(shown(&kubectl, &name), "Pending");
    kubectl.run(&format!("certificate approve {name}")).ok();
    eventually("the CSR to be issued", || shown(&kubectl, &name) == "Approved,Issued");
    let issued = kubectl.value(&format!("csr/{name}"), "/status/certificate");
    let config: Value = serde_json::from_str(&std::fs::read_to_string(cluster.kubeconfig()).unwrap()).unwrap();
    let mut own = config;
    own["users"][0]["user"] =
        json!({"client-certificate-data": issued, "client-key-data": STANDARD.encode(key.serialize_pem())});
    let file = cluster.data_dir().join(format!("{name}.kubeconfig"));
    std::fs::write(&file, own.to_string()).unwrap();
    let jane = Kubectl::new(file, kubectl.namespace());
    let output = jane.run("auth whoami").ok();
    assert!(output.contains("jane") && output.contains("[devs system:authenticated]"), "{output}");
    assert!(jane.run("get pods").failed().contains("User \"jane\" cannot list resource \"pods\""));
    kubectl.run("create rolebinding devs --clusterrole=view --group=devs").ok();
    jane.run("get pods").ok();
}

#[e2e_test("a denied CSR is not signed, and an invalid one fails with a reason")]
fn denied_and_invalid_csrs_are_not_signed(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let (pem, _) = request("jane", "devs");
    let signer = "kubernetes.io/kube-apiserver-client";
    let (requested, name) = manifest(&kubectl, "denied", &pem, signer, json!(["client auth"]));
    kubectl.apply(&requested);
    kubectl.run(&format!("certificate deny {name}")).ok();
    assert_eq!(shown(&kubectl, &name), "Denied");
    let (requested, other) = manifest(&kubectl, "serves", &pem, signer, json!(["server auth"]));
    kubectl.apply(&requested);
    kubectl.run(&format!("certificate approve {other}")).ok();
    eventually("the CSR to fail", || shown(&kubectl, &other) == "Approved,Failed");
    let failed = kubectl.condition(&format!("csr/{other}"), "Failed");
    assert_eq!(failed["reason"], "SignerValidationFailure");
    assert_eq!(failed["message"], "invalid usage for client certificate: server auth");
    assert_eq!(kubectl.value(&format!("csr/{name}"), "/status/certificate"), Value::Null);
    let (pem, _) = request("root", "system:masters");
    let (requested, _) = manifest(&kubectl, "masters", &pem, signer, json!(["client auth"]));
    let output = kubectl.args(&["apply", "-f", "-"], &requested).failed();
    assert!(output.contains(&format!("use of {signer} signer with system:masters group is not allowed")), "{output}");
}

#[e2e_test("an authorized kubelet's CSR is approved and signed at once")]
fn authorized_kubelet_csr_is_auto_approved(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let (node, signer) =
        (format!("system:node:{}", kubectl.namespace()), "kubernetes.io/kube-apiserver-client-kubelet");
    let (pem, _) = request(&node, "system:nodes");
    let uses = json!(["digital signature", "client auth"]);
    let (requested, name) = manifest(&kubectl, "node", &pem, signer, uses);
    let role = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient";
    let binding = format!("renewal-{}", kubectl.namespace());
    kubectl.run(&format!("create clusterrolebinding {binding} --clusterrole={role} --user={node}")).ok();
    let renewal = ["create", "-f", "-", "--as", &node, "--as-group", "system:nodes"];
    kubectl.args(&renewal, &requested).ok();
    eventually("the CSR to be approved and issued", || shown(&kubectl, &name) == "Approved,Issued");
    let approved = kubectl.condition(&format!("csr/{name}"), "Approved");
    assert_eq!(approved["reason"], "AutoApproved");
    let message = "Auto approving self kubelet client certificate after SubjectAccessReview.";
    assert_eq!(approved["message"], message);
    kubectl.run(&format!("delete clusterrolebinding {binding}")).ok();
}
