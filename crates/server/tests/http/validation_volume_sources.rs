//! Validation of volume sources, devices and resource claims.

use crate::{
    common::TestApi,
    validation::{check, check_spec},
};
use serde_json::{Value, json};

async fn check_volume(source: Value, causes: &[(&str, &str, &str)]) {
    let mut volume = json!({"name": "v"});
    source.as_object().unwrap().iter().for_each(|(kind, value)| volume[kind] = value.clone());
    let causes: Vec<(String, &str, &str)> =
        causes.iter().map(|(f, r, m)| (format!("spec.volumes[0].{f}"), *r, *m)).collect();
    let causes: Vec<(&str, &str, &str)> = causes.iter().map(|(f, r, m)| (f.as_str(), *r, *m)).collect();
    check_spec(json!({"volumes": [volume]}), &causes).await;
}

async fn check_container(spec: Value, container: Value, causes: &[(&str, &str, &str)]) {
    let mut spec = spec;
    spec["containers"] = json!([{"name": "c", "image": "i"}]);
    container.as_object().unwrap().iter().for_each(|(k, v)| spec["containers"][0][k] = v.clone());
    check_spec(spec, causes).await;
}

const REQUIRED: &str = "Required value";

#[tokio::test]
async fn volume_sources_are_validated() {
    let subdomain = "Invalid value: \"\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    check_volume(
        json!({"nfs": {}}),
        &[
            ("nfs.server", "Required", REQUIRED),
            ("nfs.path", "Required", REQUIRED),
            ("nfs.path", "Invalid", "Invalid value: \"\": must be an absolute path"),
        ],
    )
    .await;
    check_volume(json!({"nfs": {"server": "s", "path": "/x"}}), &[]).await;
    check_volume(
        json!({"gcePersistentDisk": {"pdName": "", "partition": 256}, "emptyDir": null, "gitRepo": null}),
        &[
            ("persistentDisk.pdName", "Required", REQUIRED),
            ("persistentDisk.partition", "Invalid", "Invalid value: 256: must be between 1 and 255, inclusive"),
        ],
    )
    .await;
    check_volume(json!({"image": {}}), &[("image.reference", "Required", REQUIRED)]).await;
    check_volume(
        json!({"image": {"reference": "i", "pullPolicy": "Maybe"}}),
        &[(
            "image.pullPolicy",
            "NotSupported",
            "Unsupported value: \"Maybe\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        )],
    )
    .await;
    check_volume(json!({"csi": {}}), &[("csi.driver", "Required", REQUIRED), ("csi.driver", "Invalid", subdomain)])
        .await;
    check_volume(
        json!({"csi": {"driver": "d.io", "nodePublishSecretRef": {}}}),
        &[("csi.nodePublishSecretRef.name", "Required", REQUIRED)],
    )
    .await;
    check_volume(json!({"ephemeral": {}}), &[("ephemeral.volumeClaimTemplate", "Required", REQUIRED)]).await;
    check_volume(
        json!({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
        &[
            (
                "ephemeral.volumeClaimTemplate.spec.accessModes",
                "Required",
                "Required value: at least 1 access mode is required",
            ),
            ("ephemeral.volumeClaimTemplate.spec.resources[storage]", "Required", REQUIRED),
        ],
    )
    .await;
}

#[tokio::test]
async fn ephemeral_volume_claim_templates_are_validated() {
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}});
    let created = |name: &str| json!({"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": claim}}});
    let other = |claim: &str| json!({"name": "x", "persistentVolumeClaim": {"claimName": claim}});
    let named = |pod: &str, volumes: Value| {
        let pod = pod.to_owned();
        move |p: &mut Value| {
            p["metadata"]["name"] = json!(pod);
            p["spec"]["volumes"] = volumes.clone();
        }
    };
    let api = TestApi::new().await;
    let reason = "Invalid value: \"v-d\": must not reference a PVC that gets created for an ephemeral volume";
    let at = "spec.volumes[1].persistentVolumeClaim.claimName";
    check(&api, named("v", json!([created("d"), other("v-d")])), &[(at, "Invalid", reason)]).await;
    check(&api, named("w", json!([created("d"), other("v-d")])), &[]).await;
    let pod = "p".repeat(252);
    let reason = format!("Invalid value: \"d\": PVC name \"{pod}-d\": must be no more than 253 bytes");
    check(&api, named(&pod, json!([created("d")])), &[("spec.volumes[0].name", "Invalid", &reason)]).await;
}

