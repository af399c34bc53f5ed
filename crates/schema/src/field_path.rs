//! Field paths of validation rules and selectable fields: field names after dots or quoted in brackets
//! (`ValidFieldPath`). Unlike in JSONPath, a quoted dot is part of the name.

use crate::Schema;
use api::field::FieldPath;

const INVALID_FIELD: &str = "does not refer to a valid field";
const UNEXPECTED_END: &str = "unexpected end of JSON path";
const DELIMITERS: [char; 3] = ['.', '[', ']'];

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
    pub fn resolve_field_path(&self, path: &str, brackets: bool) -> Result<ResolvedFieldPath<'_>, String> {
        let mut found = ResolvedFieldPath { schema: Some(self), ..ResolvedFieldPath::default() };
        let mut rest = path;
        while let Some(token) = next_token(&mut rest) {
            match token {
                "[" if !brackets => return Err("array notation is not allowed".to_owned()),
                "[" => {
                    let token = next_token(&mut rest).ok_or(UNEXPECTED_END)?;
                    let name = token.strip_prefix('\'').and_then(|t| t.strip_suffix('\''));
                    let name = name.ok_or_else(|| format!("expected single quoted string but got {token}"))?;
                    found.descend(&unescape(name)?)?;
                    match next_token(&mut rest).ok_or(UNEXPECTED_END)? {
                        "]" => {}
                        other => return Err(format!("expected ] but got {other}")),
                    }
                }
                "." => found.descend(next_token(&mut rest).ok_or(UNEXPECTED_END)?)?,
                other => return Err(format!("expected [ or . but got: {other}")),
            }
        }
        Ok(found)
    }
}

impl ResolvedFieldPath<'_> {
    fn descend(&mut self, name: &str) -> Result<(), String> {
        let schema = self.schema.ok_or(INVALID_FIELD)?;
        let is_first = self.first.is_empty();
        if !schema.properties.is_empty() {
            self.schema = Some(schema.properties.get(name).ok_or(INVALID_FIELD)?);
            self.path = self.path.child(name);
        } else if schema.additional.is_specified() {
            self.schema = schema.additional.schema();
            self.path = self.path.key(name);
        } else {
            return Err(INVALID_FIELD.to_owned());
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

fn unescape(text: &str) -> Result<String, String> {
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
            Some(other) => return Err(format!("invalid string literal: invalid escape char \\{other}")),
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
                schema.resolve_field_path(path, true).map(|f| f.path.to_string()).as_deref(),
                Ok(expected),
                "{path}"
            );
        }
    }

    #[test]
    fn invalid_field_path_has_upstreams_message() {
        for (path, why) in [
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
            assert_eq!(schema.resolve_field_path(path, true).err().unwrap_or_default(), why, "{path}");
        }
        let schema = schema();
        assert_eq!(
            schema.resolve_field_path(".foo['bar']", false).err().as_deref(),
            Some("array notation is not allowed")
        );
    }
}
