//! Validation of containers (`validateContainers`, `validateInitContainers`).

use super::{
    ephemeral, probe, resource_claims, resources, restart_policy, security_context, stop_signal, volume,
    volume::Volumes, volume_devices, volume_mounts,
};
use crate::{FieldErrors, enums, field_cursor::FieldCursor};
use serde_json::json;
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

pub(super) fn validate_containers(spec: &FieldCursor<'_, '_>, volumes: &Volumes<'_>, errors: &mut FieldErrors) {
    let grace = spec.at("terminationGracePeriodSeconds").integer();
    let (containers, init_containers) = (spec.at("containers"), spec.at("initContainers"));
    let (mut names, claims) = (BTreeSet::new(), resource_claims::claim_names(spec));
    if containers.count() == 0 {
        containers.required("", errors);
    }
    for container in containers.items() {
        validate_container_common(&container, volumes, &claims, spec, errors);
        validate_unique_name(&mut names, &container, errors);
        probe::validate_lifecycle_and_probes(&container, grace, errors);
        stop_signal::validate_stop_signal(&container, spec, errors);
        restart_policy::validate_restart_policy(&container, errors);
    }
    validate_host_ports(containers.items(), &containers, errors);
    for container in init_containers.items() {
        validate_container_common(&container, volumes, &claims, spec, errors);
        restart_policy::validate_restart_policy(&container, errors);
        validate_unique_name(&mut names, &container, errors);
        // Like upstream, the path of each container has the index 0.
        validate_host_ports(std::iter::once(container), &init_containers, errors);
        if container.at("restartPolicy").text() == "Always" {
            probe::validate_lifecycle_and_probes(&container, grace, errors);
            stop_signal::validate_stop_signal(&container, spec, errors);
            continue;
        }
        for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            let field = container.at(name);
            if field.is_set() {
                field.forbidden(INIT_CONTAINER_FORBIDDEN, errors);
            }
        }
    }
    ephemeral::validate_ephemeral_containers(spec, volumes, &mut names, errors);
}

pub(super) fn validate_unique_name<'v>(
    names: &mut BTreeSet<&'v str>,
    container: &FieldCursor<'v, '_>,
    errors: &mut FieldErrors,
) {
    let name = container.at("name");
    if !names.insert(name.text()) && !name.text().is_empty() {
        name.duplicate(errors);
    }
}

/// Validates fields that all container types share (`validateContainerCommon`).
pub(super) fn validate_container_common(
    container: &FieldCursor<'_, '_>,
    volumes: &Volumes<'_>,
    claims: &resource_claims::ClaimNames<'_>,
    spec: &FieldCursor<'_, '_>,
    errors: &mut FieldErrors,
) {
    container.at("name").validate_required_text(api::names::dns1123_label, errors);
    let image = container.at("image");
    if image.text().is_empty() {
        image.required("", errors);
    } else if image.text().trim() != image.text() {
        image.invalid("must not have leading or trailing whitespace", errors);
    }
    container.at("terminationMessagePolicy").one_of(enums::TERMINATION_MESSAGE_POLICIES, errors);
    validate_ports(&container.at("ports"), spec.at("hostNetwork").is_true(), errors);
    container.at("env").items().for_each(|variable| validate_env_var(&variable, volumes, errors));
    validate_env_from(&container.at("envFrom"), errors);
    volume_mounts::validate_volume_mounts(container, volumes, errors);
    volume_devices::validate_volume_devices(container, volumes, errors);
    container.at("imagePullPolicy").one_of(enums::PULL_POLICIES, errors);
    let resources = container.at("resources");
    resources::validate_requirements(&resources, errors);
    resource_claims::validate_container_claims(&resources.at("claims"), claims, errors);
    let restart_policy = spec.at("restartPolicy").text();
    resources::validate_resize_policy(&container.at("resizePolicy"), restart_policy, errors);
    security_context::validate_container_security(container, spec, errors);
}

fn validate_ports(ports: &FieldCursor<'_, '_>, host_network: bool, errors: &mut FieldErrors) {
    let mut names = BTreeSet::new();
    for port in ports.items() {
        let (name, number, host_port) = (port.at("name"), port.at("containerPort"), port.at("hostPort"));
        if !name.text().is_empty() {
            name.validate_text(api::names::port_name, errors);
            if api::names::port_name(name.text()).is_empty() && !names.insert(name.text()) {
                name.duplicate(errors);
            }
        }
        match number.integer().unwrap_or(0) {
            0 => number.required("", errors),
            _ => number.validate_port(errors),
        }
        if host_port.integer().unwrap_or(0) != 0 {
            host_port.validate_port(errors);
        }
        port.at("protocol").one_of(enums::PROTOCOLS, errors);
        // A template may omit the host port: it is defaulted when a Pod is created from the template.
        if host_network && host_port.is_set() && host_port.value() != number.value() {
            host_port.invalid("must match `containerPort` when `hostNetwork` is true", errors);
        }
    }
}

/// Validates that host ports are unique (`checkHostPortConflicts`). `list` has the path of the containers.
fn validate_host_ports<'v: 'p, 'p>(
    containers: impl Iterator<Item = FieldCursor<'v, 'p>>,
    list: &FieldCursor<'_, '_>,
    errors: &mut FieldErrors,
) {
    let mut used = BTreeSet::new();
    for (i, container) in containers.enumerate() {
        for (j, port) in container.at("ports").items().enumerate() {
            let Some(number) = port.at("hostPort").integer().filter(|number| *number != 0) else { continue };
            let (protocol, ip) = (port.at("protocol").text(), port.at("hostIP").text());
            if !used.insert((protocol, ip, number)) {
                let path = list.path().index(i).child("ports").index(j).child("hostPort");
                errors.duplicate(&path, &json!(format!("{protocol}/{ip}/{number}")));
            }
        }
    }
}

