//! Quantities: `100m`, `1.5Gi`, `2e3` (`k8s.io/apimachinery/pkg/api/resource`).

mod spelling;

pub use spelling::{rounded, shown};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::fmt;

/// Nanounits in one unit: the smallest step that a quantity has.
const NANO: i128 = 1_000_000_000;

/// What is larger is counted as this.
const MOST: i128 = i128::MAX / 4;

/// An amount of a resource, exact to a billionth of its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Amount(i128);

/// Why a string is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not of the documented form; upstream's words.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// A suffix that does not exist; upstream's words.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// How a quantity was written, which decides its canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    DecimalSi,
    BinarySi,
    DecimalExponent,
}

const BINARY: [(&str, i128); 6] =
    [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("Ti", 1 << 40), ("Pi", 1 << 50), ("Ei", 1 << 60)];
/// Suffix and its power of ten.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// A whole number of units.
    #[must_use]
    pub const fn units(n: i64) -> Self {
        Self(n as i128 * NANO)
    }

    /// A number of thousandths.
    #[must_use]
    pub const fn milli_units(n: i64) -> Self {
        Self(n as i128 * (NANO / 1000))
    }

    /// Reads a quantity.
    ///
    /// # Errors
    /// When it is none; what is smaller than a billionth is rounded up, as upstream does.
    pub fn parse(s: &str) -> Result<Self, QuantityError> {
        parse(s).map(|(amount, ..)| amount)
    }

    /// Units, rounded up (`Quantity.Value`).
    #[must_use]
    pub fn value(self) -> i64 {
        clamp(div_ceil(self.0, NANO))
    }

    /// Thousandths, rounded up (`Quantity.MilliValue`).
    #[must_use]
    pub fn milli(self) -> i64 {
        clamp(div_ceil(self.0, NANO / 1000))
    }

    /// Units, as near as a float comes (`Quantity.AsApproximateFloat64`).
    #[must_use]
    pub fn approximate(self) -> f64 {
        // Both are exact up to 2^53, and so is a decimal that was written with few digits.
        self.0 as f64 / NANO as f64
    }

    /// Whether it is below zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// Whether it is zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum; the largest amount when it does not fit.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Its canonical decimal form, for example `1500m`.
    #[must_use]
    pub fn to_quantity(self) -> Quantity {
        Quantity(format_decimal(self.0, false))
    }

    /// Its canonical binary form, for example `2Gi`, as upstream shows memory.
    #[must_use]
    pub fn to_binary_quantity(self) -> Quantity {
        Quantity(format_binary(self.0))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_decimal(self.0, false))
    }
}

impl TryFrom<&Quantity> for Amount {
    type Error = QuantityError;
    fn try_from(q: &Quantity) -> Result<Self, Self::Error> {
        Self::parse(&q.0)
    }
}

/// The canonical form of a quantity: `1000m` is `1`, `1024Mi` is `1Gi`.
///
/// # Errors
/// When it is no quantity.
pub fn canonical(s: &str) -> Result<String, QuantityError> {
    let (Amount(nanos), format, written) = parse(s)?;
    Ok(match format {
        Format::DecimalSi | Format::DecimalExponent if nanos.abs() == MOST => written.canonical(format),
        Format::DecimalSi => format_decimal(nanos, false),
        Format::DecimalExponent => format_decimal(nanos, true),
        Format::BinarySi => format_binary(nanos),
    })
}

/// A number as it is written.
struct Written<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    power: i32,
}

impl Written<'_> {
    /// The canonical form of one that is too large for an [`Amount`].
    fn canonical(&self, format: Format) -> String {
        let digits = format!("{}{}", self.whole, self.fraction);
        let significant = digits.trim_start_matches('0').trim_end_matches('0');
        let zeros = digits.len() - digits.trim_end_matches('0').len();
        let power = i64::from(self.power) - len(self.fraction) + i64::try_from(zeros).unwrap_or(i64::MAX);
        // There is no suffix for more than that.
        let most = if format == Format::DecimalSi { 18 } else { i64::MAX };
        let at = (power - power.rem_euclid(3)).min(most);
        let more = "0".repeat(usize::try_from(power - at).unwrap_or(0));
        let sign = if self.negative { "-" } else { "" };
        let suffix = match format {
            Format::DecimalExponent if at != 0 => format!("e{at}"),
            _ => DECIMAL.iter().find(|(_, p)| i64::from(*p) == at).map_or("", |(s, _)| s).to_owned(),
        };
        format!("{sign}{significant}{more}{suffix}")
    }
}

