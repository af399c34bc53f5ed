//! Downward API: `fieldRef` and `resourceFieldRef` of volumes and environment variables.

use crate::{Shared, pods::spec};
use api::{
    quantity::{Amount, QuantityError},
    resources::{self, ResourceField},
    static_pod::{CONFIG_SEEN, CONFIG_SOURCE, is_static},
};
use k8s_openapi::api::core::v1::{Container, ResourceFieldSelector};
use lifecycle::Pod;
use std::collections::BTreeMap;

/// Failure to resolve a `fieldRef` or `resourceFieldRef`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DownwardApiError {
    #[error("unsupported fieldPath: {0}")]
    UnsupportedField(String),
    #[error("container {0} not found")]
    ContainerNotFound(String),
    #[error("a resourceFieldRef of a volume needs a containerName")]
    NoContainerName,
    #[error(transparent)]
    Divisor(#[from] QuantityError),
    #[error("unsupported container resource : {0}")]
    UnsupportedResource(String),
}

/// Returns the value of a `fieldRef`.
///
/// # Errors
/// Fails with upstream's message for an unsupported path.
pub(crate) fn field_ref_value(shared: &Shared, pod: &Pod, path: &str) -> Result<String, DownwardApiError> {
    let meta = &pod.object().metadata;
    let join = |ips: &[std::net::IpAddr]| ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let first = |ips: &[std::net::IpAddr]| ips.first().map(ToString::to_string).unwrap_or_default();
    let host = shared.host_ips();
    Ok(match path {
        "metadata.name" => pod.name().to_owned(),
        "metadata.namespace" => pod.namespace().to_owned(),
        "metadata.uid" => pod.uid().to_owned(),
        "metadata.labels" => format_map(meta.labels.as_ref()),
        "metadata.annotations" => format_map(Some(&annotations(pod))),
        "spec.nodeName" => shared.options.node_name.clone(),
        "spec.serviceAccountName" => spec(pod).service_account_name.clone().unwrap_or_default(),
        "status.podIP" => first(pod.ips()),
        "status.podIPs" => join(pod.ips()),
        "status.hostIP" => first(&host),
        "status.hostIPs" => join(&host),
        _ => {
            let labels = subscript_value(path, "metadata.labels", meta.labels.as_ref());
            let found = labels.or_else(|| subscript_value(path, "metadata.annotations", Some(&annotations(pod))));
            found.ok_or_else(|| DownwardApiError::UnsupportedField(path.to_owned()))?
        }
    })
}

/// Returns the annotations of the Pod, with config source and time as upstream's kubelet adds them.
fn annotations(pod: &Pod) -> BTreeMap<String, String> {
    let object = pod.object();
    let mut all = object.metadata.annotations.clone().unwrap_or_default();
    if !is_static(object) {
        all.insert(CONFIG_SOURCE.to_owned(), "api".to_owned());
        all.insert(CONFIG_SEEN.to_owned(), pod.seen_at().to_string());
    }
    all
}

/// Returns the value for a path such as `metadata.labels['key']`.
fn subscript_value(path: &str, map_path: &str, map: Option<&BTreeMap<String, String>>) -> Option<String> {
    let key = path.strip_prefix(map_path)?.strip_prefix("['")?.strip_suffix("']")?;
    Some(map.and_then(|m| m.get(key)).cloned().unwrap_or_default())
}

/// Formats a map with one `key="value"` per line (upstream's `FormatMap`).
fn format_map(map: Option<&BTreeMap<String, String>>) -> String {
    map.into_iter().flatten().map(|(k, v)| format!("{k}={v:?}")).collect::<Vec<_>>().join("\n")
}

/// Returns the value of a `resourceFieldRef`, of the named container or else of `default_container`.
///
/// # Errors
/// Fails for a missing container or an unsupported resource.
pub(crate) fn resource_field_ref_value(
    shared: &Shared,
    pod: &Pod,
    default_container: Option<&Container>,
    selector: &ResourceFieldSelector,
) -> Result<String, DownwardApiError> {
    let container = match selector.container_name.as_deref().filter(|n| !n.is_empty()) {
        Some(name) => api::pod::containers(spec(pod))
            .map(|(_, c)| c)
            .find(|c| c.name == name)
            .ok_or_else(|| DownwardApiError::ContainerNotFound(name.to_owned()))?,
        None => default_container.ok_or(DownwardApiError::NoContainerName)?,
    };
    let divisor = selector.divisor.as_ref().map(Amount::try_from).transpose()?;
    let pod_limits = resources::amounts(spec(pod).resources.as_ref().and_then(|r| r.limits.as_ref()));
    let default_limits = [&pod_limits, &shared.node_resources.allocatable];
    resource_value(container, &selector.resource, divisor.filter(|d| !d.is_zero()), default_limits)
}

