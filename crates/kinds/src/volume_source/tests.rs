use super::*;
use crate::FieldPath;

/// Checks the errors of a volume's source.
#[track_caller]
fn check_owner(owner: Owner<'_>, volume: Value, expected: &[&str]) {
    let (path, mut errors) = (FieldPath::new("v"), FieldErrors::default());
    let cursor = FieldCursor::new(&volume, &path);
    if let Some((kind, source)) = single_source(&cursor, owner, &mut errors) {
        validate_source(kind, &source, owner, &cursor, &mut errors);
    }
    let messages: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    assert_eq!(messages, expected, "{volume}");
}

#[track_caller]
fn check_pod(volume: Value, expected: &[&str]) {
    check_owner(Owner::Pod("data"), volume, expected);
}

#[track_caller]
fn check_volume(volume: Value, expected: &[&str]) {
    check_owner(Owner::PersistentVolume("pv"), volume, expected);
}

#[track_caller]
fn check_both(volume: Value, expected: &[&str]) {
    check_pod(volume.clone(), expected);
    check_volume(volume, expected);
}

#[test]
fn first_source_in_upstream_order_is_the_only_one_allowed() {
    check_both(json!({}), &["v: Required value: must specify a volume type"]);
    let detail = "Forbidden: may not specify more than 1 volume type";
    check_pod(json!({"configMap": {}, "emptyDir": {}}), &[&format!("v.configMap: {detail}")]);
    check_pod(
        json!({"cephfs": {}, "downwardAPI": {}, "nfs": {"server": "s", "path": "/"}}),
        &[&format!("v.cephFS: {detail}"), &format!("v.downwarAPI: {detail}")],
    );
    check_volume(json!({"csi": {}, "local": {"path": "/d"}}), &[&format!("v.csi: {detail}")]);
}

