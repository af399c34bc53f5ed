//! Reserved resources and the enforcement of node allocatable (upstream's `parseResourceList`,
//! `ValidateKubeletConfiguration` and `validateNodeAllocatable`).

use super::{ConfigError, InvalidValueError, KubeletConfiguration};
use crate::node_resources::NodeResources;
use api::quantity::{Amount, QuantityError};
use serde_json::Value;
use std::path::Path;

/// Resources that can be reserved.
const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

const ENFORCEMENT: &str = "enforceNodeAllocatable (--enforce-node-allocatable)";

/// Invalid reserved resources or enforcement, with upstream's message.
#[derive(Debug, thiserror::Error)]
pub enum ReservedResourcesError {
    /// Resource that cannot be reserved.
    #[error("cannot reserve {0:?} resource")]
    Unreservable(String),
    /// Invalid quantity.
    #[error("failed to parse quantity {quantity:?} for {resource:?} resource: {source}")]
    Quantity {
        /// Name of the resource.
        resource: String,
        /// The quantity.
        quantity: String,
        /// Cause.
        source: QuantityError,
    },
    /// Negative quantity.
    #[error("resource quantity for {resource:?} cannot be negative: {quantity}")]
    Negative {
        /// Name of the resource.
        resource: String,
        /// The quantity.
        quantity: String,
    },
    /// Enforcement without cgroups of Pods.
    #[error(
        "invalid configuration: {} is not supported unless cgroupsPerQOS (--cgroups-per-qos) is set to true",
        ENFORCEMENT
    )]
    NoCgroups,
    /// Enforcement without its cgroup.
    #[error("invalid configuration: {field} ({flag}) must be specified when {option:?} contained in {}", ENFORCEMENT)]
    NoCgroup {
        /// Field of the cgroup.
        field: &'static str,
        /// Its flag.
        flag: &'static str,
        /// The enforcement.
        option: String,
    },
    /// `none` with another enforcement.
    #[error(
        "invalid configuration: {} may not contain additional enforcements when \"none\" is specified",
        ENFORCEMENT
    )]
    NoneAndOthers,
    /// Unknown enforcement.
    #[error(
        r#"invalid configuration: option {option:?} specified for {}. Valid options are "pods", "system-reserved", "kube-reserved", or "none""#,
        ENFORCEMENT
    )]
    UnknownEnforcement {
        /// The enforcement.
        option: String,
    },
}

impl KubeletConfiguration {
    pub(super) fn check_reserved(&self) -> Result<(), ReservedResourcesError> {
        for (resource, text) in self.system_reserved.iter().chain(&self.kube_reserved) {
            let (resource, quantity) = (resource.clone(), text.clone());
            if !RESERVABLE.contains(&resource.as_str()) {
                return Err(ReservedResourcesError::Unreservable(resource));
            }
            match Amount::parse(text) {
                Err(source) => return Err(ReservedResourcesError::Quantity { resource, quantity, source }),
                Ok(amount) if amount.is_negative() => {
                    return Err(ReservedResourcesError::Negative { resource, quantity });
                }
                Ok(_) => {}
            }
        }
        self.enforce_node_allocatable.iter().try_for_each(|option| self.check_enforcement(option))
    }

    /// Checks an `enforceNodeAllocatable` option.
    fn check_enforcement(&self, option: &str) -> Result<(), ReservedResourcesError> {
        let cgroup = |field: &'static str, flag: &'static str| {
            let group = self.rest.get(field).and_then(Value::as_str).unwrap_or_default();
            let no_cgroup = || ReservedResourcesError::NoCgroup { field, flag, option: option.to_owned() };
            if group.is_empty() { Err(no_cgroup()) } else { Ok(()) }
        };
        if !self.cgroups_per_qos {
            return Err(ReservedResourcesError::NoCgroups);
        }
        match option {
            "pods" => Ok(()),
            "system-reserved" => cgroup("systemReservedCgroup", "--system-reserved-cgroup"),
            "kube-reserved" => cgroup("kubeReservedCgroup", "--kube-reserved-cgroup"),
            "none" if self.enforce_node_allocatable.len() > 1 => Err(ReservedResourcesError::NoneAndOthers),
            "none" => Ok(()),
            _ => Err(ReservedResourcesError::UnknownEnforcement { option: option.to_owned() }),
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
        Err(InvalidValueError::Overcommitted(lacking).into())
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
        let error = check("kubeReserved: {cpu: 1M}").unwrap_err();
        assert!(error.contains("Resource \"cpu\" has a reservation of 1M but capacity of"), "{error}");
    }
}
