//! Reserved resources and the enforcement of node allocatable (upstream's `parseResourceList`,
//! `ValidateKubeletConfiguration` and `validateNodeAllocatable`).

use super::{ConfigError, KubeletConfiguration};
use crate::node_resources::NodeResources;
use api::quantity::Amount;
use serde_json::Value;
use std::path::Path;

/// Resources that can be reserved.
const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

impl KubeletConfiguration {
    pub(super) fn check_reserved(&self) -> Result<(), ConfigError> {
        for (resource, text) in self.system_reserved.iter().chain(&self.kube_reserved) {
            if !RESERVABLE.contains(&resource.as_str()) {
                return Err(ConfigError::Invalid(format!("cannot reserve {resource:?} resource")));
            }
            let amount = Amount::parse(text).map_err(|e| {
                ConfigError::Invalid(format!("failed to parse quantity {text:?} for {resource:?} resource: {e}"))
            })?;
            if amount.is_negative() {
                let why = format!("resource quantity for {resource:?} cannot be negative: {text}");
                return Err(ConfigError::Invalid(why));
            }
        }
        let wrong = self.enforce_node_allocatable.iter().find_map(|what| self.enforcement_error(what));
        wrong.map_or(Ok(()), |why| Err(ConfigError::Invalid(format!("invalid configuration: {why}"))))
    }

    /// Returns upstream's error for an `enforceNodeAllocatable` option.
    fn enforcement_error(&self, what: &str) -> Option<String> {
        const FLAG: &str = "enforceNodeAllocatable (--enforce-node-allocatable)";
        let has = |field: &str| self.rest.get(field).and_then(Value::as_str).is_some_and(|group| !group.is_empty());
        let group = |field: &str, flag: &str| {
            (!has(field)).then(|| format!("{field} ({flag}) must be specified when {what:?} contained in {FLAG}"))
        };
        if !self.cgroups_per_qos {
            return Some(format!("{FLAG} is not supported unless cgroupsPerQOS (--cgroups-per-qos) is set to true"));
        }
        match what {
            "pods" => None,
            "system-reserved" => group("systemReservedCgroup", "--system-reserved-cgroup"),
            "kube-reserved" => group("kubeReservedCgroup", "--kube-reserved-cgroup"),
            "none" => (self.enforce_node_allocatable.len() > 1)
                .then(|| format!("{FLAG} may not contain additional enforcements when {what:?} is specified")),
            _ => {
                let valid = r#"Valid options are "pods", "system-reserved", "kube-reserved", or "none""#;
                Some(format!("option {what:?} specified for {FLAG}. {valid}"))
            }
        }
    }

    /// Checks that the reservations do not exceed the node's capacity; `root_dir` is on the file system of Pods.
    ///
    /// # Errors
    /// If they exceed it.
    pub fn check_capacity(&self, root_dir: &Path) -> Result<(), ConfigError> {
        let lacking = NodeResources::measure(root_dir, self).overcommitted();
        if lacking.is_empty() {
            return Ok(());
        }
        Err(ConfigError::Invalid(format!("invalid Node Allocatable configuration. {}", lacking.join(" "))))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::tests::{parse, refuses};

    #[test]
    fn reserved_resources_are_validated_like_upstream() {
        parse("systemReserved: {cpu: 100m, pid: \"1000\"}\nkubeReserved: {memory: 1Mi, ephemeral-storage: 1Gi}")
            .unwrap();
        refuses("systemReserved: {cpu: \"-1\"}", "resource quantity for \"cpu\" cannot be negative: -1");
        refuses("kubeReserved: {foo: \"1\"}", "cannot reserve \"foo\" resource");
        parse("enforceNodeAllocatable: [none]").unwrap();
        parse("enforceNodeAllocatable: [pods, system-reserved]\nsystemReservedCgroup: /system").unwrap();
        refuses(
            "enforceNodeAllocatable: [foo]",
            "invalid configuration: option \"foo\" specified for enforceNodeAllocatable (--enforce-node-allocatable). \
             Valid options are \"pods\", \"system-reserved\", \"kube-reserved\", or \"none\"",
        );
        refuses("enforceNodeAllocatable: [pods, none]", "may not contain additional enforcements when \"none\"");
        refuses(
            "enforceNodeAllocatable: [kube-reserved]",
            "kubeReservedCgroup (--kube-reserved-cgroup) must be specified when \"kube-reserved\" contained in",
        );
        refuses("cgroupsPerQOS: false\nenforceNodeAllocatable: [pods]", "is not supported unless cgroupsPerQOS");
        parse("cgroupsPerQOS: false\nenforceNodeAllocatable: []").unwrap();
    }

    #[test]
    fn reservations_above_the_capacity_are_rejected() {
        let root = std::env::temp_dir();
        let check = |body: &str| parse(body).unwrap().check_capacity(&root).map_err(|e| e.to_string());
        assert_eq!(check("kubeReserved: {cpu: 10m}"), Ok(()));
        let why = check("kubeReserved: {cpu: 1M}").unwrap_err();
        assert!(why.contains("Resource \"cpu\" has a reservation of 1M but capacity of"), "{why}");
    }
}
