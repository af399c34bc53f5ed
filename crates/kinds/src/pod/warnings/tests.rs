use super::*;
use serde_json::json;

/// Checks the warnings of a Pod with a spec, and the number of warnings of a template with it.
#[track_caller]
fn check(spec: Value, expected: &[&str]) {
    let object = json!({"metadata": {"name": "p"}, "spec": spec});
    assert_eq!(pod_warnings(&object), expected);
    let of_template: Vec<String> = template_warnings(&object, &FieldPath::new("spec").child("template"));
    assert_eq!(of_template.len(), expected.len(), "{of_template:?}");
}

#[test]
fn pod_name_that_is_no_dns_label_is_warned_of() {
    let detail = pod_warnings(&json!({"metadata": {"name": "a.b"}, "spec": {}}));
    let expected = "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [";
    assert!(matches!(detail.as_slice(), [one] if one.starts_with(expected)), "{detail:?}");
}

#[test]
fn deprecated_node_labels_are_warned_of() {
    let term = json!({"matchExpressions": [{"key": "a"}, {"key": "beta.kubernetes.io/os", "values": ["-1"]}]});
    let wrong = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let preferred =
        "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[1]";
    check(
        json!({
            "nodeSelector": {"beta.kubernetes.io/arch": "amd64"},
            "topologySpreadConstraints": [
                {"topologyKey": "failure-domain.beta.kubernetes.io/zone", "labelSelector": {}},
                {"topologyKey": "a"},
            ],
            "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"preference": term}],
            }},
        }),
        &[
            "spec.nodeSelector[beta.kubernetes.io/arch]: deprecated since v1.14; use \"kubernetes.io/arch\" instead",
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].key: beta.kubernetes.io/os is deprecated since v1.14; use \"kubernetes.io/os\" instead",
            &format!(
                "{preferred}.key: beta.kubernetes.io/os is deprecated since v1.14; use \"kubernetes.io/os\" instead"
            ),
            &format!("{preferred}.values[0]: -1 is invalid, {wrong}"),
            "spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
            "spec.topologySpreadConstraints[1].labelSelector: a null labelSelector results in matching no pod",
        ],
    );
}

#[test]
fn null_label_selectors_are_warned_of() {
    let terms = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}}, {}],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {"labelSelector": {}}}, {"podAffinityTerm": {}}],
    });
    let none = "labelSelector: a null labelSelector results in matching no pod";
    let expected = ["podAffinity", "podAntiAffinity"].map(|kind| {
        let at = format!("spec.affinity.{kind}");
        [
            format!("{at}.requiredDuringSchedulingIgnoredDuringExecution[1].{none}"),
            format!("{at}.preferredDuringSchedulingIgnoredDuringExecution[1].podAffinityTerm.{none}"),
        ]
    });
    let expected: Vec<&str> = expected.iter().flatten().map(String::as_str).collect();
    check(json!({"affinity": {"podAffinity": terms, "podAntiAffinity": terms}}), &expected);
}

#[test]
fn non_functional_annotations_are_warned_of() {
    let annotations = json!({
        "scheduler.alpha.kubernetes.io/critical-pod": "", SECCOMP_POD_ANNOTATION: "a", [SECCOMP_ANNOTATION_PREFIX, "c"].concat(): "a",
        [APPARMOR_ANNOTATION_PREFIX, "c"].concat(): "a", "other": "",
    });
    let object = |spec: Value| json!({"metadata": {"name": "p", "annotations": annotations}, "spec": spec});
    let plain = object(json!({"containers": [{"name": "c"}]}));
    let critical = "metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; use the \"priorityClassName\" field instead";
    let seccomp = [SECCOMP_POD_ANNOTATION, "container.seccomp.security.alpha.kubernetes.io/c"].map(|name| {
        format!("metadata.annotations[{name}]: non-functional in v1.27+; use the \"seccompProfile\" field instead")
    });
    assert_eq!(pod_warnings(&plain), [critical, &seccomp[0], &seccomp[1]]);
    let apparmor = "template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the \"appArmorProfile\" field instead";
    let of_template = template_warnings(&plain, &FieldPath::new("template"));
    assert_eq!((of_template.len(), of_template[3].as_str()), (4, apparmor));
    let fields = json!({"seccompProfile": {}, "appArmorProfile": {}});
    let meant = object(json!({"securityContext": fields, "containers": [{"name": "c", "securityContext": fields}]}));
    assert_eq!(template_warnings(&meant, &FieldPath::default()), [critical]);
}

