//! Normalization of quantities as they are decoded. The fast path of `ParseQuantity` keeps some non-canonical spellings.

use super::{Amount, BINARY, Format, QuantityError, canonical, parse, parse_suffix};

/// Maximum number of digits of the fast path (`maxInt64Factors`).
const MAX_DIGITS: usize = 18;

/// Returns the form in which upstream returns a quantity of a client: `1E9`, `+5Mi` and `007` are kept, `1000m` becomes
/// `1`.
///
/// # Errors
/// When the text is not a quantity.
pub fn normalize_quantity(text: &str) -> Result<String, QuantityError> {
    let canonical_form = canonical(text)?;
    Ok(if keeps_spelling(text) { text.to_owned() } else { canonical_form })
}

/// Rounds a quantity up to milli-units (`Quantity.RoundUp`); `None` if that does not change it.
#[must_use]
pub fn round_up_to_milli(text: &str) -> Option<String> {
    let (amount, format, _) = parse(text).ok()?;
    let milli = amount.milli();
    if milli == i64::MAX || amount == Amount::milli_units(milli) {
        return None;
    }
    let suffix = if format == Format::DecimalExponent { "e-3" } else { "m" };
    canonical(&format!("{milli}{suffix}")).ok()
}

/// Returns whether a quantity keeps its spelling. Upstream only checks whether the digits look canonical, and then keeps
/// sign, leading zeros and exponent.
fn keeps_spelling(text: &str) -> bool {
    if text == "0" {
        return true;
    }
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text).trim_start_matches('0');
    let (whole, rest) = unsigned.split_at(digits(unsigned));
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), |rest| rest.split_at(digits(rest)));
    if let Some(at) = BINARY.iter().position(|(name, _)| *name == suffix) {
        // Each step of the binary suffixes counts as three digits.
        let max_digits = 14_usize.checked_sub(3 * (at + 1));
        let fits = fraction.is_empty() && max_digits.is_some_and(|max_digits| whole.len() <= max_digits);
        return fits && whole.parse::<u64>().is_ok_and(|number| number % 8 != 0);
    }
    let Ok((_, power, _)) = parse_suffix(suffix) else { return false };
    let (all, scale) = ([whole, fraction].concat(), i64::from(power) - super::digit_count(fraction));
    let fits = !whole.is_empty() && all.len() <= MAX_DIGITS && scale >= -9;
    fits && scale % 3 == 0 && !all.ends_with("000")
}

#[cfg(test)]
mod tests {
    use super::{normalize_quantity, round_up_to_milli};

    #[test]
    fn quantity_that_looks_canonical_keeps_its_spelling() {
        for kept in [
            "0", "1", "+1", "-1", "007", "1E9", "1e9", "1e+9", "12E", "100m", "+5Mi", "05Mi", "12Mi", "1025Ki", "1500",
            "1.500", "1.500k", "5.", "1.G", "100.100", "2000001n", "99999Gi", "12Ti", "12e-3",
        ] {
            assert_eq!(normalize_quantity(kept).as_deref(), Ok(kept));
        }
        for (text, canonical_form) in [
            ("00", "0"),
            ("+0", "0"),
            ("0Ki", "0"),
            ("1000", "1k"),
            ("+1000", "1k"),
            ("1000m", "1"),
            ("1.5", "1500m"),
            ("0.5", "500m"),
            (".500", "500m"),
            ("1.000", "1"),
            ("1E8", "100e6"),
            ("2000E3", "2e6"),
            ("+8Mi", "8Mi"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("+100001Gi", "100001Gi"),
            ("+123Ti", "123Ti"),
            ("+1Pi", "1Pi"),
            ("+1234567890123456789", "1234567890123456789"),
            ("1.0000000001", "1000000001n"),
        ] {
            assert_eq!(normalize_quantity(text).as_deref(), Ok(canonical_form), "{text}");
        }
    }

    #[test]
    fn quantity_is_rounded_up_to_milli_units() {
        for (text, expected) in [
            ("1", None),
            ("1m", None),
            ("+1E9", None),
            ("1n", Some("1m")),
            ("1500u", Some("2m")),
            ("1.234500", Some("1235m")),
            ("1e-9", Some("1e-3")),
            ("0.0001Ki", Some("103m")),
        ] {
            assert_eq!(round_up_to_milli(text).as_deref(), expected, "{text}");
        }
    }
}
