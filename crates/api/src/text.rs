//! String helpers: truncation, and booleans in query parameters.

/// Truncates a text to at most `max_bytes` bytes, at a character boundary.
#[must_use]
pub fn truncate(text: &str, max_bytes: usize) -> &str {
    let end = (0..=max_bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

/// Parses a boolean query parameter (`Convert_Slice_string_To_bool`): `0` and `false` in any case are false, everything else
/// is true. Python clients send `True`.
#[must_use]
pub fn parse_query_bool(parameter: &str) -> bool {
    parameter != "0" && !parameter.eq_ignore_ascii_case("false")
}

#[cfg(test)]
mod tests {
    use super::{parse_query_bool, truncate};

    #[test]
    fn query_parameter_is_true_unless_0_or_false() {
        for (text, expected) in
            [("true", true), ("True", true), ("1", true), ("", true), ("x", true), ("0", false), ("False", false)]
        {
            assert_eq!(parse_query_bool(text), expected, "{text}");
        }
    }

    #[test]
    fn text_is_truncated_at_a_character_boundary() {
        for (text, max_bytes, expected) in
            [("short", 9, "short"), ("short", 2, "sh"), ("éé", 3, "é"), ("é", 1, ""), ("", 0, "")]
        {
            assert_eq!(truncate(text, max_bytes), expected, "{text} {max_bytes}");
        }
    }
}