/// Returns the value of a resource. A missing limit is the first in `default_limits`: the Pod-level limit (KEP-2837), or the node's
/// allocatable amount (`MergeContainerResourceLimits`).
fn resource_value(
    container: &Container,
    resource: &str,
    divisor: Option<Amount>,
    default_limits: [&resources::Amounts; 2],
) -> Result<String, DownwardApiError> {
    let unsupported = || DownwardApiError::UnsupportedResource(resource.to_owned());
    let (side, name) = resource.split_once('.').ok_or_else(unsupported)?;
    if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !name.starts_with("hugepages-") {
        return Err(unsupported());
    }
    let amount = match side {
        "limits" => {
            let limit = resources::container_resources(container, ResourceField::Limits).get(name).copied();
            limit.or_else(|| default_limits.iter().find_map(|amounts| amounts.get(name).copied()))
        }
        "requests" => resources::container_resources(container, ResourceField::Requests).get(name).copied(),
        _ => return Err(unsupported()),
    };
    let (amount, divisor) = (amount.unwrap_or_default(), divisor.unwrap_or(Amount::units(1)));
    // CPU is in millicores, so that a divisor of 1m works; both round up.
    let (amount, divisor) =
        if name == "cpu" { (amount.milli(), divisor.milli()) } else { (amount.value(), divisor.value()) };
    let divisor = divisor.max(1);
    Ok((amount / divisor + i64::from(amount % divisor > 0)).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(resource: &str, divisor: &str, expected: Result<&str, &str>) {
        let container: Container = serde_json::from_value(json!({"name": "c", "resources":
            {"requests": {"cpu": "250m", "memory": "100Mi"}, "limits": {"cpu": "1500m"}}}))
        .unwrap();
        let amounts = |name: &str, units| resources::Amounts::from([(name.to_owned(), Amount::units(units))]);
        let mut node = amounts("memory", 1 << 30);
        node.extend(amounts("hugepages-2Mi", 1 << 30));
        let pod = amounts("hugepages-2Mi", 1 << 21);
        let divisor = Amount::parse(divisor).ok().filter(|d| !d.is_zero());
        let found = resource_value(&container, resource, divisor, [&pod, &node]);
        assert_eq!(found.map_err(|e| e.to_string()), expected.map(str::to_owned).map_err(str::to_owned), "{resource}");
    }

    #[test]
    fn resource_field_is_divided_and_rounded_up() {
        check("requests.cpu", "0", Ok("1"));
        check("requests.cpu", "1m", Ok("250"));
        check("limits.cpu", "1", Ok("2"));
        check("requests.memory", "1Mi", Ok("100"));
        check("limits.memory", "1Mi", Ok("1024"));
        check("limits.hugepages-2Mi", "1Mi", Ok("2"));
        check("limits.ephemeral-storage", "1", Ok("0"));
        check("limits.pods", "1", Err("unsupported container resource : limits.pods"));
    }

    #[test]
    fn labels_are_selected_by_key_and_formatted_by_line() {
        let labels = BTreeMap::from([("a/b".to_owned(), "x".to_owned()), ("c".to_owned(), "y\"z".to_owned())]);
        assert_eq!(subscript_value("metadata.labels['a/b']", "metadata.labels", Some(&labels)).as_deref(), Some("x"));
        assert_eq!(subscript_value("metadata.labels['n']", "metadata.labels", Some(&labels)).as_deref(), Some(""));
        assert_eq!(subscript_value("metadata.labelsx", "metadata.labels", Some(&labels)), None);
        assert_eq!(format_map(Some(&labels)), "a/b=\"x\"\nc=\"y\\\"z\"");
    }
}
