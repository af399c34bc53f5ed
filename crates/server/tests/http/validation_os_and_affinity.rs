//! Validation of OS-specific fields, DNS, affinity and topology spread.

use crate::validation::{LABEL, check_spec};
use serde_json::{Value, json};

#[tokio::test]
async fn pod_os_specific_fields_are_validated() {
    let windows = "Forbidden: windows options cannot be set for a linux pod";
    let options = json!({"windowsOptions": {"runAsUserName": "x"}});
    check_spec(
        json!({"os": {"name": "linux"}, "securityContext": options, "containers": [{"name": "c", "image": "i", "securityContext": options}]}),
        &[
            ("spec.securityContext.windowsOptions", "Forbidden", windows),
            ("spec.containers[0].securityContext.windowsOptions", "Forbidden", windows),
        ],
    )
    .await;
    let linux = "Forbidden: cannot be set for a windows pod";
    check_spec(
        json!({"os": {"name": "windows"}, "hostPID": true, "shareProcessNamespace": true,
            "securityContext": {"fsGroup": 1, "seccompProfile": {"type": "RuntimeDefault"}, "sysctls": []},
            "containers": [{"name": "c", "image": "i", "securityContext": {"runAsUser": 1, "privileged": false}}]}),
        &[
            // This error does not depend on the OS.
            (
                "spec.securityContext.shareProcessNamespace",
                "Invalid",
                "Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
            ),
            ("spec.hostPID", "Forbidden", linux),
            ("spec.securityContext.seccompProfile", "Forbidden", linux),
            ("spec.securityContext.fsGroup", "Forbidden", linux),
            ("spec.shareProcessNamespace", "Forbidden", linux),
            ("spec.containers[0].securityContext.privileged", "Forbidden", linux),
            ("spec.containers[0].securityContext.runAsUser", "Forbidden", linux),
        ],
    )
    .await;
}

#[tokio::test]
async fn dns_search_paths_are_validated() {
    let searches = |list: Value| json!({"dnsConfig": {"searches": list}});
    check_spec(searches(json!(["a.b", "_sip._tcp.x", "x.y.", "."])), &[]).await;
    let message = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
    check_spec(
        searches(json!(["ok", "A_", "__x"])),
        &[
            ("spec.dnsConfig.searches[1]", "Invalid", &format!("Invalid value: \"A_\": {message}")),
            ("spec.dnsConfig.searches[2]", "Invalid", &format!("Invalid value: \"__x\": {message}")),
        ],
    )
    .await;
    let long = vec!["a".repeat(63); 32];
    let too_long = format!(
        "Invalid value: {}: must not have more than 2048 characters (including spaces) in the search list",
        json!(vec!["a".repeat(64); 32])
    );
    check_spec(searches(json!(long)), &[]).await;
    let longer = json!(vec!["a".repeat(64); 32]);
    check_spec(searches(longer), &[("spec.dnsConfig.searches", "Invalid", &too_long)]).await;
}

