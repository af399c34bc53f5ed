//! Validation of containers (`validateContainers`, `validateInitContainers`).

use super::{
    ephemeral, items, probe, resource_claims, resources, restart_policy, security_context, stop_signal, text,
    validate_one_of, validate_port, validate_required_dns_label, volume::Volumes, volume_devices, volume_mounts,
};
use crate::{FieldErrors, FieldPath, enums};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const INIT_CONTAINER_FORBIDDEN: &str = "may not be set for init containers without restartPolicy=Always";
/// Fields of the Pod that an environment variable can reference.
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
/// Divisors of resources in bytes.
const BYTE_DIVISORS: &str = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";
const ENV_RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub(super) fn validate_containers(spec: &Value, path: &FieldPath, volumes: &Volumes, errors: &mut FieldErrors) {
    let grace = spec["terminationGracePeriodSeconds"].as_i64();
    let (mut names, claims) = (BTreeSet::new(), resource_claims::claim_names(spec));
    if items(spec, "containers").next().is_none() {
        errors.required(&path.child("containers"), "");
    }
    for (i, c) in items(spec, "containers").enumerate() {
        let path = path.child("containers").index(i);
        validate_container_common(c, &path, volumes, &claims, spec, errors);
        validate_unique_name(&mut names, c, &path, errors);
        probe::validate_lifecycle_and_probes(c, grace, &path, errors);
        stop_signal::validate_stop_signal(c, spec, &path, errors);
        restart_policy::validate_restart_policy(c, &path, errors);
    }
    validate_host_ports(items(spec, "containers"), &path.child("containers"), errors);
    for (i, c) in items(spec, "initContainers").enumerate() {
        let at = path.child("initContainers").index(i);
        validate_container_common(c, &at, volumes, &claims, spec, errors);
        restart_policy::validate_restart_policy(c, &at, errors);
        validate_unique_name(&mut names, c, &at, errors);
        validate_host_ports(std::iter::once(c), &path.child("initContainers"), errors);
        if c["restartPolicy"] == "Always" {
            probe::validate_lifecycle_and_probes(c, grace, &at, errors);
            stop_signal::validate_stop_signal(c, spec, &at, errors);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if c.get(field).is_some() {
                errors.forbidden(&at.child(field), INIT_CONTAINER_FORBIDDEN);
            }
        }
    }
    ephemeral::validate_ephemeral_containers(spec, path, volumes, &mut names, errors);
}

pub(super) fn validate_unique_name(
    names: &mut BTreeSet<String>,
    c: &Value,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if !names.insert(text(c, "name").to_owned()) && !text(c, "name").is_empty() {
        errors.duplicate(&path.child("name"), &c["name"]);
    }
}

/// Validates fields that all container types share (`validateContainerCommon`).
pub(super) fn validate_container_common(
    c: &Value,
    path: &FieldPath,
    volumes: &Volumes,
    claims: &resource_claims::ClaimNames<'_>,
    spec: &Value,
    errors: &mut FieldErrors,
) {
    validate_required_dns_label(&c["name"], &path.child("name"), errors);
    let image = text(c, "image");
    if image.is_empty() {
        errors.required(&path.child("image"), "");
    } else if image.trim() != image {
        errors.invalid(&path.child("image"), &c["image"], "must not have leading or trailing whitespace");
    }
    validate_one_of(c, "terminationMessagePolicy", enums::TERMINATION_MESSAGE_POLICIES, path, errors);
    validate_ports(c, &path.child("ports"), spec["hostNetwork"] == json!(true), errors);
    for (i, e) in items(c, "env").enumerate() {
        validate_env_var(e, &path.child("env").index(i), volumes, errors);
    }
    validate_env_from(c, &path.child("envFrom"), errors);
    volume_mounts::validate_volume_mounts(c, &path.child("volumeMounts"), volumes, errors);
    volume_devices::validate_volume_devices(c, &path.child("volumeDevices"), volumes, errors);
    validate_one_of(c, "imagePullPolicy", enums::PULL_POLICIES, path, errors);
    resources::validate_requirements(&c["resources"], &path.child("resources"), errors);
    resource_claims::validate_container_claims(c, claims, &path.child("resources").child("claims"), errors);
    resources::validate_resize_policy(c, &path.child("resizePolicy"), text(spec, "restartPolicy"), errors);
    security_context::validate_container_security(c, spec, path, errors);
}

fn validate_ports(c: &Value, path: &FieldPath, host_network: bool, errors: &mut FieldErrors) {
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
            _ => validate_port(&p["containerPort"], &path.child("containerPort"), errors),
        }
        if p["hostPort"].as_i64().unwrap_or(0) != 0 {
            validate_port(&p["hostPort"], &path.child("hostPort"), errors);
        }
        validate_one_of(p, "protocol", enums::PROTOCOLS, &path, errors);
        // A template may omit the host port: it is defaulted when a Pod is created from the template.
        if host_network && p.get("hostPort").is_some_and(|port| *port != p["containerPort"]) {
            let text = "must match `containerPort` when `hostNetwork` is true";
            errors.invalid(&path.child("hostPort"), &p["hostPort"], text);
        }
    }
}

