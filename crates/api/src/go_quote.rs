//! Quoting of strings as Go's `%q`.

/// Quotes a string as Go's `%q`.
#[must_use]
pub fn quoted(text: &str) -> String {
    quoted_bytes(text.as_bytes())
}

/// Quotes bytes, which need not be valid UTF-8, as Go's `%q`.
#[must_use]
pub fn quoted_bytes(bytes: &[u8]) -> String {
    let mut quoted = String::with_capacity(bytes.len() + 2);
    quoted.push('"');
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push_escaped(&mut quoted, c));
        chunk.invalid().iter().for_each(|byte| quoted.push_str(&format!("\\x{byte:02x}")));
    }
    quoted.push('"');
    quoted
}

fn push_escaped(quoted: &mut String, c: char) {
    match c {
        '\u{7}' => quoted.push_str("\\a"),
        '\u{8}' => quoted.push_str("\\b"),
        '\t' => quoted.push_str("\\t"),
        '\n' => quoted.push_str("\\n"),
        '\u{b}' => quoted.push_str("\\v"),
        '\u{c}' => quoted.push_str("\\f"),
        '\r' => quoted.push_str("\\r"),
        '"' => quoted.push_str("\\\""),
        '\\' => quoted.push_str("\\\\"),
        c if is_printable(c) => quoted.push(c),
        c if c.is_ascii() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
        c if c < '\u{10000}' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
        c => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
    }
}

/// Returns whether a character is printable (`strconv.IsPrint`). It is tested after a letter, because Rust escapes combining
/// characters at the start of a string and Go does not.
fn is_printable(c: char) -> bool {
    let mut buffer = [0; 5];
    buffer[0] = b'a';
    let len = c.encode_utf8(&mut buffer[1..]).len();
    let text = std::str::from_utf8(&buffer[..=len]).unwrap_or_default();
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
    fn string_is_quoted_as_go() {
        check("", r#""""#);
        check("it's \"a\" \\ b", r#""it's \"a\" \\ b""#);
        check("\u{7}\u{8}\t\n\u{b}\u{c}\r", r#""\a\b\t\n\v\f\r""#);
        check("b\u{1}\u{0}\u{7f}", r#""b\x01\x00\x7f""#);
        check("\u{200b}\u{e000}\u{f0000}", r#""\u200b\ue000\U000f0000""#);
        assert_eq!(quoted_bytes(b"a\xff\xc3\xbc\x00"), "\"a\\xff\u{fc}\\x00\"");
        check("gr\u{fc}n \u{1f600} e\u{301}", "\"gr\u{fc}n \u{1f600} e\u{301}\"");
    }
}