#[test]
fn duplicate_names_and_addresses_are_warned_of() {
    check(
        json!({
            "hostAliases": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}, {"ip": "::ffff:1.2.3.4"}],
            "imagePullSecrets": [{"name": "a"}, {"name": "a"}, {"name": ""}],
            "dnsConfig": {"nameservers": ["1.2.3.4", "05.06.07.08"]},
        }),
        &[
            "spec.hostAliases[1].ip: duplicate ip \"10.0.0.1\"",
            "spec.hostAliases[2].ip: non-standard IP address \"::ffff:1.2.3.4\" will be considered invalid in a future Kubernetes release: use \"1.2.3.4\"",
            "spec.imagePullSecrets[1].name: duplicate name \"a\"",
            "spec.imagePullSecrets[2].name: invalid empty name \"\"",
            "spec.dnsConfig.nameservers[1]: non-standard IP address \"05.06.07.08\" will be considered invalid in a future Kubernetes release: use \"5.6.7.8\"",
        ],
    );
}

#[test]
fn fractional_bytes_are_warned_of() {
    let amounts = json!({"memory": "4m", "cpu": "4m", "ephemeral-storage": "1"});
    let claim = json!({"spec": {"resources": {"requests": {"storage": "200m"}}}});
    check(
        json!({
            "overhead": amounts,
            "containers": [{"resources": {"limits": amounts, "requests": amounts}}],
            "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": claim}}],
        }),
        &[
            "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: fractional byte value \"200m\" is invalid, must be an integer",
            "spec.overhead[memory]: fractional byte value \"4m\" is invalid, must be an integer",
            "spec.containers[0].resources.limits[memory]: fractional byte value \"4m\" is invalid, must be an integer",
            "spec.containers[0].resources.requests[memory]: fractional byte value \"4m\" is invalid, must be an integer",
        ],
    );
}

#[test]
fn duplicate_env_var_is_warned_of_unless_it_extends() {
    let env = json!([
        {"name": "a", "value": "a"}, {"name": "a", "value": "b"}, {"name": "a", "value": "$(a)"},
        {"name": "a", "valueFrom": {}}, {"name": "a", "value": "$(a) $(a)"},
    ]);
    let hides = |i: usize| {
        format!(
            "spec.containers[0].env[{i}]: hides previous definition of \"a\", which may be dropped when using apply"
        )
    };
    check(json!({"containers": [{"env": env}]}), &[&hides(1), &hides(2), &hides(3)]);
}

/// Checks the warnings of ports, each in its own container: container port, host port, host IP.
#[track_caller]
fn check_ports(ports: &[(i64, i64, &str)], expected: &[&str]) {
    let container = |(port, host, ip): &(i64, i64, &str)| json!({"ports": [{"containerPort": port, "hostPort": host, "hostIP": ip, "protocol": "UDP"}]});
    check(json!({"containers": ports.iter().map(container).collect::<Vec<_>>()}), expected);
}

#[test]
fn duplicate_and_overlapping_ports_are_warned_of() {
    check_ports(&[(80, 0, ""), (81, 0, "")], &[]);
    check_ports(&[(80, 80, ""), (80, 81, "")], &[]);
    check_ports(&[(80, 80, "10.0.0.1"), (80, 80, "10.0.0.2")], &[]);
    let with =
        |how: &str| format!("spec.containers[1].ports[0]: {how} port definition with spec.containers[0].ports[0]");
    check_ports(&[(80, 0, ""), (80, 0, "")], &[&with("duplicate")]);
    check_ports(&[(80, 80, "10.0.0.1"), (80, 80, "10.0.0.1")], &[&with("duplicate")]);
    check_ports(&[(80, 80, "10.0.0.1"), (80, 80, "")], &[&with("dangerously ambiguous")]);
    check_ports(
        &[(80, 80, "10.0.0.1"), (80, 0, "10.0.0.1")],
        &[
            "spec.containers[1].ports[0]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:UDP HostIP:10.0.0.1}",
            &with("overlapping"),
        ],
    );
}

