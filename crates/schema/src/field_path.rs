//! The paths of rules and selectable fields: names behind dots or, quoted, in brackets, that a schema knows
//! (`ValidFieldPath`). They are no JSONPath: within quotes a dot is a dot.

use crate::Schema;
use api::field::FieldPath;

const NOWHERE: &str = "does not refer to a valid field";
const ENDS: &str = "unexpected end of JSON path";
const DELIMITERS: [char; 3] = ['.', '[', ']'];

/// Where a path leads.
#[derive(Debug, Default)]
pub struct Found<'a> {
    /// The path, as errors write it.
    pub path: FieldPath,
    /// The name that it begins with.
    pub first: String,
    /// What is there; nothing is known of what an `additionalProperties: true` allows.
    pub schema: Option<&'a Schema>,
}

impl Schema {
    /// Where a path leads from here; `brackets` says whether it may have any.
    ///
    /// # Errors
    /// When it leads nowhere, or is no path.
    pub fn at_path(&self, path: &str, brackets: bool) -> Result<Found<'_>, String> {
        let mut found = Found { schema: Some(self), ..Found::default() };
        let mut rest = path;
        while let Some(token) = next(&mut rest) {
            match token {
                "[" if !brackets => return Err("array notation is not allowed".to_owned()),
                "[" => {
                    let token = next(&mut rest).ok_or(ENDS)?;
                    let name = token.strip_prefix('\'').and_then(|t| t.strip_suffix('\''));
                    let name = name.ok_or_else(|| format!("expected single quoted string but got {token}"))?;
                    found.enter(&unescape(name)?)?;
                    match next(&mut rest).ok_or(ENDS)? {
                        "]" => {}
                        other => return Err(format!("expected ] but got {other}")),
                    }
                }
                "." => found.enter(next(&mut rest).ok_or(ENDS)?)?,
                other => return Err(format!("expected [ or . but got: {other}")),
            }
        }
        Ok(found)
    }
}

impl Found<'_> {
    fn enter(&mut self, name: &str) -> Result<(), String> {
        let schema = self.schema.ok_or(NOWHERE)?;
        let is_first = self.first.is_empty();
        if !schema.properties.is_empty() {
            self.schema = Some(schema.properties.get(name).ok_or(NOWHERE)?);
            self.path = self.path.child(name);
        } else if schema.additional.is_said() {
            self.schema = schema.additional.schema();
            self.path = self.path.key(name);
        } else {
            return Err(NOWHERE.to_owned());
        }
        if is_first {
            name.clone_into(&mut self.first);
        }
        Ok(())
    }
}

/// Takes a delimiter, a quoted text, or what stands before the next delimiter.
fn next<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let text = *rest;
    let end = match text.chars().next()? {
        '\'' => closing(text).unwrap_or(text.len()),
        first if DELIMITERS.contains(&first) => 1,
        _ => text.find(DELIMITERS).unwrap_or(text.len()),
    };
    let (token, left) = text.split_at(end);
    *rest = left;
    Some(token)
}

/// Where a quoted text ends.
fn closing(text: &str) -> Option<usize> {
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
        Schema::read(&json!({"type": "object", "properties": {
            "foo": {"type": "object", "properties": {"bar": {"type": "string"}, "a.b": {"type": "string"},
                "c\nd": {"type": "string"}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "string"}}}},
            "any": {"type": "object", "additionalProperties": true},
            "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
        }}))
    }

    #[test]
    fn paths_lead_to_what_the_schema_knows() {
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
            assert_eq!(schema.at_path(path, true).map(|f| f.path.to_string()).as_deref(), Ok(expected), "{path}");
        }
    }

    #[test]
    fn other_paths_are_refused_with_upstreams_words() {
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
            assert_eq!(schema.at_path(path, true).err().unwrap_or_default(), why, "{path}");
        }
        let schema = schema();
        assert_eq!(schema.at_path(".foo['bar']", false).err().as_deref(), Some("array notation is not allowed"));
    }
}
