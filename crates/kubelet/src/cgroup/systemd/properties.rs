//! Properties of slices, as upstream sets them (`opencontainers/cgroups`, `systemd/v1.go` and `systemd/v2.go`).

use crate::cgroup::{cpu_conversion::weight, resource_config::ResourceConfig};
use zbus::Variant;

/// Name and value of a unit's property.
pub(crate) type Property = (&'static str, Variant<'static>);

/// First version of systemd with `CPUQuotaPeriodUSec`.
const QUOTA_PERIOD_VERSION: u32 = 242;
/// systemd has quotas in percent of a CPU: multiples of 10 ms per second.
const QUOTA_STEP: u64 = 10_000;
const SECOND: u64 = 1_000_000;

/// Returns the properties of a new slice.
pub(super) fn of_slice(description: &str, parent: &str, is_v2: bool) -> Vec<Property> {
    let io = if is_v2 { "IOAccounting" } else { "BlockIOAccounting" };
    vec![
        ("Description", Variant::from(description.to_owned())),
        ("Wants", Variant::from(vec![parent.to_owned()])),
        ("MemoryAccounting", Variant::from(true)),
        ("CPUAccounting", Variant::from(true)),
        (io, Variant::from(true)),
        ("TasksAccounting", Variant::from(true)),
        ("DefaultDependencies", Variant::from(false)),
    ]
}

/// Returns the properties of limits. Limits that are `None` keep their values.
pub(super) fn of_limits(limits: &ResourceConfig, is_v2: bool, version: u32) -> Vec<Property> {
    let mut properties = Vec::new();
    if let Some(memory) = limits.memory {
        properties.push((if is_v2 { "MemoryMax" } else { "MemoryLimit" }, unsigned(memory)));
    }
    properties.push(match is_v2 {
        true => ("CPUWeight", unsigned(weight(limits.shares))),
        false => ("CPUShares", unsigned(limits.shares)),
    });
    if let Some((quota, period)) = limits.quota {
        if version >= QUOTA_PERIOD_VERSION {
            properties.push(("CPUQuotaPeriodUSec", unsigned(period)));
        }
        properties.push(("CPUQuotaPerSecUSec", Variant::from(quota_per_second(quota, period))));
    }
    if let Some(pids) = limits.pids {
        // systemd does not accept 0.
        properties.push(("TasksMax", unsigned(pids.max(1))));
    }
    properties
}

/// Returns the limits as systemd sets them. The same values are written to the cgroup's files.
pub(super) fn rounded(limits: &ResourceConfig) -> ResourceConfig {
    let quota = limits.quota.map(|(quota, period)| {
        let per_period = quota_per_second(quota, period).saturating_mul(period.unsigned_abs()) / SECOND;
        (i64::try_from(per_period).unwrap_or(i64::MAX), period)
    });
    ResourceConfig { quota, ..limits.clone() }
}

/// Returns the CPU time in µs per second, rounded up.
fn quota_per_second(quota: i64, period: i64) -> u64 {
    let per_second = quota.unsigned_abs().saturating_mul(SECOND) / period.unsigned_abs().max(1);
    per_second.div_ceil(QUOTA_STEP).saturating_mul(QUOTA_STEP)
}

fn unsigned(value: i64) -> Variant<'static> {
    Variant::from(u64::try_from(value).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_properties_of_each_cgroup_version() {
        let limits =
            ResourceConfig { shares: 1024, quota: Some((50_000, 100_000)), memory: Some(1 << 20), pids: Some(9) };
        let v2 = [("MemoryMax", 1_u64 << 20), ("CPUWeight", 39), ("CPUQuotaPeriodUSec", 100_000)];
        let v1 = [("MemoryLimit", 1_u64 << 20), ("CPUShares", 1024), ("CPUQuotaPeriodUSec", 100_000)];
        let common = [("CPUQuotaPerSecUSec", 500_000), ("TasksMax", 9)];
        for (is_v2, first) in [(true, v2), (false, v1)] {
            let expected: Vec<_> = first.into_iter().chain(common).map(|(n, v)| (n, Variant::from(v))).collect();
            assert_eq!(of_limits(&limits, is_v2, 252), expected);
        }
        let names = |limits: &ResourceConfig, version| {
            of_limits(limits, true, version).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&limits, 241), ["MemoryMax", "CPUWeight", "CPUQuotaPerSecUSec", "TasksMax"]);
        // A limit that is not set keeps its value.
        assert_eq!(names(&ResourceConfig::shares(2), 252), ["CPUWeight"]);
        let zero = ResourceConfig { pids: Some(0), ..ResourceConfig::shares(2) };
        assert_eq!(of_limits(&zero, true, 252)[1], ("TasksMax", Variant::from(1_u64)));
    }

    /// The cases of upstream's `TestAddCPUQuota`.
    #[test]
    fn quota_is_rounded_up_to_percents() {
        for (quota, period, per_second, rounded_quota) in [
            (12_345, 100_000, 130_000, 13_000),
            (1_000, 100_000, 10_000, 1_000),
            (10_000, 100_000, 100_000, 10_000),
            (1, 1_000, 10_000, 10),
            (200_000, 100_000, 2_000_000, 200_000),
            (i64::MAX, 1, u64::MAX / QUOTA_STEP * QUOTA_STEP, i64::MAX),
        ] {
            let limits = ResourceConfig { quota: Some((quota, period)), ..ResourceConfig::shares(2) };
            assert_eq!(quota_per_second(quota, period).min(u64::MAX / QUOTA_STEP * QUOTA_STEP), per_second, "{quota}");
            if quota < i64::MAX {
                assert_eq!(rounded(&limits).quota, Some((rounded_quota, period)), "{quota}");
            }
        }
    }

    #[test]
    fn slice_has_accounting_and_wants_its_parent() {
        let names = |is_v2| of_slice("Pod", "a.slice", is_v2).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let all = ["Description", "Wants", "MemoryAccounting", "CPUAccounting", "IOAccounting", "TasksAccounting"];
        assert_eq!(names(true)[..6], all);
        assert!(names(false).contains(&"BlockIOAccounting"));
        let properties = of_slice("Pod", "a.slice", true);
        assert_eq!(properties[1].1, Variant::from(vec!["a.slice".to_owned()]));
        assert_eq!(properties[6], ("DefaultDependencies", Variant::from(false)));
    }
}
