//! Who makes a change, by its own name.

use crate::{
    kinds::{FieldErrors, FieldPath},
    service::Call,
    status::ApiError,
};
use http::header;
use serde_json::json;

/// Upstream's bound on the names of managers, in bytes.
const MAX: usize = 128;

/// The manager that a request names; else how its client names itself, before its version.
pub(crate) fn manager(call: &Call) -> String {
    if let Some(manager) = call.query.get("fieldManager") {
        return manager.to_owned();
    }
    let agent = call.headers.get(header::USER_AGENT).map(|v| String::from_utf8_lossy(v.as_bytes())).unwrap_or_default();
    let mut name = String::new();
    for c in agent.split('/').next().unwrap_or("").chars().filter(|c| is_printable(*c)) {
        if name.len() + c.len_utf8() > MAX {
            break;
        }
        name.push(c);
    }
    name
}

/// Checks what a request says of its manager (`ValidateFieldManager`, `ValidatePatchOptions`); `options` is for example
/// `PatchOptions`. An apply must name one, and only it may use force.
pub(crate) fn require(call: &Call, options: &str, is_apply: bool) -> Result<(), ApiError> {
    let (mut errors, path) = (FieldErrors::default(), FieldPath::new("fieldManager"));
    let name = call.query.get("fieldManager").unwrap_or("");
    if is_apply && name.is_empty() {
        errors.required(&path, "is required for apply patch");
    }
    if !is_apply && options == "PatchOptions" && call.query.has("force") {
        errors.forbidden(&FieldPath::new("force"), "may not be specified for non-apply patch");
    }
    if name.len() > MAX {
        errors.too_long(&path, MAX);
    }
    for (place, c) in name.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let code = u32::from(c);
        errors.invalid(&path, &json!(name), &format!("invalid character U+{code:04X} (at position {place})"));
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid_options(options, &errors)) }
}

/// Go's `unicode.IsPrint`: letters, marks, numbers, punctuation, symbols and the plain space.
fn is_printable(c: char) -> bool {
    // A mark is shown as it is only behind something that it can stand on.
    let shown = format!("a{c}");
    matches!(c, '"' | '\'' | '\\') || shown.escape_debug().eq(shown.chars())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_seen_is_printable() {
        for (c, expected) in [
            ('a', true),
            (' ', true),
            ('"', true),
            ('\\', true),
            ('é', true),
            ('\u{301}', true),
            ('漢', true),
            ('\n', false),
            ('\0', false),
            ('\u{7f}', false),
            ('\u{200b}', false),
            ('\u{a0}', false),
        ] {
            assert_eq!(is_printable(c), expected, "{c:?}");
        }
    }
}
