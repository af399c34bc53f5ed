//! Escape sequences and literals.

use super::{RegexpError, char_class};

/// Escapes a literal character for the `regex` crate.
pub(super) fn literal(c: char) -> String {
    if c.is_alphanumeric() || matches!(c, ' ' | '_' | '"' | '\'' | '/' | ',' | ';' | ':' | '=' | '!' | '@' | '%' | '`')
    {
        return c.to_string();
    }
    format!(r"\x{{{:x}}}", u32::from(c))
}

/// Translates an escape sequence and returns the rest of the pattern.
pub(super) fn translate(text: &str) -> Result<(String, &str), RegexpError> {
    if let Some((group, rest)) = translate_class(text)? {
        return Ok((format!("[{group}]"), rest));
    }
    let (c, rest) = parse_escape(text)?;
    Ok((literal(c), rest))
}

/// Translates a Perl or Unicode class for use within brackets.
pub(super) fn translate_class(text: &str) -> Result<Option<(String, &str)>, RegexpError> {
    let Some(after) = text.strip_prefix('\\') else { return Ok(None) };
    let mut chars = after.chars();
    let (name, rest) = (chars.next(), chars.as_str());
    let perl = match name {
        Some('d') => "0-9",
        Some('D') => "[^0-9]",
        Some('s') => r"\t\n\x0c\r ",
        Some('S') => r"[^\t\n\x0c\r ]",
        Some('w') => "0-9A-Za-z_",
        Some('W') => "[^0-9A-Za-z_]",
        Some('p' | 'P') => return char_class::translate_unicode_class(text).map(Some),
        _ => return Ok(None),
    };
    Ok(Some((perl.to_owned(), rest)))
}

/// Parses the character of an escape sequence (`parser.parseEscape`).
pub(super) fn parse_escape(text: &str) -> Result<(char, &str), RegexpError> {
    let after = &text[1..];
    let mut chars = after.chars();
    let Some(c) = chars.next() else { return Err(RegexpError::TrailingBackslash) };
    let rest = chars.as_str();
    let wrong = |rest: &str| Err(RegexpError::Escape(text[..text.len() - rest.len()].to_owned()));
    let plain = match c {
        'a' => '\u{7}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        'x' => return parse_hex(text, rest),
        // A single digit would be a backreference, which is unsupported.
        '1'..='7' if !rest.starts_with(|c: char| matches!(c, '0'..='7')) => return wrong(rest),
        '0'..='7' => {
            let digits = rest.bytes().take(2).take_while(|b| matches!(b, b'0'..=b'7')).count();
            let number = u32::from_str_radix(&after[..=digits], 8).unwrap_or_default();
            return Ok((char::from_u32(number).unwrap_or_default(), &rest[digits..]));
        }
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
        _ => return wrong(rest),
    };
    Ok((plain, rest))
}

/// Parses `\x7F` or `\x{10FFFF}`.
fn parse_hex<'a>(text: &str, rest: &'a str) -> Result<(char, &'a str), RegexpError> {
    let (digits, after) = match rest.strip_prefix('{') {
        Some(braced) => braced.split_once('}').unwrap_or((braced, "")),
        None => rest.split_at_checked(2).unwrap_or((rest, "")),
    };
    let is_number = !digits.is_empty() && digits.len() <= 8 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let number = if is_number { u32::from_str_radix(digits, 16).ok() } else { None };
    let shown = &text[..text.len() - after.len()];
    let c = number.and_then(char::from_u32).filter(|_| rest.starts_with('{') || digits.len() == 2);
    c.map(|c| (c, after)).ok_or_else(|| RegexpError::Escape(shown.to_owned()))
}