#[tokio::test]
async fn projected_volume_source_has_exactly_one_kind() {
    let secret = json!({"name": "s", "items": [{"key": "a", "path": "p"}]});
    let labels = json!({"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.labels"}}]});
    check_volume(
        json!({"projected": {"sources": [{"secret": secret, "configMap": {"name": "m"}}]}}),
        &[("projected.sources[0]", "Forbidden", "Forbidden: may not specify more than 1 volume type per source")],
    )
    .await;
    check_volume(
        json!({"projected": {"sources": [{"secret": secret}, {"downwardAPI": labels}]}}),
        &[("projected", "Invalid", "Invalid value: \"p\": conflicting duplicate paths")],
    )
    .await;
    check_volume(
        json!({"projected": {"sources": [{"serviceAccountToken": {"path": "", "expirationSeconds": 8_589_934_592_i64}}]}}),
        &[
            (
                "projected.sources[0].serviceAccountToken.expirationSeconds",
                "Invalid",
                "Invalid value: 8589934592: may not specify a duration larger than 2^32 seconds",
            ),
            ("projected.path", "Required", REQUIRED),
        ],
    )
    .await;
    check_volume(
        json!({"projected": {"sources": [{"clusterTrustBundle": {"path": "p"}}]}}),
        &[(
            "projected.sources[0].clusterTrustBundle",
            "Required",
            "Required value: either name or signerName must be specified",
        )],
    )
    .await;
}

#[tokio::test]
async fn volume_devices_must_reference_pvcs() {
    let volumes =
        json!({"volumes": [{"name": "e", "emptyDir": {}}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}]});
    let path = |field: &str| format!("spec.containers[0].volumeDevices[0].{field}");
    for (device, field, reason, message) in [
        (
            json!({"name": "e", "devicePath": "/d"}),
            "name",
            "Invalid",
            "Invalid value: \"e\": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
        ),
        (json!({"name": "x", "devicePath": "/d"}), "name", "NotFound", "Not found: \"x\""),
        (json!({"name": "p", "devicePath": ""}), "devicePath", "Required", REQUIRED),
        (
            json!({"name": "p", "devicePath": "/a/../b"}),
            "devicePath",
            "Invalid",
            "Invalid value: \"/a/../b\": can not contain backsteps ('..')",
        ),
    ] {
        let container = json!({"volumeDevices": [device]});
        check_container(volumes.clone(), container, &[(&path(field), reason, message)]).await;
    }
    let both = json!({"volumeMounts": [{"name": "p", "mountPath": "/d"}],
        "volumeDevices": [{"name": "p", "devicePath": "/d"}]});
    check_container(
        volumes,
        both,
        &[
            (
                "spec.containers[0].volumeMounts[0].name",
                "Invalid",
                "Invalid value: \"p\": must not already exist in volumeDevices",
            ),
            (
                "spec.containers[0].volumeMounts[0].mountPath",
                "Invalid",
                "Invalid value: \"/d\": must not already exist as a path in volumeDevices",
            ),
            (&path("name"), "Invalid", "Invalid value: \"p\": must not already exist in volumeMounts"),
            (&path("devicePath"), "Invalid", "Invalid value: \"/d\": must not already exist as a path in volumeMounts"),
        ],
    )
    .await;
}

