//! Parsing and formatting of quantities: `100m`, `1.5Gi`, `2e3` (`k8s.io/apimachinery/pkg/api/resource`).

mod format;

pub use format::{normalize_quantity, round_up_to_milli};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::fmt;

/// Nano-units per unit; the resolution of quantities.
const NANO: i128 = 1_000_000_000;

/// Largest amount in nano-units; larger ones are capped.
const MAX_NANOS: i128 = i128::MAX / 4;

/// The numeric value of a quantity, in nano-units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Amount(i128);

/// Error for an invalid quantity, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Wrong format (`ErrFormatWrong`).
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// Unknown suffix (`ErrSuffix`).
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// Format of a quantity, which determines its canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    DecimalSi,
    BinarySi,
    DecimalExponent,
}

const BINARY: [(&str, i128); 6] =
    [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("Ti", 1 << 40), ("Pi", 1 << 50), ("Ei", 1 << 60)];
/// Decimal suffixes and their powers of ten.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

impl Amount {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// Creates an amount from units.
    #[must_use]
    pub const fn units(n: i64) -> Self {
        Self(n as i128 * NANO)
    }

    /// Creates an amount from milli-units.
    #[must_use]
    pub const fn milli_units(n: i64) -> Self {
        Self(n as i128 * (NANO / 1000))
    }

    /// Parses a quantity; fractions of a nano-unit are rounded up, as upstream does.
    ///
    /// # Errors
    /// When the text is not a quantity.
    pub fn parse(s: &str) -> Result<Self, QuantityError> {
        parse(s).map(|(amount, ..)| amount)
    }

    /// Returns the amount in units, rounded up (`Quantity.Value`).
    #[must_use]
    pub fn value(self) -> i64 {
        saturate_to_i64(div_ceil(self.0, NANO))
    }

    /// Returns the amount in milli-units, rounded up (`Quantity.MilliValue`).
    #[must_use]
    pub fn milli(self) -> i64 {
        saturate_to_i64(div_ceil(self.0, NANO / 1000))
    }

    /// Returns the amount in units as a float (`Quantity.AsApproximateFloat64`).
    #[must_use]
    pub fn approximate(self) -> f64 {
        // Both are exact up to 2^53, and so are decimals with few digits.
        self.0 as f64 / NANO as f64
    }

    /// Returns whether the amount is below zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// Returns whether the amount is zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns the saturating sum.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the saturating difference.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the canonical decimal form (`DecimalSI`), for example `1500m`.
    #[must_use]
    pub fn to_quantity(self) -> Quantity {
        Quantity(format_decimal(self.0, false))
    }

    /// Returns the canonical binary form (`BinarySI`), for example `2Gi`, which upstream uses for memory.
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

/// Returns the canonical form of a quantity: `1000m` becomes `1`, `1024Mi` becomes `1Gi`.
///
/// # Errors
/// When the text is not a quantity.
pub fn canonical(s: &str) -> Result<String, QuantityError> {
    let (Amount(nanos), format, literal) = parse(s)?;
    Ok(match format {
        Format::DecimalSi | Format::DecimalExponent if nanos.abs() == MAX_NANOS => literal.canonical(format),
        Format::DecimalSi => format_decimal(nanos, false),
        Format::DecimalExponent => format_decimal(nanos, true),
        Format::BinarySi => format_binary(nanos),
    })
}

/// A parsed decimal literal.
struct DecimalLiteral<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    power: i32,
}

impl DecimalLiteral<'_> {
    /// Returns the canonical form of a number that is too large for an [`Amount`].
    fn canonical(&self, format: Format) -> String {
        let digits = format!("{}{}", self.whole, self.fraction);
        let significant = digits.trim_start_matches('0').trim_end_matches('0');
        let zeros = digits.len() - digits.trim_end_matches('0').len();
        let power = i64::from(self.power) - digit_count(self.fraction) + i64::try_from(zeros).unwrap_or(i64::MAX);
        // `E` (10^18) is the largest suffix.
        let max_power = if format == Format::DecimalSi { 18 } else { i64::MAX };
        let suffix_power = (power - power.rem_euclid(3)).min(max_power);
        let trailing_zeros = "0".repeat(usize::try_from(power - suffix_power).unwrap_or(0));
        let sign = if self.negative { "-" } else { "" };
        let suffix = match format {
            Format::DecimalExponent if suffix_power != 0 => format!("e{suffix_power}"),
            _ => DECIMAL.iter().find(|(_, p)| i64::from(*p) == suffix_power).map_or("", |(s, _)| s).to_owned(),
        };
        format!("{sign}{significant}{trailing_zeros}{suffix}")
    }
}

