//! Field paths of validation rules and selectable fields: field names after dots or quoted in brackets
//! (`ValidFieldPath`). Unlike in JSONPath, a quoted dot is part of the name.

use crate::Schema;
use api::field::FieldPath;

const DELIMITERS: [char; 3] = ['.', '[', ']'];

/// Error for an invalid field path, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldPathError {
    /// Bracket notation where it is not allowed.
    #[error("array notation is not allowed")]
    ArrayNotation,
    /// The path is incomplete.
    #[error("unexpected end of JSON path")]
    UnexpectedEnd,
    /// A name in brackets without quotes.
    #[error("expected single quoted string but got {0}")]
    MissingQuotes(String),
    /// Missing closing bracket.
    #[error("expected ] but got {0}")]
    MissingBracket(String),
    /// Unexpected token instead of a bracket or dot.
    #[error("expected [ or . but got: {0}")]
    UnexpectedToken(String),
    /// The field does not exist.
    #[error("does not refer to a valid field")]
    UnknownField,
    /// Invalid escape sequence in a quoted name.
    #[error("invalid string literal: invalid escape char \\{0}")]
    EscapeCharacter(char),
}

/// Result of resolving a field path.
#[derive(Debug, Default)]
pub struct ResolvedFieldPath<'a> {
    /// The path as in error messages.
    pub path: FieldPath,
    /// The first field name.
    pub first: String,
    /// The schema of the field; `None` below `additionalProperties: true`.
    pub schema: Option<&'a Schema>,
}

impl Schema {
    /// Resolves a field path; `brackets` allows bracket notation.
    ///
    /// # Errors
    /// For a syntax error, or a field that does not exist.
    pub fn resolve_field_path(&self, path: &str, brackets: bool) -> Result<ResolvedFieldPath<'_>, FieldPathError> {
        let mut found = ResolvedFieldPath { schema: Some(self), ..ResolvedFieldPath::default() };
        let mut rest = path;
        while let Some(token) = next_token(&mut rest) {
            match token {
                "[" if !brackets => return Err(FieldPathError::ArrayNotation),
                "[" => {
                    let token = next_token(&mut rest).ok_or(FieldPathError::UnexpectedEnd)?;
                    let name = token.strip_prefix('\'').and_then(|t| t.strip_suffix('\''));
                    let name = name.ok_or_else(|| FieldPathError::MissingQuotes(token.to_owned()))?;
                    found.descend(&unescape(name)?)?;
                    match next_token(&mut rest).ok_or(FieldPathError::UnexpectedEnd)? {
                        "]" => {}
                        other => return Err(FieldPathError::MissingBracket(other.to_owned())),
                    }
                }
                "." => found.descend(next_token(&mut rest).ok_or(FieldPathError::UnexpectedEnd)?)?,
                other => return Err(FieldPathError::UnexpectedToken(other.to_owned())),
            }
        }
        Ok(found)
    }
}

impl ResolvedFieldPath<'_> {
    fn descend(&mut self, name: &str) -> Result<(), FieldPathError> {
        let schema = self.schema.ok_or(FieldPathError::UnknownField)?;
        let is_first = self.first.is_empty();
        if !schema.properties.is_empty() {
            self.schema = Some(schema.properties.get(name).ok_or(FieldPathError::UnknownField)?);
            self.path = self.path.child(name);
        } else if schema.additional.is_specified() {
            self.schema = schema.additional.schema();
            self.path = self.path.key(name);
        } else {
            return Err(FieldPathError::UnknownField);
        }
        if is_first {
            name.clone_into(&mut self.first);
        }
        Ok(())
    }
}

/// Returns the next token: a delimiter, a quoted string, or the text up to the next delimiter.
fn next_token<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let text = *rest;
    let end = match text.chars().next()? {
        '\'' => closing_quote(text).unwrap_or(text.len()),
        first if DELIMITERS.contains(&first) => 1,
        _ => text.find(DELIMITERS).unwrap_or(text.len()),
    };
    let (token, left) = text.split_at(end);
    *rest = left;
    Some(token)
}

/// Returns the end of a quoted string.
fn closing_quote(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    (1..bytes.len()).find(|i| bytes[*i] == b'\'' && bytes[i - 1] != b'\\').map(|i| i + 1)
}

fn unescape(text: &str) -> Result<String, FieldPathError> {
    let (mut plain, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        plain.push(match chars.next() {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some('\'') => '\'',
            Some('\\') | None => '\\',
            Some(other) => return Err(FieldPathError::EscapeCharacter(other)),
        });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use crate::Schema;
    use serde_json::json;

    fn schema() -> Schema {
        Schema::parse(&json!({"type": "object", "properties": {
            "foo": {"type": "object", "properties": {"bar": {"type": "string"}, "a.b": {"type": "string"},
                "c\nd": {"type": "string"}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "string"}}}},
            "any": {"type": "object", "additionalProperties": true},
            "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
        }}))
    }

    #[test]
    fn field_path_resolves_to_declared_fields() {
        for (path, expected) in [
            (".foo.bar", "foo.bar"),
            ("['foo']['bar']", "foo.bar"),
            (".foo['a.b']", "foo.a.b"),
            (".foo['c\\nd']", "foo.c\nd"),
            (".map['a.b/c'].x", "map[a.b/c].x"),
            (".map.k.x", "map[k].x"),
            (".any['k']", "any[k]"),
            (".list", "list"),
        ] {
            let schema = schema();
            assert_eq!(
                schema.resolve_field_path(path, true).map(|f| f.path.to_string()),
                Ok(expected.to_owned()),
                "{path}"
            );
        }
    }

    #[test]
    fn invalid_field_path_has_upstreams_message() {
        for (path, detail) in [
            (".nothing", "does not refer to a valid field"),
            (".foo.bar.x", "does not refer to a valid field"),
            (".any.k.x", "does not refer to a valid field"),
            (".list[0].x", "expected single quoted string but got 0"),
            (".list['x']", "does not refer to a valid field"),
            ("foo", "expected [ or . but got: foo"),
            (".", "unexpected end of JSON path"),
            (".foo[", "unexpected end of JSON path"),
            (".foo['bar'", "unexpected end of JSON path"),
            (".foo['bar'.", "expected ] but got ."),
            (".foo['b\\q']", "invalid string literal: invalid escape char \\q"),
            (".foo[\"bar\"]", "expected single quoted string but got \"bar\""),
        ] {
            let schema = schema();
            assert_eq!(schema.resolve_field_path(path, true).unwrap_err().to_string(), detail, "{path}");
        }
        let schema = schema();
        let error = schema.resolve_field_path(".foo['bar']", false).unwrap_err();
        assert_eq!(error.to_string(), "array notation is not allowed");
    }
}
