//! Conversion of CPU amounts to cgroup values (upstream's `pkg/kubelet/cm/helpers_linux.go`).

use api::quantity::Amount;

/// Default CFS period in µs.
pub(crate) const DEFAULT_PERIOD: i64 = 100_000;
/// Minimum CFS quota in µs.
const MIN_QUOTA: i64 = 1_000;
/// CPU shares of one CPU.
const SHARES_PER_CPU: i64 = 1_024;
pub(crate) const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;

/// Converts to CPU shares (`MilliCPUToShares`).
pub(crate) fn shares(cpu: Amount) -> i64 {
    (cpu.milli().saturating_mul(SHARES_PER_CPU) / 1_000).clamp(MIN_SHARES, MAX_SHARES)
}

/// Converts to a CFS quota in µs per period (`MilliCPUToQuota`).
pub(crate) fn quota(cpu: Amount, period: i64) -> i64 {
    (cpu.milli().saturating_mul(period) / 1_000).max(MIN_QUOTA)
}

/// Converts CPU shares of cgroup v1 to the CPU weight of v2, 1 to 10,000 (KEP-2254).
pub(super) fn weight(shares: i64) -> i64 {
    1 + (shares.clamp(MIN_SHARES, MAX_SHARES) - MIN_SHARES) * 9_999 / (MAX_SHARES - MIN_SHARES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_converted_to_shares_quota_and_weight() {
        for (milli, expected) in [
            (0, (2, 1_000, 1)),
            (1, (2, 1_000, 1)),
            (5, (5, 1_000, 1)),
            (100, (102, 10_000, 4)),
            (1_000, (1_024, 100_000, 39)),
            (1_500, (1_536, 150_000, 59)),
            (1_000_000, (262_144, 100_000_000, 10_000)),
        ] {
            let cpu = Amount::milli_units(milli);
            assert_eq!((shares(cpu), quota(cpu, DEFAULT_PERIOD), weight(shares(cpu))), expected, "{milli}m");
        }
    }
}
