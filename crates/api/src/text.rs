//! Texts that must not grow longer than their readers allow, and those that stand for a yes.

/// The beginning of a text, of at most `most` bytes, without half of a character at its end.
#[must_use]
pub fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

/// What a parameter of a query says that is there: `0` and `false` are no, and everything else is yes
/// (`Convert_Slice_string_To_bool`). Clients in Python say `True`.
#[must_use]
pub fn is_yes(parameter: &str) -> bool {
    parameter != "0" && !parameter.eq_ignore_ascii_case("false")
}

#[cfg(test)]
mod tests {
    use super::{beginning, is_yes};

    #[test]
    fn all_but_a_no_is_a_yes() {
        for (text, expected) in
            [("true", true), ("True", true), ("1", true), ("", true), ("x", true), ("0", false), ("False", false)]
        {
            assert_eq!(is_yes(text), expected, "{text}");
        }
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        for (text, most, expected) in
            [("short", 9, "short"), ("short", 2, "sh"), ("éé", 3, "é"), ("é", 1, ""), ("", 0, "")]
        {
            assert_eq!(beginning(text, most), expected, "{text} {most}");
        }
    }
}