fn len(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

fn parse(s: &str) -> Result<(Amount, Format, Written<'_>), QuantityError> {
    let (negative, rest) = match s.as_bytes().first() {
        Some(b'-') => (true, &s[1..]),
        Some(b'+') => (false, &s[1..]),
        _ => (false, s),
    };
    let number_len = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, suffix) = rest.split_at(number_len);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(QuantityError::Format);
    }
    let (multiplier, power, format) = parse_suffix(suffix)?;
    let most = if format == Format::BinarySi { i128::from(i64::MAX) * NANO } else { MOST };
    let magnitude = scale(whole, fraction, multiplier, power).map_or(most, |nanos| nanos.min(most));
    let written = Written { negative, whole, fraction, power };
    Ok((Amount(if negative { -magnitude } else { magnitude }), format, written))
}

fn parse_suffix(suffix: &str) -> Result<(i128, i32, Format), QuantityError> {
    if let Some((_, m)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Ok((*m, 0, Format::BinarySi));
    }
    if let Some((_, p)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Ok((1, *p, Format::DecimalSi));
    }
    let exponent: Option<i32> = suffix.strip_prefix(['e', 'E']).and_then(|exponent| exponent.parse().ok());
    let wrong = if is_formed(suffix) { QuantityError::Suffix } else { QuantityError::Format };
    exponent.map(|power| (1, power, Format::DecimalExponent)).ok_or(wrong)
}

/// Whether a suffix is one by its letters: `[eEinumkKMGTP]*[-+]?[0-9]*`.
fn is_formed(suffix: &str) -> bool {
    let rest = suffix.trim_start_matches(|letter: char| "eEinumkKMGTP".contains(letter));
    let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    digits.bytes().all(|b| b.is_ascii_digit())
}

/// `whole.fraction × multiplier × 10^power` in nanounits, rounded up; `None` when it is too large.
fn scale(whole: &str, fraction: &str, multiplier: i128, power: i32) -> Option<i128> {
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let exponent = i64::from(power) + 9 - len(fraction) + len(&digits) - len(significant);
    let significant = significant.trim_start_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    if multiplier == 1 {
        return shifted(significant, exponent);
    }
    // Room for what is below the largest amount, with 18 decimals: what comes behind them counts only by being there.
    let decimals = usize::try_from(9 - exponent).unwrap_or(0);
    let cut = significant.len().saturating_sub(decimals.saturating_sub(18));
    let (kept, dropped) = significant.split_at(cut);
    let exponent = exponent + len(dropped);
    let mantissa = kept.parse::<i128>().ok()?.checked_mul(multiplier)?;
    let ten = 10i128.checked_pow(u32::try_from(exponent.unsigned_abs()).ok()?)?;
    let exact = exponent >= 0 || mantissa % ten == 0;
    let nanos = if exponent >= 0 { mantissa.checked_mul(ten)? } else { div_ceil(mantissa, ten) };
    Some(if exact && !dropped.is_empty() { nanos.saturating_add(1) } else { nanos })
}

/// `significant × 10^exponent`, rounded up. No digit of it is 0 at its beginning or its end.
fn shifted(significant: &str, exponent: i64) -> Option<i128> {
    if let Ok(zeros) = u32::try_from(exponent) {
        return significant.parse::<i128>().ok()?.checked_mul(10i128.checked_pow(zeros)?);
    }
    let kept = usize::try_from(len(significant) + exponent).unwrap_or(0);
    let whole = if kept == 0 { 0 } else { significant[..kept].parse::<i128>().ok()? };
    whole.checked_add(1)
}

fn div_ceil(a: i128, b: i128) -> i128 {
    let q = a / b;
    if a % b > 0 { q + 1 } else { q }
}

fn clamp(v: i128) -> i64 {
    i64::try_from(v).unwrap_or(if v < 0 { i64::MIN } else { i64::MAX })
}

fn format_decimal(nanos: i128, exponent_form: bool) -> String {
    if nanos == 0 {
        return "0".to_owned();
    }
    let (mut n, mut power) = (nanos, -9);
    // There is no suffix for more than that.
    while n % 1000 == 0 && (exponent_form || power < 18) {
        n /= 1000;
        power += 3;
    }
    if exponent_form {
        return if power == 0 { n.to_string() } else { format!("{n}e{power}") };
    }
    let suffix = DECIMAL.iter().find(|(_, p)| *p == power).map_or("", |(s, _)| s);
    format!("{n}{suffix}")
}

