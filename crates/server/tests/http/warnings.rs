//! Warnings in responses, by kind.

use crate::common::*;
use serde_json::{Value, json};

/// Creates an object and changes a label; returns the warnings of both.
async fn create_and_label(api: &TestApi, path: &str, name: &str, object: Value) -> [Vec<String>; 2] {
    let mut object = object;
    object["metadata"]["name"] = json!(name);
    let created = api.check(post(path, &object), 201, json!({})).await;
    let label = merge_patch(format!("{path}/{name}"), &json!({"metadata": {"labels": {"a": "b"}}}));
    let changed = api.check(label, 200, json!({})).await;
    [created.warnings(), changed.warnings()]
}

/// Formats a warning as in the header.
fn warning_header(warnings: &str) -> String {
    format!("299 - \"{}\"", warnings.replace('"', "\\\""))
}

#[track_caller]
fn check(warnings: [Vec<String>; 2], created: &[&str], changed: &[&str]) {
    let headers = |all: &[&str]| all.iter().map(|one| warning_header(one)).collect::<Vec<_>>();
    assert_eq!(warnings, [headers(created), headers(changed)]);
}

const DEPRECATED_LABEL: &str = "deprecated since v1.14; use \"kubernetes.io/os\" instead";

#[tokio::test]
async fn template_warnings_appear_on_spec_changes_only() {
    let api = TestApi::new().await;
    let spec = json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}, "containers": [{"name": "c", "image": "i"}]});
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": spec});
    let lasting = json!({"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template}});
    let at = format!("spec.template.spec.nodeSelector[beta.kubernetes.io/os]: {DEPRECATED_LABEL}");
    for plural in ["deployments", "replicasets", "daemonsets", "statefulsets"] {
        let path = format!("/apis/apps/v1/namespaces/default/{plural}");
        check(create_and_label(&api, &path, "a", lasting.clone()).await, &[&at], &[]);
    }
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let paused = merge_patch(format!("{path}/a"), &json!({"spec": {"paused": true}}));
    assert_eq!(api.check(paused, 200, json!({})).await.warnings(), [warning_header(&at)]);
    let scale = merge_patch(format!("{path}/a/scale"), &json!({"spec": {"replicas": 3}}));
    assert_eq!(api.check(scale, 200, json!({})).await.warnings(), Vec::<String>::new());
    let mut ending = template.clone();
    ending["spec"]["restartPolicy"] = json!("Never");
    let dotted = "a DNS label is recommended: [must not contain dots]";
    let name = format!(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; {dotted}"
    );
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    check(create_and_label(&api, jobs, "a.b", json!({"spec": {"template": ending}})).await, &[&name, &at], &[]);
    let in_cron = at.replacen("spec.", "spec.jobTemplate.spec.", 1);
    let cron = json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": ending}}}});
    check(
        create_and_label(&api, "/apis/batch/v1/namespaces/default/cronjobs", "a.b", cron).await,
        &[&name, &in_cron],
        &[],
    );
    let bare = format!("template.spec.nodeSelector[beta.kubernetes.io/os]: {DEPRECATED_LABEL}");
    let path = "/api/v1/namespaces/default/podtemplates";
    check(create_and_label(&api, path, "a", json!({"template": template})).await, &[&bare], &[]);
    let pod = format!("spec.nodeSelector[beta.kubernetes.io/os]: {DEPRECATED_LABEL}");
    check(create_and_label(&api, PODS, "a", json!({"spec": spec})).await, &[&pod], &[]);
}

#[tokio::test]
async fn ambiguous_ip_addresses_cause_warnings() {
    let api = TestApi::new().await.without_plugin("DenyServiceExternalIPs");
    let future = "will be considered invalid in a future Kubernetes release: use";
    let external = format!("spec.externalIPs[0]: non-standard IP address \"010.0.0.1\" {future} \"10.0.0.1\"");
    let service = json!({"spec": {"ports": [{"port": 80}], "externalIPs": ["010.0.0.1"]}});
    let services = "/api/v1/namespaces/default/services";
    check(create_and_label(&api, services, "a", service).await, &[&external], &[&external]);
    let slice = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["010.0.0.1"]}], "ports": []});
    let at = external.replace("spec.externalIPs[0]", "endpoints[0].addresses[0]");
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    check(create_and_label(&api, slices, "a", slice.clone()).await, &[&at], &[&at]);
    let mut copied = slice;
    copied["metadata"]["labels"] =
        json!({"endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io"});
    check(create_and_label(&api, slices, "b", copied).await, &[], &[]);
    let block = json!({"cidr": "10.0.0.1/8", "except": ["10.1.0.0/16"]});
    let policy = json!({"spec": {"podSelector": {}, "egress": [{"to": [{"ipBlock": block}]}]}});
    let at = "spec.egress[0].to[0].ipBlock.cidr: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)";
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    check(create_and_label(&api, policies, "a", policy).await, &[at], &[at]);
    let cidr = at.replace("spec.egress[0].to[0].ipBlock.cidr", "spec.podCIDRs[0]");
    check(
        create_and_label(&api, "/api/v1/nodes", "a", json!({"spec": {"podCIDR": "10.0.0.1/8"}})).await,
        &[&cidr],
        &[&cidr],
    );
    let invalid = json!({"metadata": {"name": "b"}, "spec": {"ports": [{"port": 80}], "externalIPs": ["10.0.0.256"]}});
    api.check(post(services, &invalid), 422, json!({"reason": "Invalid"})).await;
}