#[test]
fn duplicate_port_names_of_concurrent_containers_are_warned_of() {
    let port = |number: i64| json!([{"name": "test", "containerPort": number, "protocol": "TCP"}]);
    check(
        json!({"initContainers": [{"ports": port(1)}, {"ports": port(2), "restartPolicy": "Always"}], "containers": [{"ports": port(3)}]}),
        &[
            "spec.containers[0].ports[0]: duplicate port name \"test\" with spec.initContainers[1].ports[0], services and probes that select ports by name will use spec.initContainers[1].ports[0]",
        ],
    );
}

#[test]
fn removed_volume_plugins_are_warned_of() {
    check(
        json!({"volumes": [{"name": "a", "gitRepo": {}}, {"name": "b", "storageos": {}}, {"name": "c", "emptyDir": {}}]}),
        &[
            "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
            "spec.volumes[1].storageOS: deprecated in v1.22, non-functional in v1.25+",
        ],
    );
}

#[test]
fn overlapping_volume_paths_are_warned_of() {
    let items = |paths: &[&str]| json!(paths.iter().map(|path| json!({"path": path})).collect::<Vec<_>>());
    check(
        json!({"volumes": [
            {"name": "a", "configMap": {"name": "c", "items": items(&["x", "x/", "x/y", "xy"])}},
            {"name": "b", "secret": {"secretName": "s", "items": items(&["x/y", "x"])}},
            {"name": "c", "downwardAPI": {"items": items(&["x", "y"])}},
            {"name": "d", "projected": {"sources": [
                {"clusterTrustBundle": {"signerName": "t", "path": "x/x"}},
                {"downwardAPI": {"items": items(&["x"])}},
                {"secret": {"name": "s", "items": items(&["x"])}},
                {"serviceAccountToken": {"path": "z"}},
                {},
            ]}},
        ]}),
        &[
            "volume \"a\" (ConfigMap \"c\"): overlapping paths: \"x\" with \"x\"",
            "volume \"a\" (ConfigMap \"c\"): overlapping paths: \"x/y\" with \"x\"",
            "volume \"a\" (ConfigMap \"c\"): overlapping paths: \"x/y\" with \"x\"",
            "volume \"b\" (Secret \"s\"): overlapping paths: \"x\" with \"x/y\"",
            "volume \"d\" (Projected) has no sources provided",
            "volume \"d\" (Projected): overlapping paths: \"x\" (DownwardAPI) with \"x/x\" (ClusterTrustBundle \"t\")",
            "volume \"d\" (Projected): overlapping paths: \"x\" (Secret \"s\") with \"x/x\" (ClusterTrustBundle \"t\")",
            "volume \"d\" (Projected): overlapping paths: \"x\" (Secret \"s\") with \"x\" (DownwardAPI)",
        ],
    );
}

#[test]
fn pod_certificate_paths_are_named_in_warnings() {
    let certificate = json!({"credentialBundlePath": "a", "keyPath": "a/", "certificateChainPath": "a/b"});
    check(
        json!({"volumes": [{"name": "v", "projected": {"sources": [{"podCertificate": certificate}]}}]}),
        &[
            "volume \"v\" (Projected): overlapping paths: \"a\" (PodCertificate key) with \"a/b\" (PodCertificate chain)",
            "volume \"v\" (Projected): overlapping paths: \"a\" (PodCertificate credential bundle) with \"a/b\" (PodCertificate chain)",
            "volume \"v\" (Projected): overlapping paths: \"a\" (PodCertificate credential bundle) with \"a\" (PodCertificate key)",
        ],
    );
}