fn format_binary(nanos: i128) -> String {
    // Upstream: what is smaller than one Ki, or not whole, has no use for a binary suffix.
    if nanos.abs() < 1024 * NANO || nanos % NANO != 0 {
        return format_decimal(nanos, false);
    }
    let (mut n, mut suffix) = (nanos / NANO, "");
    for (name, _) in BINARY {
        if n % 1024 != 0 {
            break;
        }
        n /= 1024;
        suffix = name;
    }
    format!("{n}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(input: &str, milli: i64, value: i64, canonical_form: &str) {
        let a = Amount::parse(input).unwrap();
        assert_eq!(
            (a.milli(), a.value(), canonical(input).unwrap().as_str()),
            (milli, value, canonical_form),
            "{input}"
        );
    }

    #[test]
    fn quantities_read_as_upstream_reads_them() {
        check("0", 0, 0, "0");
        check("100m", 100, 1, "100m");
        check("1000m", 1000, 1, "1");
        check("1.5", 1500, 2, "1500m");
        check("0.1", 100, 1, "100m");
        check("1Ki", 1_024_000, 1024, "1Ki");
        check("1024Mi", 1_073_741_824_000, 1_073_741_824, "1Gi");
        check("1.5Gi", 1_610_612_736_000, 1_610_612_736, "1536Mi");
        check("0.5Ki", 512_000, 512, "512");
        check("2e3", 2_000_000, 2000, "2e3");
        check("12E", i64::MAX, i64::MAX, "12E");
        check("-5", -5000, -5, "-5");
        check("1n", 1, 1, "1n");
        check(".5", 500, 1, "500m");
        check("100k", 100_000_000, 100_000, "100k");
        // Binary ones end where 64 bits do, decimal ones nowhere, and what is there is a billionth at least.
        check("9999999999999999999Ei", i64::MAX, i64::MAX, "9223372036854775807");
        check("1e30", i64::MAX, i64::MAX, "1e30");
        check("100e98", i64::MAX, i64::MAX, "10e99");
        check("-1.5e99", i64::MIN, i64::MIN, "-1500e96");
        check("9999999999999999999999E", i64::MAX, i64::MAX, "9999999999999999999999E");
        check("1e-99", 1, 1, "1e-9");
        check("0e99", 0, 0, "0");
        check("0.00000000000000000000000000001", 1, 1, "1n");
        // However many digits, only what is less than a billionth is lost, and that upwards.
        check("21000000000000000000000008000000000000000e-013", i64::MAX, i64::MAX, "2100000000000000000000000800");
        check("123456789012345678901234567890123456789012345e-45", 124, 1, "123456790e-9");
        check("0.1234567890123456789", 124, 1, "123456790n");
        check("0.1234567890000000000000000000000000000000000000001Ki", 126_420, 127, "126419751937n");
        check("1e27", i64::MAX, i64::MAX, "1e27");
        check("42535295865117307932921825929e0", i64::MAX, i64::MAX, "42535295865117307932921825929");
    }

    #[test]
    fn wrong_suffixes_are_told_from_what_is_no_suffix() {
        for (wrong, error) in [
            ("1GB", QuantityError::Format),
            ("1 Gi", QuantityError::Format),
            ("0x10", QuantityError::Format),
            ("1x", QuantityError::Format),
            ("1e5m", QuantityError::Format),
            ("1GG", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("1e-", QuantityError::Suffix),
            ("1K", QuantityError::Suffix),
            ("1Mi5", QuantityError::Suffix),
        ] {
            assert_eq!(Amount::parse(wrong), Err(error), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for bad in ["", "m", "1.2.3", "1x", "1 Gi", "--1", "1e", "1ee3", "Ki", "1e9999999999", "1/2", "٣"] {
            assert!(Amount::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn the_canonical_form_means_the_same(n in -1_000_000_000i64..1_000_000_000, s in prop::sample::select(vec!["", "m", "u", "n", "k", "M", "G", "Ki", "Mi", "Gi", "Ti", "e3"])) {
            let text = format!("{n}{s}");
            let canonical_form = canonical(&text).unwrap();
            prop_assert_eq!(Amount::parse(&text).unwrap(), Amount::parse(&canonical_form).unwrap());
            prop_assert_eq!(canonical(&canonical_form).unwrap(), canonical_form);
        }

        #[test]
        fn no_input_panics(s in "\\PC{0,24}") {
            let _ = Amount::parse(&s);
        }
    }
}