fn validate_env_var(variable: &FieldCursor<'_, '_>, volumes: &Volumes<'_>, errors: &mut FieldErrors) {
    variable.at("name").validate_required_text(api::names::env_var, errors);
    let from = variable.at("valueFrom");
    if from.is_null() {
        return;
    }
    let sources = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    for name in sources {
        let source = from.at(name);
        match name {
            _ if source.is_null() => {}
            "fieldRef" => validate_field_ref(&source, &ENV_FIELDS, errors),
            "resourceFieldRef" => validate_resource_field_ref(&source, errors),
            "fileKeyRef" => validate_file_key_ref(&source, volumes, errors),
            _ => {
                source.at("name").validate_text(api::names::dns1123_subdomain, errors);
                source.at("key").validate_required_text(api::names::config_map_key, errors);
            }
        }
    }
    let count = sources.iter().filter(|source| from.at(source).is_set()).count();
    let detail = match count {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if !variable.at("value").text().is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.invalid(&from.path(), &json!(""), detail);
}

/// Validates a reference to a variable in an env file (KEP-3721).
fn validate_file_key_ref(file: &FieldCursor<'_, '_>, volumes: &Volumes<'_>, errors: &mut FieldErrors) {
    let (volume, path) = (file.at("volumeName"), file.at("path"));
    match (volume.text(), volumes.get(volume.text())) {
        ("", _) => volume.required("", errors),
        (_, None) => volume.not_found(errors),
        (_, Some(&"emptyDir")) => {}
        _ => volume.invalid("referenced volume must be of type emptyDir", errors),
    }
    volume::validate_file_path(&path, errors);
    file.at("key").validate_required_text(api::names::env_var, errors);
}

/// Validates a reference to a field of the Pod, which can have a subscript, such as `metadata.labels['x']`
/// (`validateObjectFieldSelector`).
pub(super) fn validate_field_ref(reference: &FieldCursor<'_, '_>, allowed: &[&str], errors: &mut FieldErrors) {
    let field_path = reference.at("fieldPath");
    let name = field_path.text();
    if name.is_empty() {
        return field_path.required("", errors);
    }
    if let Some((base, key)) = name.strip_suffix("']").and_then(|n| n.split_once("['")) {
        let key = match base {
            "metadata.annotations" => key.to_lowercase(),
            "metadata.labels" => key.to_owned(),
            _ => {
                let detail = format!("error converting fieldPath: field label does not support subscript: {name}");
                return field_path.invalid(&detail, errors);
            }
        };
        let wrong = api::names::qualified_name(&key);
        return wrong.iter().for_each(|detail| errors.invalid(&reference.path(), &json!(key), detail));
    }
    let known = ENV_FIELDS.contains(&name) || matches!(name, "metadata.labels" | "metadata.annotations");
    if !known {
        let detail = format!("error converting fieldPath: field label not supported: {name}");
        field_path.invalid(&detail, errors);
    } else if !allowed.contains(&name) {
        field_path.not_supported(allowed, errors);
    }
}

pub(super) fn validate_resource_field_ref(reference: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let resource = reference.at("resource");
    let name = resource.text();
    if name.is_empty() {
        return resource.required("", errors);
    }
    let huge = name.starts_with("requests.hugepages-") || name.starts_with("limits.hugepages-");
    if !ENV_RESOURCES.contains(&name) && !huge {
        resource.not_supported(&ENV_RESOURCES, errors);
    }
    validate_divisor(&reference.at("divisor"), name, errors);
}

/// Validates the divisor of a resource field (`validateContainerResourceDivisor`). 0 counts as unset.
fn validate_divisor(divisor: &FieldCursor<'_, '_>, name: &str, errors: &mut FieldErrors) {
    let resource_type = name.split_once('.').map_or("", |(_, resource_type)| resource_type);
    let (allowed, resource_name) = match resource_type {
        "cpu" => ("1m and 1", "cpu"),
        "memory" => (BYTE_DIVISORS, "memory"),
        "ephemeral-storage" => (BYTE_DIVISORS, "local ephemeral storage"),
        _ => (BYTE_DIVISORS, "hugepages"),
    };
    let is_supported = allowed.split([',', ' ']).any(|one| one == divisor.text());
    if !matches!(divisor.text(), "" | "0") && !is_supported {
        let detail = format!("only divisor's values {allowed} are supported with the {resource_name} resource");
        // Upstream shows the resource instead of the divisor.
        errors.invalid(&divisor.path(), &json!(name), &detail);
    }
}

fn validate_env_from(env_from: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for source in env_from.items() {
        let prefix = source.at("prefix");
        if !prefix.text().is_empty() {
            prefix.validate_text(api::names::env_var, errors);
        }
        let mut count = 0;
        for reference in [source.at("configMapRef"), source.at("secretRef")].iter().filter(|source| source.is_set()) {
            count += 1;
            reference.at("name").validate_required_text(api::names::dns1123_subdomain, errors);
        }
        let detail = match count {
            0 => "must specify one of: `configMapRef` or `secretRef`",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        errors.invalid(&env_from.path(), &json!(""), detail);
    }
}