/// Validates that host ports are unique (`checkHostPortConflicts`).
fn validate_host_ports<'a>(containers: impl Iterator<Item = &'a Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut used = BTreeSet::new();
    for (i, c) in containers.enumerate() {
        for (j, p) in items(c, "ports").enumerate().filter(|(_, p)| p["hostPort"].as_i64().unwrap_or(0) != 0) {
            let port = format!("{}/{}/{}", text(p, "protocol"), text(p, "hostIP"), p["hostPort"]);
            if !used.insert(port.clone()) {
                errors.duplicate(&path.index(i).child("ports").index(j).child("hostPort"), &json!(port));
            }
        }
    }
}

fn validate_env_var(e: &Value, path: &FieldPath, volumes: &Volumes, errors: &mut FieldErrors) {
    match text(e, "name") {
        "" => errors.required(&path.child("name"), ""),
        name => api::names::env_var(name).iter().for_each(|m| errors.invalid(&path.child("name"), &e["name"], m)),
    }
    let Some(from) = e.get("valueFrom") else { return };
    let path = path.child("valueFrom");
    if let Some(field) = from.get("fieldRef") {
        validate_field_ref(field, &ENV_FIELDS, &path.child("fieldRef"), errors);
    }
    if let Some(resource) = from.get("resourceFieldRef") {
        validate_resource_field_ref(resource, &path.child("resourceFieldRef"), errors);
    }
    for source in ["configMapKeyRef", "secretKeyRef"] {
        let Some(key) = from.get(source) else { continue };
        let path = path.child(source);
        super::validate_dns_subdomain(&key["name"], &path.child("name"), errors);
        match text(key, "key") {
            "" => errors.required(&path.child("key"), ""),
            k => api::names::config_map_key(k).iter().for_each(|m| errors.invalid(&path.child("key"), &key["key"], m)),
        }
    }
    if let Some(file) = from.get("fileKeyRef") {
        validate_file_key_ref(file, &path.child("fileKeyRef"), volumes, errors);
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

/// Validates a reference to a variable in an env file (KEP-3721).
fn validate_file_key_ref(file: &Value, path: &FieldPath, volumes: &Volumes, errors: &mut FieldErrors) {
    let at = path.child("volumeName");
    match (text(file, "volumeName"), volumes.get(text(file, "volumeName")).map(String::as_str)) {
        ("", _) => errors.required(&at, ""),
        (_, None) => errors.not_found(&at, &file["volumeName"]),
        (_, Some("emptyDir")) => {}
        _ => errors.invalid(&at, &file["volumeName"], "referenced volume must be of type emptyDir"),
    }
    match text(file, "path") {
        "" => errors.required(&path.child("path"), ""),
        _ => super::volume::validate_non_reserved_path(&file["path"], &path.child("path"), errors),
    }
    match text(file, "key") {
        "" => errors.required(&path.child("key"), ""),
        key => api::names::env_var(key).iter().for_each(|m| errors.invalid(&path.child("key"), &file["key"], m)),
    }
}

/// Validates a reference to a field of the Pod, which can have a subscript, such as `metadata.labels['x']`
/// (`validateObjectFieldSelector`).
pub(super) fn validate_field_ref(field: &Value, allowed: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    let (at, name) = (path.child("fieldPath"), text(field, "fieldPath"));
    if name.is_empty() {
        return errors.required(&at, "");
    }
    if let Some((base, key)) = name.strip_suffix("']").and_then(|n| n.split_once("['")) {
        return match base {
            "metadata.annotations" => super::validate_qualified_name(&json!(key.to_lowercase()), path, errors),
            "metadata.labels" => super::validate_qualified_name(&json!(key), path, errors),
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

pub(super) fn validate_resource_field_ref(resource: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let name = text(resource, "resource");
    if name.is_empty() {
        return errors.required(&path.child("resource"), "");
    }
    let huge = name.starts_with("requests.hugepages-") || name.starts_with("limits.hugepages-");
    if !ENV_RESOURCES.contains(&name) && !huge {
        errors.not_supported(&path.child("resource"), &resource["resource"], &ENV_RESOURCES);
    }
    validate_divisor(resource, name, &path.child("divisor"), errors);
}

/// Validates the divisor of a resource field (`validateContainerResourceDivisor`). 0 counts as unset.
fn validate_divisor(resource: &Value, name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let resource_type = name.split_once('.').map_or("", |(_, resource_type)| resource_type);
    let (allowed, resource_name) = match resource_type {
        "cpu" => ("1m and 1", "cpu"),
        "memory" => (BYTE_DIVISORS, "memory"),
        "ephemeral-storage" => (BYTE_DIVISORS, "local ephemeral storage"),
        _ => (BYTE_DIVISORS, "hugepages"),
    };
    let given = text(resource, "divisor");
    let is_supported = allowed.split([',', ' ']).any(|one| one == given);
    if !matches!(given, "" | "0") && !is_supported {
        let detail = format!("only divisor's values {allowed} are supported with the {resource_name} resource");
        // Upstream shows the resource instead of the divisor.
        errors.invalid(path, &json!(name), &detail);
    }
}

fn validate_env_from(c: &Value, path: &FieldPath, errors: &mut FieldErrors) {
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
                super::validate_dns_subdomain(&reference["name"], &at.child(source).child("name"), errors);
            }
        }
        match count {
            0 => errors.invalid(path, &json!(""), "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(path, &json!(""), "may not have more than one field specified at a time"),
        }
    }
}
