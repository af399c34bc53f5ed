//! Absolute and percentage values (`intstr.GetScaledValueFromIntOrPercent`), and saturating sums.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Rounding direction of a percentage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    Up,
    Down,
}

/// Returns the absolute value, or the percentage of `total`. Other strings, which validation rejects, count as 0.
pub(crate) fn scaled_value(amount: &IntOrString, total: i32, rounding: Rounding) -> i32 {
    let percent = match amount {
        IntOrString::Int(number) => return *number,
        IntOrString::String(text) => text.strip_suffix('%').and_then(|p| p.parse::<i64>().ok()).unwrap_or(0),
    };
    let hundredfold = percent.saturating_mul(i64::from(total));
    let part = match rounding {
        Rounding::Up => hundredfold.saturating_add(99).div_euclid(100),
        Rounding::Down => hundredfold.div_euclid(100),
    };
    i32::try_from(part).unwrap_or(i32::MAX)
}

/// Returns the sum of client-supplied numbers, saturating at `i32::MAX`.
pub(crate) fn saturating_sum(numbers: impl Iterator<Item = i32>) -> i32 {
    numbers.fold(0, i32::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentage_is_rounded_in_the_given_direction() {
        let percent = |p: &str, total, rounding| scaled_value(&IntOrString::String(p.to_owned()), total, rounding);
        assert_eq!(percent("25%", 10, Rounding::Up), 3);
        assert_eq!(percent("25%", 10, Rounding::Down), 2);
        assert_eq!(percent("0%", 10, Rounding::Up), 0);
        assert_eq!(percent("100%", 7, Rounding::Down), 7);
        assert_eq!(scaled_value(&IntOrString::Int(4), 10, Rounding::Up), 4);
        assert_eq!(percent("9223372036854775807%", i32::MAX, Rounding::Up), i32::MAX);
        assert_eq!(saturating_sum([i32::MAX, i32::MAX].into_iter()), i32::MAX);
    }
}
