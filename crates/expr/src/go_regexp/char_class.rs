//! Character classes: `[a-z]`, `[[:alpha:]]`, `\pL`.

use super::{RegexpError, escape};

/// POSIX classes and their members.
const POSIX: [(&str, &str); 14] = [
    ("alnum", "0-9A-Za-z"),
    ("alpha", "A-Za-z"),
    ("ascii", r"\x00-\x7f"),
    ("blank", r"\t "),
    ("cntrl", r"\x00-\x1f\x7f"),
    ("digit", "0-9"),
    ("graph", "!-~"),
    ("lower", "a-z"),
    ("print", " -~"),
    ("punct", "!-/:-@\\[-`{-~"),
    ("space", r"\t-\r "),
    ("upper", "A-Z"),
    ("word", "0-9A-Za-z_"),
    ("xdigit", "0-9A-Fa-f"),
];

/// Translates a class in brackets and returns the rest of the pattern (`parser.parseClass`).
pub(super) fn translate(text: &str) -> Result<(String, &str), RegexpError> {
    let missing = || RegexpError::MissingBracket(text.to_owned());
    let mut out = "[".to_owned();
    let mut rest = &text[1..];
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
    }
    let mut first = true;
    loop {
        let Some(next) = rest.chars().next() else { return Err(missing()) };
        if next == ']' && !first {
            break;
        }
        first = false;
        if let Some((name, after)) = translate_posix_class(rest)? {
            out.push_str(&name);
            rest = after;
        } else if let Some((group, after)) = escape::translate_class(rest)? {
            out.push_str(&group);
            rest = after;
        } else {
            let (from, after) = parse_char(rest, text)?;
            let (to, after) = match after.strip_prefix('-').filter(|after| !after.starts_with(']')) {
                Some(end) => parse_char(end, text)?,
                None => (from, after),
            };
            if to < from {
                let shown = &rest[..rest.len() - after.len()];
                return Err(RegexpError::CharacterRange(shown.to_owned()));
            }
            out.push_str(&format!(r"\x{{{:x}}}-\x{{{:x}}}", u32::from(from), u32::from(to)));
            rest = after;
        }
    }
    out.push(']');
    Ok((out, &rest[1..]))
}

/// Parses a character of a class.
fn parse_char<'a>(text: &'a str, class: &str) -> Result<(char, &'a str), RegexpError> {
    if text.starts_with('\\') {
        return escape::parse_escape(text);
    }
    let mut chars = text.chars();
    let c = chars.next().ok_or_else(|| RegexpError::MissingBracket(class.to_owned()))?;
    Ok((c, chars.as_str()))
}

/// Translates `[:alpha:]` or `[:^alpha:]`.
fn translate_posix_class(text: &str) -> Result<Option<(String, &str)>, RegexpError> {
    let Some((name, rest)) = text.strip_prefix("[:").and_then(|after| after.split_once(":]")) else { return Ok(None) };
    let (not, plain) = name.strip_prefix('^').map_or(("", name), |plain| ("^", plain));
    let Some((_, class)) = POSIX.iter().find(|(known, _)| *known == plain) else {
        return Err(RegexpError::CharacterRange(format!("[:{name}:]")));
    };
    Ok(Some((format!("[{not}{class}]"), rest)))
}

/// Translates `\pL`, `\p{Greek}`, `\P{Lu}` or `\p{^Lu}`.
pub(super) fn translate_unicode_class(text: &str) -> Result<(String, &str), RegexpError> {
    let invalid = |shown: &str| RegexpError::CharacterRange(shown.to_owned());
    let (mut not, after) = (text.starts_with(r"\P"), &text[2..]);
    let (name, rest) = match after.strip_prefix('{') {
        Some(braced) => braced.split_once('}').ok_or_else(|| invalid(text))?,
        None => {
            let end = after.chars().next().map_or(0, char::len_utf8);
            after.split_at(end)
        }
    };
    let shown = &text[..text.len() - rest.len()];
    let plain = name.strip_prefix('^').inspect(|_| not = !not).unwrap_or(name);
    // Rust supports more syntax for classes.
    let is_name = !plain.is_empty() && plain.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let class = format!(r"\{}{{{plain}}}", if not { 'P' } else { 'p' });
    let is_known = is_name && regex::Regex::new(&class).is_ok();
    is_known.then_some((class, rest)).ok_or_else(|| invalid(shown))
}
