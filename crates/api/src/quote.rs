//! Text in quotes.

/// As Go's `%q` shows a text.
#[must_use]
pub fn quoted(text: &str) -> String {
    quoted_bytes(text.as_bytes())
}

/// The same of bytes that need not be text.
#[must_use]
pub fn quoted_bytes(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len() + 2);
    shown.push('"');
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push(&mut shown, c));
        chunk.invalid().iter().for_each(|byte| shown.push_str(&format!("\\x{byte:02x}")));
    }
    shown.push('"');
    shown
}

fn push(shown: &mut String, c: char) {
    match c {
        '\u{7}' => shown.push_str("\\a"),
        '\u{8}' => shown.push_str("\\b"),
        '\t' => shown.push_str("\\t"),
        '\n' => shown.push_str("\\n"),
        '\u{b}' => shown.push_str("\\v"),
        '\u{c}' => shown.push_str("\\f"),
        '\r' => shown.push_str("\\r"),
        '"' => shown.push_str("\\\""),
        '\\' => shown.push_str("\\\\"),
        c if is_printed(c) => shown.push(c),
        c if c.is_ascii() => shown.push_str(&format!("\\x{:02x}", u32::from(c))),
        c if c < '\u{10000}' => shown.push_str(&format!("\\u{:04x}", u32::from(c))),
        c => shown.push_str(&format!("\\U{:08x}", u32::from(c))),
    }
}

/// Whether Rust would show it as it is, after another: there it is that Go shows what combines with what is before it.
fn is_printed(c: char) -> bool {
    let mut after = [0; 5];
    after[0] = b'a';
    let len = c.encode_utf8(&mut after[1..]).len();
    let text = std::str::from_utf8(&after[..=len]).unwrap_or_default();
    c == '\'' || text.escape_debug().eq(text.chars())
}

#[cfg(test)]
mod tests {
    use super::{quoted, quoted_bytes};

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(quoted(text), expected);
    }

    #[test]
    fn text_is_quoted_as_go_does_it() {
        check("", r#""""#);
        check("it's \"a\" \\ b", r#""it's \"a\" \\ b""#);
        check("\u{7}\u{8}\t\n\u{b}\u{c}\r", r#""\a\b\t\n\v\f\r""#);
        check("b\u{1}\u{0}\u{7f}", r#""b\x01\x00\x7f""#);
        check("\u{200b}\u{e000}\u{f0000}", r#""\u200b\ue000\U000f0000""#);
        assert_eq!(quoted_bytes(b"a\xff\xc3\xbc\x00"), "\"a\\xff\u{fc}\\x00\"");
        check("gr\u{fc}n \u{1f600} e\u{301}", "\"gr\u{fc}n \u{1f600} e\u{301}\"");
    }
}