#[tokio::test]
async fn pod_affinity_terms_are_validated() {
    let list = "requiredDuringSchedulingIgnoredDuringExecution";
    let path = format!("spec.podAntiAffinity.{list}[0]").replace("spec.", "spec.affinity.");
    let key = "Invalid value: \"\": name part must be non-empty";
    let form = "Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    for (term, causes) in [
        (json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}), vec![]),
        (
            json!({"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}),
            vec![(
                "labelSelector.matchExpressions[0].operator",
                "Invalid",
                "Invalid value: \"Like\": not a valid selector operator",
            )],
        ),
        (
            json!({"topologyKey": "zone", "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
            vec![(
                "namespaceSelector.matchExpressions[0].values",
                "Required",
                "Required value: must be specified when `operator` is 'In' or 'NotIn'",
            )],
        ),
        (
            json!({"topologyKey": "zone", "matchLabelKeys": ["a"]}),
            vec![("matchLabelKeys", "Forbidden", "Forbidden: must not be specified when labelSelector is not set")],
        ),
        (
            json!({"topologyKey": "", "labelSelector": {}}),
            vec![
                ("topologyKey", "Required", "Required value: can not be empty"),
                ("topologyKey", "Invalid", key),
                ("topologyKey", "Invalid", form),
            ],
        ),
    ] {
        let causes: Vec<(String, &str, &str)> =
            causes.into_iter().map(|(field, reason, message)| (format!("{path}.{field}"), reason, message)).collect();
        let causes: Vec<(&str, &str, &str)> = causes.iter().map(|(f, r, m)| (f.as_str(), *r, *m)).collect();
        check_spec(json!({"affinity": {"podAntiAffinity": {list: [term]}}}), &causes).await;
    }
    let label = format!("Invalid value: \"A\": {LABEL}");
    let named = json!({"affinity": {"podAntiAffinity": {list: [{"topologyKey": "zone", "namespaces": ["A"]}]}}});
    check_spec(named, &[(&format!("{path}.namespace"), "Invalid", &label)]).await;
}

#[tokio::test]
async fn topology_spread_constraints_are_validated() {
    let constraint = |change: Value| {
        let mut c = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"});
        change.as_object().unwrap().iter().for_each(|(key, value)| c[key] = value.clone());
        c
    };
    let path = "spec.topologySpreadConstraints[0]";
    let only = "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway";
    for (change, field, reason, message) in [
        (json!({"minDomains": 1}), "minDomains", "Invalid", format!("Invalid value: 1: {only}")),
        (
            json!({"minDomains": 0, "whenUnsatisfiable": "DoNotSchedule"}),
            "minDomains",
            "Invalid",
            "Invalid value: 0: must be greater than zero".to_owned(),
        ),
        (
            json!({"nodeAffinityPolicy": "Maybe"}),
            "nodeAffinityPolicy",
            "NotSupported",
            "Unsupported value: \"Maybe\": supported values: \"Honor\", \"Ignore\"".to_owned(),
        ),
        (
            json!({"matchLabelKeys": ["a"]}),
            "matchLabelKeys",
            "Forbidden",
            "Forbidden: must not be specified when labelSelector is not set".to_owned(),
        ),
        (
            json!({"matchLabelKeys": ["a"], "labelSelector": {"matchLabels": {"a": "b"}}}),
            "matchLabelKeys[0]",
            "Invalid",
            "Invalid value: \"a\": exists in both matchLabelKeys and labelSelector".to_owned(),
        ),
    ] {
        let spec = json!({"topologySpreadConstraints": [constraint(change)]});
        check_spec(spec, &[(&format!("{path}.{field}"), reason, &message)]).await;
    }
    check_spec(
        json!({"topologySpreadConstraints": [constraint(json!({})), constraint(json!({"maxSkew": 2}))]}),
        &[(
            &format!("{path}.{{topologyKey, whenUnsatisfiable}}"),
            "Duplicate",
            "Duplicate value: \"{zone, ScheduleAnyway}\"",
        )],
    )
    .await;
}

#[tokio::test]
async fn sysctls_of_host_namespaces_are_rejected() {
    let sysctls = |name: &str| json!({"sysctls": [{"name": name, "value": "1"}]});
    let path = "spec.securityContext.sysctls[0].name";
    for (name, field, rejected) in [
        ("net.core.somaxconn", "hostNetwork", true),
        ("net/core/somaxconn", "hostNetwork", true),
        ("kernel.shmmax", "hostIPC", true),
        ("kernel.shmmax", "hostNetwork", false),
        ("net.core.somaxconn", "hostIPC", false),
    ] {
        let message = format!("Invalid value: \"{name}\": may not be specified when '{field}' is true");
        let causes = [(path, "Invalid", message.as_str())];
        let causes = if rejected { &causes[..] } else { &[] };
        check_spec(json!({field: true, "securityContext": sysctls(name)}), causes).await;
    }
    check_spec(
        json!({"securityContext": {"seLinuxChangePolicy": "MountOption"}}),
        &[(
            "spec.securityContext.seLinuxChangePolicy",
            "NotSupported",
            "Unsupported value: \"MountOption\": supported values: \"Recursive\"",
        )],
    )
    .await;
}

#[tokio::test]
async fn node_affinity_match_fields_are_validated() {
    let list = "requiredDuringSchedulingIgnoredDuringExecution";
    let path = format!("spec.affinity.nodeAffinity.{list}.nodeSelectorTerms[0]");
    for (term, field, reason, message) in [
        (
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}),
            "matchFields[0].values",
            "Required",
            "Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        ),
        (
            json!({"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}),
            "matchFields[0].operator",
            "Invalid",
            "Invalid value: \"Exists\": not a valid selector operator",
        ),
        (
            json!({"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["a"]}]}),
            "matchFields[0].key",
            "Invalid",
            "Invalid value: \"metadata.uid\": not a valid field selector key",
        ),
    ] {
        let affinity = json!({"nodeAffinity": {list: {"nodeSelectorTerms": [term]}}});
        check_spec(json!({"affinity": affinity}), &[(&format!("{path}.{field}"), reason, message)]).await;
    }
    let odd = json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["a b"]}]});
    let expected_message = "Invalid value: \"a b\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let required = json!({"affinity": {"nodeAffinity": {list: {"nodeSelectorTerms": [odd]}}}});
    check_spec(required, &[(&format!("{path}.matchExpressions[0].values[0]"), "Invalid", expected_message)]).await;
    let preferred = json!([{"weight": 1, "preference": odd}]);
    check_spec(
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}),
        &[],
    )
    .await;
}
