//! Texts that must not grow longer than their readers allow.

/// The beginning of a text, of at most `most` bytes, without half of a character at its end.
#[must_use]
pub fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::beginning;

    #[test]
    fn a_text_is_cut_between_characters() {
        for (text, most, expected) in
            [("short", 9, "short"), ("short", 2, "sh"), ("éé", 3, "é"), ("é", 1, ""), ("", 0, "")]
        {
            assert_eq!(beginning(text, most), expected, "{text} {most}");
        }
    }
}