#[tokio::test]
async fn resource_claims_have_unique_names_and_one_source() {
    let claim = |name: &str| json!({"name": name, "resourceClaimName": "mine"});
    check_spec(
        json!({"resourceClaims": [claim("a"), claim("a"), {"name": ""}]}),
        &[
            ("spec.resourceClaims[1].name", "Duplicate", "Duplicate value: \"a\""),
            ("spec.resourceClaims[2].name", "Required", REQUIRED),
            (
                "spec.resourceClaims[2]",
                "Invalid",
                "Invalid value: {\"Name\":\"\",\"ResourceClaimName\":null,\"ResourceClaimTemplateName\":null}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
        ],
    )
    .await;
    let used = |name: &str| json!({"resources": {"claims": [{"name": name}]}});
    check_container(json!({"resourceClaims": [claim("a")]}), used("a"), &[]).await;
    let path = "spec.containers[0].resources.claims[0]";
    let unknown = "Not found: \"b\": must be one of the names in pod.spec.resourceClaims";
    check_container(
        json!({"resourceClaims": [claim("a")]}),
        used("b"),
        &[(path, "NotFound", &format!("{unknown}: a"))],
    )
    .await;
    check_container(json!({}), used("b"), &[(path, "NotFound", &format!("{unknown} which is empty"))]).await;
}

#[tokio::test]
async fn file_key_ref_is_validated() {
    let volumes = json!({"volumes": [{"name": "e", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/"}}]});
    let path = |field: &str| format!("spec.containers[0].env[0].valueFrom.fileKeyRef.{field}");
    for (volume, file, key, causes) in [
        ("e", "a/b.env", "KEY", vec![]),
        ("x", "a", "K", vec![("volumeName", "NotFound", "Not found: \"x\"")]),
        (
            "h",
            "a",
            "K",
            vec![("volumeName", "Invalid", "Invalid value: \"h\": referenced volume must be of type emptyDir")],
        ),
        ("e", "", "", vec![("path", "Required", REQUIRED), ("key", "Required", REQUIRED)]),
        ("e", "../a", "K", vec![("path", "Invalid", "Invalid value: \"../a\": must not contain '..'")]),
    ] {
        let source = json!({"fileKeyRef": {"volumeName": volume, "path": file, "key": key}});
        let container = json!({"env": [{"name": "V", "valueFrom": source}]});
        let causes: Vec<(String, &str, &str)> = causes.into_iter().map(|(f, r, m)| (path(f), r, m)).collect();
        let causes: Vec<(&str, &str, &str)> = causes.iter().map(|(f, r, m)| (f.as_str(), *r, *m)).collect();
        check_container(volumes.clone(), container, &causes).await;
    }
}

#[tokio::test]
async fn resource_units_are_validated() {
    let check = async |resources: Value, causes: &[(&str, &str, &str)]| {
        check_container(json!({}), json!({"resources": resources}), causes).await;
    };
    let path = |field: &str| format!("spec.containers[0].resources{field}");
    let pages = |amount: &str| json!({"limits": {"cpu": "1", "hugepages-2Mi": amount}});
    check(pages("4Mi"), &[]).await;
    let odd = "Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi";
    let (limits, requests) = (path(".limits[hugepages-2Mi]"), path(".requests[hugepages-2Mi]"));
    check(pages("3Mi"), &[(&limits, "Invalid", odd), (&requests, "Invalid", odd)]).await;
    let alone = json!({"limits": {"hugepages-2Mi": "2Mi"}});
    check(alone, &[(&path(""), "Forbidden", "Forbidden: HugePages require cpu or memory")]).await;
    let name = "requests.example.com/x";
    let expected_message = format!("Invalid value: \"{name}\": doesn't follow extended resource name standard");
    let (limits, requests) = (path(&format!(".limits[{name}]")), path(&format!(".requests[{name}]")));
    check(
        json!({"limits": {name: "1"}}),
        &[(&limits, "Invalid", &expected_message), (&requests, "Invalid", &expected_message)],
    )
    .await;
    let variable = |resource: &str, divisor: &str| json!({"env": [{"name": "V", "valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": divisor}}}]});
    let path = "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor";
    check_container(json!({}), variable("limits.cpu", "1m"), &[]).await;
    check_container(json!({}), variable("limits.memory", "1Mi"), &[]).await;
    for (resource, divisor, expected_message) in [
        ("limits.cpu", "10m", "only divisor's values 1m and 1 are supported with the cpu resource"),
        (
            "requests.memory",
            "2Mi",
            "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource",
        ),
    ] {
        let message = format!("Invalid value: \"{resource}\": {expected_message}");
        check_container(json!({}), variable(resource, divisor), &[(path, "Invalid", &message)]).await;
    }
}
