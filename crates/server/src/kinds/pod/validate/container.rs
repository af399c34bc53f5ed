//! Containers, and what those of all kinds have in common (`validateContainers`, `validateInitContainers`).

use super::{
    claims, devices, ephemeral, items, mounts, one_of, port, probe, required_label, resources, restart, security,
    stop_signal, text, volume::Volumes,
};
use crate::kinds::{FieldErrors, FieldPath};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const NOT_FOR_INIT: &str = "may not be set for init containers without restartPolicy=Always";
/// Fields of the Pod that an environment variable can show.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Divisors of what is counted in bytes.
const SIZES: &str = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";
const ENV_RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub(super) fn all(spec: &Value, path: &FieldPath, volumes: &Volumes, errors: &mut FieldErrors) {
    let grace = spec["terminationGracePeriodSeconds"].as_i64();
    let (mut names, claims) = (BTreeSet::new(), claims::names(spec));
    if items(spec, "containers").next().is_none() {
        errors.required(&path.child("containers"), "");
    }
    for (i, c) in items(spec, "containers").enumerate() {
        let path = path.child("containers").index(i);
        common(c, &path, volumes, &claims, spec, errors);
        unique(&mut names, c, &path, errors);
        probe::all(c, grace, &path, errors);
        stop_signal::of(c, spec, &path, errors);
        restart::policy(c, &path, errors);
    }
    host_ports(items(spec, "containers"), &path.child("containers"), errors);
    for (i, c) in items(spec, "initContainers").enumerate() {
        let at = path.child("initContainers").index(i);
        common(c, &at, volumes, &claims, spec, errors);
        restart::policy(c, &at, errors);
        unique(&mut names, c, &at, errors);
        host_ports(std::iter::once(c), &path.child("initContainers"), errors);
        if c["restartPolicy"] == "Always" {
            probe::all(c, grace, &at, errors);
            stop_signal::of(c, spec, &at, errors);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if c.get(field).is_some() {
                errors.forbidden(&at.child(field), NOT_FOR_INIT);
            }
        }
    }
    ephemeral::all(spec, path, volumes, &mut names, errors);
}

pub(super) fn unique(names: &mut BTreeSet<String>, c: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !names.insert(text(c, "name").to_owned()) && !text(c, "name").is_empty() {
        errors.duplicate(&path.child("name"), &c["name"]);
    }
}

/// What holds for every container (`validateContainerCommon`).
pub(super) fn common(
    c: &Value,
    path: &FieldPath,
    volumes: &Volumes,
    claims: &claims::Names<'_>,
    spec: &Value,
    errors: &mut FieldErrors,
) {
    required_label(&c["name"], &path.child("name"), errors);
    let image = text(c, "image");
    if image.is_empty() {
        errors.required(&path.child("image"), "");
    } else if image.trim() != image {
        errors.invalid(&path.child("image"), &c["image"], "must not have leading or trailing whitespace");
    }
    one_of(c, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"], path, errors);
    ports(c, &path.child("ports"), spec["hostNetwork"] == json!(true), errors);
    for (i, e) in items(c, "env").enumerate() {
        env(e, &path.child("env").index(i), volumes, errors);
    }
    env_from(c, &path.child("envFrom"), errors);
    mounts::all(c, &path.child("volumeMounts"), volumes, errors);
    devices::all(c, &path.child("volumeDevices"), volumes, errors);
    one_of(c, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], path, errors);
    resources::requirements(&c["resources"], &path.child("resources"), errors);
    claims::of_container(c, claims, &path.child("resources").child("claims"), errors);
    resources::resize_policy(c, &path.child("resizePolicy"), text(spec, "restartPolicy"), errors);
    security::of_container(c, spec, path, errors);
}