fn digit_count(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

fn parse(s: &str) -> Result<(Amount, Format, DecimalLiteral<'_>), QuantityError> {
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
    let max_magnitude = if format == Format::BinarySi { i128::from(i64::MAX) * NANO } else { MAX_NANOS };
    let magnitude = scale(whole, fraction, multiplier, power).map_or(max_magnitude, |nanos| nanos.min(max_magnitude));
    let literal = DecimalLiteral { negative, whole, fraction, power };
    Ok((Amount(if negative { -magnitude } else { magnitude }), format, literal))
}

fn parse_suffix(suffix: &str) -> Result<(i128, i32, Format), QuantityError> {
    if let Some((_, m)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Ok((*m, 0, Format::BinarySi));
    }
    if let Some((_, p)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Ok((1, *p, Format::DecimalSi));
    }
    let exponent: Option<i32> = suffix.strip_prefix(['e', 'E']).and_then(|exponent| exponent.parse().ok());
    let wrong = if is_well_formed(suffix) { QuantityError::Suffix } else { QuantityError::Format };
    exponent.map(|power| (1, power, Format::DecimalExponent)).ok_or(wrong)
}

/// Returns whether a suffix is well-formed: `[eEinumkKMGTP]*[-+]?[0-9]*`.
fn is_well_formed(suffix: &str) -> bool {
    let rest = suffix.trim_start_matches(|letter: char| "eEinumkKMGTP".contains(letter));
    let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    digits.bytes().all(|b| b.is_ascii_digit())
}

/// Returns `whole.fraction × multiplier × 10^power` in nano-units, rounded up; `None` on overflow.
fn scale(whole: &str, fraction: &str, multiplier: i128, power: i32) -> Option<i128> {
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let exponent = i64::from(power) + 9 - digit_count(fraction) + digit_count(&digits) - digit_count(significant);
    let significant = significant.trim_start_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    if multiplier == 1 {
        return scale_decimal(significant, exponent);
    }
    // Keep the digits of the largest amount and 18 decimals; further digits only matter for rounding up.
    let decimals = usize::try_from(9 - exponent).unwrap_or(0);
    let cut = significant.len().saturating_sub(decimals.saturating_sub(18));
    let (kept, dropped) = significant.split_at(cut);
    let exponent = exponent + digit_count(dropped);
    let mantissa = kept.parse::<i128>().ok()?.checked_mul(multiplier)?;
    let ten = 10i128.checked_pow(u32::try_from(exponent.unsigned_abs()).ok()?)?;
    let exact = exponent >= 0 || mantissa % ten == 0;
    let nanos = if exponent >= 0 { mantissa.checked_mul(ten)? } else { div_ceil(mantissa, ten) };
    Some(if exact && !dropped.is_empty() { nanos.saturating_add(1) } else { nanos })
}

/// Returns `significant × 10^exponent`, rounded up; `significant` has no leading or trailing zeros.
fn scale_decimal(significant: &str, exponent: i64) -> Option<i128> {
    if let Ok(zeros) = u32::try_from(exponent) {
        return significant.parse::<i128>().ok()?.checked_mul(10i128.checked_pow(zeros)?);
    }
    let kept = usize::try_from(digit_count(significant) + exponent).unwrap_or(0);
    let whole = if kept == 0 { 0 } else { significant[..kept].parse::<i128>().ok()? };
    whole.checked_add(1)
}

fn div_ceil(a: i128, b: i128) -> i128 {
    let q = a / b;
    if a % b > 0 { q + 1 } else { q }
}

fn saturate_to_i64(v: i128) -> i64 {
    i64::try_from(v).unwrap_or(if v < 0 { i64::MIN } else { i64::MAX })
}

fn format_decimal(nanos: i128, exponent_form: bool) -> String {
    if nanos == 0 {
        return "0".to_owned();
    }
    let (mut n, mut power) = (nanos, -9);
    // `E` (10^18) is the largest suffix.
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
    // As upstream, amounts below 1Ki and fractions have no binary suffix.
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
    fn quantity_is_parsed_as_upstream() {
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
        // Binary quantities are capped at 64 bits, decimal ones are not, and non-zero amounts are at least 1n.
        check("9999999999999999999Ei", i64::MAX, i64::MAX, "9223372036854775807");
        check("1e30", i64::MAX, i64::MAX, "1e30");
        check("100e98", i64::MAX, i64::MAX, "10e99");
        check("-1.5e99", i64::MIN, i64::MIN, "-1500e96");
        check("9999999999999999999999E", i64::MAX, i64::MAX, "9999999999999999999999E");
        check("1e-99", 1, 1, "1e-9");
        check("0e99", 0, 0, "0");
        check("0.00000000000000000000000000001", 1, 1, "1n");
        // Only fractions of a nano-unit are lost, and they are rounded up.
        check("21000000000000000000000008000000000000000e-013", i64::MAX, i64::MAX, "2100000000000000000000000800");
        check("123456789012345678901234567890123456789012345e-45", 124, 1, "123456790e-9");
        check("0.1234567890123456789", 124, 1, "123456790n");
        check("0.1234567890000000000000000000000000000000000000001Ki", 126_420, 127, "126419751937n");
        check("1e27", i64::MAX, i64::MAX, "1e27");
        check("42535295865117307932921825929e0", i64::MAX, i64::MAX, "42535295865117307932921825929");
    }

    #[test]
    fn unknown_suffix_differs_from_wrong_format() {
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
    fn invalid_quantity_is_refused() {
        for bad in ["", "m", "1.2.3", "1x", "1 Gi", "--1", "1e", "1ee3", "Ki", "1e9999999999", "1/2", "٣"] {
            assert!(Amount::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn canonical_form_has_the_same_value(n in -1_000_000_000i64..1_000_000_000, s in prop::sample::select(vec!["", "m", "u", "n", "k", "M", "G", "Ki", "Mi", "Gi", "Ti", "e3"])) {
            let text = format!("{n}{s}");
            let canonical_form = canonical(&text).unwrap();
            prop_assert_eq!(Amount::parse(&text).unwrap(), Amount::parse(&canonical_form).unwrap());
            prop_assert_eq!(canonical(&canonical_form).unwrap(), canonical_form);
        }

        #[test]
        fn quantity_parser_never_panics(s in "\\PC{0,24}") {
            let _ = Amount::parse(&s);
        }
    }
}
