//! Which spelling of a quantity is kept (the fast path of `ParseQuantity`): mostly the canonical one, though not only.

use super::{Amount, BINARY, Format, QuantityError, canonical, parse, parse_suffix};

/// So many digits the fast path takes (`maxInt64Factors`).
const DIGITS: usize = 18;

/// The form in which upstream shows a quantity that somebody writes: `1E9`, `+5Mi` and `007` stay as they are, `1000m` is
/// `1`.
///
/// # Errors
/// When it is no quantity.
pub fn shown(text: &str) -> Result<String, QuantityError> {
    let usual = canonical(text)?;
    Ok(if is_kept(text) { text.to_owned() } else { usual })
}

/// The same, rounded up to a thousandth (`Quantity.RoundUp`), if it is not a number of those.
#[must_use]
pub fn rounded(text: &str) -> Option<String> {
    let (amount, format, _) = parse(text).ok()?;
    let milli = amount.milli();
    if milli == i64::MAX || amount == Amount::milli_units(milli) {
        return None;
    }
    let suffix = if format == Format::DecimalExponent { "e-3" } else { "m" };
    canonical(&format!("{milli}{suffix}")).ok()
}

/// Whether a quantity keeps its spelling. Upstream looks at the digits alone: what it takes for canonical by them it keeps,
/// with its sign, zeros and exponent.
fn is_kept(text: &str) -> bool {
    if text == "0" {
        return true;
    }
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text).trim_start_matches('0');
    let (whole, rest) = unsigned.split_at(digits(unsigned));
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), |rest| rest.split_at(digits(rest)));
    if let Some(at) = BINARY.iter().position(|(name, _)| *name == suffix) {
        // Each of these suffixes counts as three digits.
        let room = 14_usize.checked_sub(3 * (at + 1));
        let fits = fraction.is_empty() && room.is_some_and(|room| whole.len() <= room);
        return fits && whole.parse::<u64>().is_ok_and(|number| number % 8 != 0);
    }
    let Ok((_, power, _)) = parse_suffix(suffix) else { return false };
    let (all, scale) = ([whole, fraction].concat(), i64::from(power) - super::len(fraction));
    let fits = !whole.is_empty() && all.len() <= DIGITS && scale >= -9;
    fits && scale % 3 == 0 && !all.ends_with("000")
}

#[cfg(test)]
mod tests {
    use super::{rounded, shown};

    #[test]
    fn what_looks_canonical_to_upstream_keeps_its_spelling() {
        for kept in [
            "0", "1", "+1", "-1", "007", "1E9", "1e9", "1e+9", "12E", "100m", "+5Mi", "05Mi", "12Mi", "1025Ki", "1500",
            "1.500", "1.500k", "5.", "1.G", "100.100", "2000001n", "99999Gi", "12Ti", "12e-3",
        ] {
            assert_eq!(shown(kept).as_deref(), Ok(kept));
        }
        for (text, usual) in [
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
            assert_eq!(shown(text).as_deref(), Ok(usual), "{text}");
        }
    }

    #[test]
    fn thousandths_are_the_finest_of_a_list() {
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
            assert_eq!(rounded(text).as_deref(), expected, "{text}");
        }
    }
}