fn ports(c: &Value, path: &FieldPath, host_network: bool, errors: &mut FieldErrors) {
    let mut names = BTreeSet::new();
    for (i, p) in items(c, "ports").enumerate() {
        let path = path.index(i);
        let name = text(p, "name");
        if !name.is_empty() {
            let wrong = api::names::port_name(name);
            wrong.iter().for_each(|e| errors.invalid(&path.child("name"), &p["name"], e));
            if wrong.is_empty() && !names.insert(name) {
                errors.duplicate(&path.child("name"), &p["name"]);
            }
        }
        match p["containerPort"].as_i64().unwrap_or(0) {
            0 => errors.required(&path.child("containerPort"), ""),
            _ => port(&p["containerPort"], &path.child("containerPort"), errors),
        }
        if p["hostPort"].as_i64().unwrap_or(0) != 0 {
            port(&p["hostPort"], &path.child("hostPort"), errors);
        }
        one_of(p, "protocol", &["SCTP", "TCP", "UDP"], &path, errors);
        // A template need not say it: the Pod that is made of it gets the port as a default.
        if host_network && p.get("hostPort").is_some_and(|port| *port != p["containerPort"]) {
            let text = "must match `containerPort` when `hostNetwork` is true";
            errors.invalid(&path.child("hostPort"), &p["hostPort"], text);
        }
    }
}

/// A port of the host can be had once.
fn host_ports<'a>(containers: impl Iterator<Item = &'a Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut taken = BTreeSet::new();
    for (i, c) in containers.enumerate() {
        for (j, p) in items(c, "ports").enumerate().filter(|(_, p)| p["hostPort"].as_i64().unwrap_or(0) != 0) {
            let port = format!("{}/{}/{}", text(p, "protocol"), text(p, "hostIP"), p["hostPort"]);
            if !taken.insert(port.clone()) {
                errors.duplicate(&path.index(i).child("ports").index(j).child("hostPort"), &json!(port));
            }
        }
    }
}

fn env(e: &Value, path: &FieldPath, volumes: &Volumes, errors: &mut FieldErrors) {
    match text(e, "name") {
        "" => errors.required(&path.child("name"), ""),
        name => api::names::env_var(name).iter().for_each(|m| errors.invalid(&path.child("name"), &e["name"], m)),
    }
    let Some(from) = e.get("valueFrom") else { return };
    let path = path.child("valueFrom");
    if let Some(field) = from.get("fieldRef") {
        field_ref(field, &ENV_FIELDS, &path.child("fieldRef"), errors);
    }
    if let Some(resource) = from.get("resourceFieldRef") {
        resource_ref(resource, &path.child("resourceFieldRef"), errors);
    }
    for source in ["configMapKeyRef", "secretKeyRef"] {
        let Some(key) = from.get(source) else { continue };
        let path = path.child(source);
        super::subdomain(&key["name"], &path.child("name"), errors);
        match text(key, "key") {
            "" => errors.required(&path.child("key"), ""),
            k => api::names::config_map_key(k).iter().for_each(|m| errors.invalid(&path.child("key"), &key["key"], m)),
        }
    }
    if let Some(file) = from.get("fileKeyRef") {
        file_key(file, &path.child("fileKeyRef"), volumes, errors);
    }
    let sources = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    let count = sources.iter().filter(|s| from.get(s).is_some()).count();
    let nothing = json!("");
    if count == 0 {
        let text =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid(&path, &nothing, text);
    } else if !text(e, "value").is_empty() {
        errors.invalid(&path, &nothing, "may not be specified when `value` is not empty");
    } else if count > 1 {
        errors.invalid(&path, &nothing, "may not have more than one field specified at a time");
    }
}