#[test]
fn required_fields_of_sources_are_validated() {
    for (kind, path, fields) in [
        ("gitRepo", "gitRepo", &["repository"][..]),
        ("gcePersistentDisk", "persistentDisk", &["pdName"]),
        ("awsElasticBlockStore", "awsElasticBlockStore", &["volumeID"]),
        ("glusterfs", "glusterfs", &["endpoints", "path"]),
        ("rbd", "rbd", &["monitors", "image"]),
        ("cinder", "cinder", &["volumeID"]),
        ("cephfs", "cephfs", &["monitors"]),
        ("flexVolume", "flexVolume", &["driver"]),
        ("azureFile", "azureFile", &["secretName", "shareName"]),
        ("vsphereVolume", "vsphereVolume", &["volumePath"]),
        ("photonPersistentDisk", "photonPersistentDisk", &["pdID"]),
        ("portworxVolume", "portworxVolume", &["volumeID"]),
        ("azureDisk", "azureDisk", &["diskName", "diskURI"]),
        ("scaleIO", "scaleIO", &["gateway", "system", "volumeName"]),
        ("storageos", "storageos", &["volumeName"]),
        ("iscsi", "iscsi", &["targetPortal", "iqn"]),
        ("hostPath", "hostPath", &["path"]),
    ] {
        let messages: Vec<String> = fields.iter().map(|field| format!("v.{path}.{field}: Required value")).collect();
        check_pod(json!({kind: {}}), &messages.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let disk = |partition: i64| json!({"awsElasticBlockStore": {"volumeID": "x", "partition": partition}});
    check_both(disk(0), &[]);
    check_both(
        disk(-1),
        &["v.awsElasticBlockStore.partition: Invalid value: -1: must be between 1 and 255, inclusive"],
    );
}

#[test]
fn paths_with_backsteps_are_rejected() {
    check_pod(
        json!({"gitRepo": {"repository": "r", "directory": "/a/.."}}),
        &[
            "v.gitRepo.directory: Invalid value: \"/a/..\": must be a relative path",
            "v.gitRepo.directory: Invalid value: \"/a/..\": must not contain '..'",
        ],
    );
    check_volume(json!({"local": {"path": "../d"}}), &["v.local.path: Invalid value: \"../d\": must not contain '..'"]);
    check_both(json!({"hostPath": {"path": "", "type": "Pipe"}}), &["v.hostPath.path: Required value"]);
    check_both(
        json!({"nfs": {"server": "s"}}),
        &["v.nfs.path: Required value", "v.nfs.path: Invalid value: \"\": must be an absolute path"],
    );
}

#[test]
fn persistent_volume_secrets_need_namespace() {
    let cinder = json!({"cinder": {"volumeID": "x", "secretRef": {}}});
    check_pod(cinder.clone(), &["v.cinder.secretRef.name: Required value"]);
    check_volume(cinder, &["v.cinder.secretRef.name: Required value", "v.cinder.secretRef.namespace: Required value"]);
    let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    check_both(
        json!({"storageos": {"volumeName": "A", "volumeNamespace": "n"}}),
        &[&format!("v.storageos.volumeName: Invalid value: \"A\": {label}")],
    );
    let file = json!({"azureFile": {"secretName": "s", "shareName": "s", "secretNamespace": ""}});
    check_volume(file, &["v.azureFile.secretNamespace: Required value"]);
    let glusterfs =
        |namespace: &str| json!({"glusterfs": {"endpoints": "e", "path": "p", "endpointsNamespace": namespace}});
    check_volume(glusterfs("x"), &[]);
    check_volume(
        glusterfs(""),
        &[
            "v.glusterfs.endpointsNamespace: Invalid value: \"\": if the endpointnamespace is set, it must be a valid namespace name",
        ],
    );
}

#[test]
fn iscsi_target_name_format_is_validated() {
    let disk = |iqn: &str| json!({"iscsi": {"targetPortal": "10.0.0.1", "iqn": iqn}});
    for iqn in [
        "iqn.2001-04.com.example:storage.disk1",
        "iqn.x.iqn.2001-04.com.example:a:b",
        "eui.02004567A425678D",
        "naa.60004567BA64678123456789ABCDEF01",
    ] {
        check_both(disk(iqn), &[]);
    }
    for iqn in ["iqn.2001-04.com.example", "iqn.2001-4.com:a", "iqn.2001-04.com:a b", "eui.0200", "naa"] {
        check_both(disk(iqn), &[&format!("v.iscsi.iqn: Invalid value: {iqn:?}: must be valid format")]);
    }
    check_pod(
        disk("disk"),
        &["v.iscsi.iqn: Invalid value: \"disk\": must be valid format starting with iqn, eui, or naa"],
    );
    check_volume(disk("disk"), &["v.iscsi.iqn: Invalid value: \"disk\": must be valid format"]);
}

#[test]
fn iscsi_initiator_and_secret_are_validated() {
    let mut disk = json!({"iscsi": {"targetPortal": "p", "iqn": "eui.02004567A425678D", "lun": 256}});
    disk["iscsi"]["chapAuthSession"] = json!(true);
    check_both(
        disk.clone(),
        &["v.iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive", "v.iscsi.secretRef: Required value"],
    );
    disk["iscsi"]["secretRef"] = json!({});
    disk["iscsi"]["lun"] = json!(0);
    check_pod(disk.clone(), &[]);
    check_volume(disk.clone(), &["v.iscsi.secretRef.name: Required value"]);
    disk["iscsi"]["secretRef"] = json!({"name": "s"});
    disk["iscsi"]["targetPortal"] = json!("p".repeat(62));
    disk["iscsi"]["initiatorName"] = json!("eui");
    let long = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
    let wrong = "v.iscsi.initiatorname: Invalid value: \"eui\": must be valid format";
    check_pod(disk.clone(), &[&format!("v.name: Invalid value: \"data\": {long}"), wrong]);
    let portal = "p".repeat(62);
    check_volume(disk, &[&format!("v.iscsi.targetportal: Invalid value: {portal:?}: {long}"), wrong]);
}

#[test]
fn flocker_and_fibre_channel_have_exactly_one_identifier() {
    check_both(json!({"flocker": {}}), &["v.flocker: Required value: one of datasetName and datasetUUID is required"]);
    check_both(
        json!({"flocker": {"datasetName": "a/b", "datasetUUID": "u"}}),
        &[
            "v.flocker: Invalid value: \"resource\": datasetName and datasetUUID can not be specified simultaneously",
            "v.flocker.datasetName: Invalid value: \"a/b\": must not contain '/'",
        ],
    );
    check_both(
        json!({"fc": {}}),
        &["v.fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"],
    );
    check_both(
        json!({"fc": {"targetWWNs": ["a"], "wwids": ["b"]}}),
        &[
            "v.fc.targetWWNs: Invalid value: [\"a\"]: targetWWNs and wwids can not be specified simultaneously",
            "v.fc.lun: Required value: lun is required if targetWWNs is specified",
        ],
    );
    check_both(
        json!({"fc": {"targetWWNs": ["a"], "lun": 256}}),
        &["v.fc.lun: Invalid value: 256: must be between 0 and 255, inclusive"],
    );
    check_both(json!({"fc": {"wwids": ["b"]}}), &[]);
}

#[test]
fn quobyte_registry_is_host_port_pairs() {
    let registry = |registry: &str| json!({"quobyte": {"registry": registry, "volume": "v"}});
    for right in ["h:1", "h:1,[::1]:2", ":1", "h:"] {
        check_both(registry(right), &[]);
    }
    let detail = "must be a host:port pair or multiple pairs separated by commas";
    for wrong in ["h", "::1:2", "[::1]", "[::1]2", "h]:1"] {
        check_both(registry(wrong), &[&format!("v.quobyte.registry: Invalid value: {wrong:?}: {detail}")]);
    }
    check_both(
        json!({"quobyte": {}}),
        &[&format!("v.quobyte.registry: Required value: {detail}"), "v.quobyte.volume: Required value"],
    );
    check_both(
        json!({"quobyte": {"registry": "h", "volume": "v", "tenant": "t".repeat(65)}}),
        &["v.quobyte.tenant: Required value: must be a UUID and may not exceed a length of 64 characters"],
    );
}

#[test]
fn flex_volume_options_and_azure_disks_are_validated() {
    let options = json!({"a.kubernetes.io/b": "", "K8s.io": "", "mykubernetes.io": "", "x/k8s.io": ""});
    let detail = "kubernetes.io and k8s.io namespaces are reserved";
    check_both(
        json!({"flexVolume": {"driver": "d", "options": options}}),
        &[
            &format!("v.flexVolume.options[K8s.io]: Invalid value: \"K8s.io\": {detail}"),
            &format!("v.flexVolume.options[a.kubernetes.io/b]: Invalid value: \"a.kubernetes.io/b\": {detail}"),
        ],
    );
    let disk = |kind: &str, uri: &str| json!({"azureDisk": {"diskName": "d", "kind": kind, "diskURI": uri}});
    check_both(disk("Shared", "https://a"), &[]);
    check_both(disk("Managed", "/subscriptions/a"), &[]);
    check_both(
        disk("Managed", "https://a"),
        &[
            "v.azureDisk.diskURI: Unsupported value: \"https://a\": supported values: \"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}\"",
        ],
    );
    check_both(
        disk("Own", "https://a"),
        &["v.azureDisk.kind: Unsupported value: \"Own\": supported values: \"Dedicated\", \"Managed\", \"Shared\""],
    );
}
