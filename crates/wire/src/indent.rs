//! Indentation of JSON text, as Go's `json.Indent` does it, without parsing it.

/// Indents JSON by two spaces, without a final newline.
pub fn indent(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() + json.len() / 2);
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for &byte in json {
        if in_string {
            out.push(byte);
            in_string = is_escaped || byte != b'"';
            is_escaped = byte == b'\\' && !is_escaped;
            continue;
        }
        let is_first = matches!(out.last(), Some(b'{' | b'['));
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' => continue,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if !is_first {
                    push_newline(&mut out, depth);
                }
            }
            _ if is_first => push_newline(&mut out, depth),
            _ => {}
        }
        out.push(byte);
        match byte {
            b'{' | b'[' => depth += 1,
            b',' => push_newline(&mut out, depth),
            b':' => out.push(b' '),
            b'"' => in_string = true,
            _ => {}
        }
    }
    out
}

fn push_newline(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.extend(std::iter::repeat_n(b' ', depth * 2));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(value: &Value) {
        let expected = serde_json::to_string_pretty(value).unwrap();
        let text = value.to_string();
        assert_eq!(String::from_utf8(indent(text.as_bytes())).unwrap(), expected);
        assert_eq!(String::from_utf8(indent(format!("{expected}\n").as_bytes())).unwrap(), expected);
    }

    #[test]
    fn json_indentation_keeps_values_and_order() {
        check(&json!({}));
        check(&json!([]));
        check(&json!({"a": [], "b": {}, "c": [1, -2.5, true, null, "x"], "d": {"e": [[{"f": {}}], []]}}));
        check(&json!({"a{\"[,:": "b\\", "c": "\\\" : , {", "ü": "\n"}));
        assert_eq!(indent(br#"{"b":1,"a":2}"#), b"{\n  \"b\": 1,\n  \"a\": 2\n}");
    }
}