/// A variable of a file that another container writes (KEP-3721).
fn file_key(file: &Value, path: &FieldPath, volumes: &Volumes, errors: &mut FieldErrors) {
    let at = path.child("volumeName");
    match (text(file, "volumeName"), volumes.get(text(file, "volumeName")).map(String::as_str)) {
        ("", _) => errors.required(&at, ""),
        (_, None) => errors.not_found(&at, &file["volumeName"]),
        (_, Some("emptyDir")) => {}
        _ => errors.invalid(&at, &file["volumeName"], "referenced volume must be of type emptyDir"),
    }
    match text(file, "path") {
        "" => errors.required(&path.child("path"), ""),
        _ => super::volume::non_reserved(&file["path"], &path.child("path"), errors),
    }
    match text(file, "key") {
        "" => errors.required(&path.child("key"), ""),
        key => api::names::env_var(key).iter().for_each(|m| errors.invalid(&path.child("key"), &file["key"], m)),
    }
}

/// A reference to a field of the Pod; `metadata.labels['x']` names one label.
pub(super) fn field_ref(field: &Value, allowed: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    let (at, name) = (path.child("fieldPath"), text(field, "fieldPath"));
    if name.is_empty() {
        return errors.required(&at, "");
    }
    if let Some((base, key)) = name.strip_suffix("']").and_then(|n| n.split_once("['")) {
        return match base {
            "metadata.annotations" => super::qualified(&json!(key.to_lowercase()), path, errors),
            "metadata.labels" => super::qualified(&json!(key), path, errors),
            _ => errors.invalid(
                &at,
                &field["fieldPath"],
                &format!("error converting fieldPath: field label does not support subscript: {name}"),
            ),
        };
    }
    let known = ENV_FIELDS.contains(&name) || matches!(name, "metadata.labels" | "metadata.annotations");
    if !known {
        let text = format!("error converting fieldPath: field label not supported: {name}");
        errors.invalid(&at, &field["fieldPath"], &text);
    } else if !allowed.contains(&name) {
        errors.not_supported(&at, &field["fieldPath"], allowed);
    }
}

pub(super) fn resource_ref(resource: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let name = text(resource, "resource");
    if name.is_empty() {
        return errors.required(&path.child("resource"), "");
    }
    let huge = name.starts_with("requests.hugepages-") || name.starts_with("limits.hugepages-");
    if !ENV_RESOURCES.contains(&name) && !huge {
        errors.not_supported(&path.child("resource"), &resource["resource"], &ENV_RESOURCES);
    }
    divisor(resource, name, &path.child("divisor"), errors);
}

/// In what a resource may be counted (`validateContainerResourceDivisor`); 0 is none.
fn divisor(resource: &Value, name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let what = name.split_once('.').map_or("", |(_, what)| what);
    let (allowed, called) = match what {
        "cpu" => ("1m and 1", "cpu"),
        "memory" => (SIZES, "memory"),
        "ephemeral-storage" => (SIZES, "local ephemeral storage"),
        _ => (SIZES, "hugepages"),
    };
    let given = text(resource, "divisor");
    let fits = allowed.split([',', ' ']).any(|one| one == given);
    if !matches!(given, "" | "0") && !fits {
        let why = format!("only divisor's values {allowed} are supported with the {called} resource");
        // Upstream shows the resource.
        errors.invalid(path, &json!(name), &why);
    }
}

fn env_from(c: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (i, from) in items(c, "envFrom").enumerate() {
        let at = path.index(i);
        if !text(from, "prefix").is_empty() {
            let prefix = &from["prefix"];
            let wrong = api::names::env_var(text(from, "prefix"));
            wrong.iter().for_each(|m| errors.invalid(&at.child("prefix"), prefix, m));
        }
        let mut count = 0;
        for source in ["configMapRef", "secretRef"] {
            let Some(reference) = from.get(source) else { continue };
            count += 1;
            if text(reference, "name").is_empty() {
                errors.required(&at.child(source).child("name"), "");
            } else {
                super::subdomain(&reference["name"], &at.child(source).child("name"), errors);
            }
        }
        match count {
            0 => errors.invalid(path, &json!(""), "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(path, &json!(""), "may not have more than one field specified at a time"),
        }
    }
}