#[tokio::test]
async fn cluster_ip_is_unique_in_every_notation() {
    let api = TestApi::new().await;
    let services = "/api/v1/namespaces/default/services";
    let with =
        |name: &str, ip: &str| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "clusterIP": ip}});
    let future = "will be considered invalid in a future Kubernetes release: use";
    let created = api.check(post(services, &with("a", "010.96.0.77")), 201, json!({})).await;
    let warnings = format!("spec.clusterIPs[0]: non-standard IP address \"010.96.0.77\" {future} \"10.96.0.77\"");
    assert_eq!(created.warnings(), [warning_header(&warnings)]);
    let taken = r#"Service "b" is invalid: spec.clusterIPs: Invalid value: ["10.96.0.77"]: failed to allocate IP 10.96.0.77: provided IP is already allocated"#;
    api.check(post(services, &with("b", "10.96.0.77")), 422, json!({"message": taken})).await;
}

#[tokio::test]
async fn deprecated_fields_and_values_cause_warnings() {
    let api = TestApi::new().await;
    let annotated = |name: &str, object: Value| {
        let mut object = object;
        object["metadata"] = json!({"annotations": {name: "x"}});
        object
    };
    let class = "volume.beta.kubernetes.io/storage-class";
    let is_field =
        format!("metadata.annotations[{class}]: deprecated since v1.8; use \"storageClassName\" attribute instead");
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1500m"}}}});
    let whole = "spec.resources.requests[storage]: fractional byte value \"1500m\" is invalid, must be an integer";
    let both = [is_field.as_str(), whole];
    let path = "/api/v1/namespaces/default/persistentvolumeclaims";
    check(create_and_label(&api, path, "a", annotated(class, claim)).await, &both, &both);
    let volume = json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Recycle", "hostPath": {"path": "/x"}}});
    let recycle = "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
    let both = [is_field.as_str(), recycle];
    check(create_and_label(&api, "/api/v1/persistentvolumes", "a", annotated(class, volume)).await, &both, &both);
    let rule = json!({"host": "a.example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}});
    let ingress = annotated("kubernetes.io/ingress.class", json!({"spec": {"rules": [rule]}}));
    let path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let old = "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead";
    check(create_and_label(&api, path, "a", ingress).await, &[old], &[]);
    let mountable = "kubernetes.io/enforce-mountable-secrets";
    let separate = format!(
        "metadata.annotations[{mountable}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
    );
    let path = "/api/v1/namespaces/default/serviceaccounts";
    check(create_and_label(&api, path, "a", annotated(mountable, json!({}))).await, &[&separate], &[]);
    let class = json!({"handler": "h", "scheduling": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}});
    let at = format!("scheduling.nodeSelector: {DEPRECATED_LABEL}");
    check(create_and_label(&api, "/apis/node.k8s.io/v1/runtimeclasses", "a", class).await, &[&at], &[&at]);
    let topology = json!({"matchLabelExpressions": [{"key": "beta.kubernetes.io/os", "values": ["linux"]}]});
    let class = json!({"provisioner": "p.example.com", "allowedTopologies": [topology]});
    let at = format!("allowedTopologies[0].matchLabelExpressions[0]: {DEPRECATED_LABEL}");
    check(create_and_label(&api, "/apis/storage.k8s.io/v1/storageclasses", "a", class).await, &[&at], &[&at]);
    let pair = json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "", "tls.key": ""}});
    let none = "tls: failed to find any PEM data in certificate input";
    check(create_and_label(&api, "/api/v1/namespaces/default/secrets", "a", pair).await, &[none], &[none]);
}

#[tokio::test]
async fn duplicate_owner_reference_causes_a_warning() {
    let api = TestApi::new().await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"});
    let twice = json!({"metadata": {"name": "c", "ownerReferences": [owner, owner]}});
    let message = |when: &str| {
        warning_header(&format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: u"
        ))
    };
    let once = json!({"metadata": {"ownerReferences": [owner]}});
    let one = format!("{CONFIG_MAPS}/c");
    assert_eq!(api.check(post(CONFIG_MAPS, &twice), 201, once.clone()).await.warnings(), [message("")]);
    assert_eq!(api.check(put(&one, &twice), 200, once.clone()).await.warnings(), [message("")]);
    let patched = api.check(merge_patch(&one, &twice), 200, once).await;
    assert_eq!(patched.warnings(), [message(" after mutating admission happens")]);
}
