//! Name of a request's field manager.

use crate::objects::call::Call;
use errors::ApiError;
use http::header;
use kinds::{FieldErrors, FieldPath};
use serde_json::json;

/// Maximum length of a manager's name, in bytes (upstream's `FieldManagerMaxLength`).
const MAX_LENGTH: usize = 128;

/// Returns `fieldManager` of a request, or the first word of its `User-Agent` (upstream's `managerOrUserAgent`).
pub(crate) fn field_manager_name(call: &Call) -> String {
    if let Some(manager) = call.query.get("fieldManager") {
        return manager.to_owned();
    }
    let agent = call.headers.get(header::USER_AGENT).map(|v| String::from_utf8_lossy(v.as_bytes())).unwrap_or_default();
    let mut name = String::new();
    for c in agent.split('/').next().unwrap_or("").chars().filter(|c| is_printable(*c)) {
        if name.len() + c.len_utf8() > MAX_LENGTH {
            break;
        }
        name.push(c);
    }
    name
}

/// Validates `fieldManager` and `force` (`ValidateFieldManager`, `ValidatePatchOptions`); `options` is for example
/// `PatchOptions`. An apply requires a manager, and only an apply may use `force`.
pub(crate) fn validate_field_manager(call: &Call, options: &str, is_apply: bool) -> Result<(), ApiError> {
    let (mut errors, path) = (FieldErrors::default(), FieldPath::new("fieldManager"));
    let name = call.query.get("fieldManager").unwrap_or("");
    if is_apply && name.is_empty() {
        errors.required(&path, "is required for apply patch");
    }
    if !is_apply && options == "PatchOptions" && call.query.has("force") {
        errors.forbidden(&FieldPath::new("force"), "may not be specified for non-apply patch");
    }
    if name.len() > MAX_LENGTH {
        errors.too_long(&path, MAX_LENGTH);
    }
    for (position, c) in name.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let code = u32::from(c);
        errors.invalid(&path, &json!(name), &format!("invalid character U+{code:04X} (at position {position})"));
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid_options(options, &errors)) }
}

/// Go's `unicode.IsPrint`: letters, marks, numbers, punctuation, symbols and the ASCII space.
fn is_printable(c: char) -> bool {
    // `escape_debug` escapes a combining mark unless it follows another character.
    let text = format!("a{c}");
    matches!(c, '"' | '\'' | '\\') || text.escape_debug().eq(text.chars())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_characters_are_those_of_go() {
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
