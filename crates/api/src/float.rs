//! Formatting of floating-point numbers as Go's `%g`.

use std::fmt::{Display, LowerExp};

/// Formats a number as `%v` and `%g` do: large and small numbers have an exponent of at least two digits.
#[must_use]
pub fn format_float(number: impl Display + LowerExp) -> String {
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::format_float;

    #[test]
    fn float_has_an_exponent_from_a_million_on() {
        for (number, expected) in [
            (0.0, "0"),
            (1.5, "1.5"),
            (100_000.0, "100000"),
            (1e6, "1e+06"),
            (-1.25e30, "-1.25e+30"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
        ] {
            assert_eq!(format_float(number), expected);
        }
        assert_eq!(format_float(0.1_f32), "0.1");
    }
}
