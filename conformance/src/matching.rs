//! Compares responses with expected values.
//!
//! An object must have at least the expected fields, an array exactly the expected items; `null` matches null and a missing
//! field. An object whose only key starts with `$` is a matcher:
//!
//! | matcher | matches |
//! | --- | --- |
//! | `$any: true` | any value but null |
//! | `$contains: [a, b]` | an array with a matching item for each of these |
//! | `$exactly: value` | this value without further fields |
//! | `$has: text` | a string that contains the text |
//! | `$hasnt: text` | a string that does not contain the text |
//! | `$len: n` | an array, an object or a string of this length |
//! | `$matches: pattern` | a string that matches the pattern as a whole |
//! | `$more: n` | a number, or a number in a string, greater than `n` |
//! | `$not: value` | a value that does not match |
//! | `$one_of: [a, b]` | a value that matches one of these |

use serde_json::Value;

/// Shown length of a value. The report has the whole response.
const MAX_SHOWN: usize = 500;

/// Returns each path at which `actual` does not match, with the actual value.
pub(crate) fn differences(expected: &Value, actual: Option<&Value>) -> Vec<String> {
    let mut found = Vec::new();
    compare("", expected, actual, &mut found);
    found
}

fn compare(at: &str, expected: &Value, actual: Option<&Value>, found: &mut Vec<String>) {
    if let Some((matcher, argument)) = matcher(expected) {
        if matcher == "contains"
            && let (Value::Array(expected), Some(Value::Array(given))) = (argument, actual)
        {
            // The actual array is often long, so only missing items are shown.
            let missing = expected
                .iter()
                .filter(|wanted_item| !given.iter().any(|item| differences(wanted_item, Some(item)).is_empty()));
            found.extend(missing.map(|wanted_item| format!("{at}: no item is {wanted_item}")));
        } else if !matches_value(matcher, argument, actual) {
            found.push(format!("{at}: expected {expected}, got {}", shown(actual)));
        }
        return;
    }
    match (expected, actual) {
        (Value::Null, None | Some(Value::Null)) => {}
        (Value::Object(fields), Some(Value::Object(given))) => {
            for (key, field) in fields {
                compare(&format!("{at}/{key}"), field, given.get(key), found);
            }
        }
        (Value::Array(items), Some(Value::Array(given))) if items.len() == given.len() => {
            for (i, item) in items.iter().enumerate() {
                compare(&format!("{at}/{i}"), item, given.get(i), found);
            }
        }
        (_, Some(given)) if given == expected => {}
        _ => found.push(format!("{at}: expected {expected}, got {}", shown(actual))),
    }
}

fn matcher(expected: &Value) -> Option<(&str, &Value)> {
    let (key, argument) = expected.as_object().filter(|o| o.len() == 1)?.iter().next()?;
    Some((key.strip_prefix('$')?, argument))
}

fn matches_value(matcher: &str, argument: &Value, actual: Option<&Value>) -> bool {
    let fits = |expected: &Value| differences(expected, actual).is_empty();
    match matcher {
        "not" => return !fits(argument),
        "one_of" => return argument.as_array().is_some_and(|all| all.iter().any(fits)),
        _ => {}
    }
    let Some(actual) = actual.filter(|a| !a.is_null()) else { return false };
    match (matcher, actual) {
        ("any", _) => true,
        ("exactly", _) => actual == argument,
        ("contains", Value::Array(given)) => argument.as_array().is_some_and(|expected| {
            expected.iter().all(|wanted_item| given.iter().any(|item| differences(wanted_item, Some(item)).is_empty()))
        }),
        ("has", Value::String(text)) => argument.as_str().is_some_and(|part| text.contains(part)),
        ("hasnt", Value::String(text)) => argument.as_str().is_some_and(|part| !text.contains(part)),
        ("len", _) => length(actual) == argument.as_u64(),
        ("matches", Value::String(text)) => argument
            .as_str()
            .and_then(|pattern| regex::Regex::new(&format!("^(?s:{pattern})$")).ok())
            .is_some_and(|pattern| pattern.is_match(text)),
        ("more", _) => number(actual).zip(number(argument)).is_some_and(|(a, b)| a > b),
        _ => false,
    }
}

fn length(value: &Value) -> Option<u64> {
    let length = match value {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        Value::String(text) => text.len(),
        _ => return None,
    };
    u64::try_from(length).ok()
}

fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

fn shown(actual: Option<&Value>) -> String {
    let text = actual.map_or_else(|| "nothing".to_owned(), Value::to_string);
    if text.chars().count() <= MAX_SHOWN { text } else { text.chars().take(MAX_SHOWN).chain("...".chars()).collect() }
}

#[cfg(test)]
mod tests {
    use super::differences;
    use serde_json::{Value, json};

    fn fits(expected: &Value, actual: &Value) -> bool {
        differences(expected, Some(actual)).is_empty()
    }

    #[test]
    fn objects_may_have_more_fields_but_arrays_no_more_items() {
        assert!(fits(&json!({"a": {"b": 1}}), &json!({"a": {"b": 1, "c": 2}, "d": 3})));
        assert!(fits(&json!([{"a": 1}, 2]), &json!([{"a": 1, "b": 2}, 2])));
        assert!(!fits(&json!([1]), &json!([1, 2])));
        assert!(!fits(&json!({"a": 1}), &json!({"a": 2})));
        assert!(!fits(&json!({"a": 1}), &json!({})));
        assert!(!fits(&json!({}), &json!([])));
        assert_eq!(
            differences(&json!({"a": [1, {"b": 2}]}), Some(&json!({"a": [1, {"b": 3}]}))),
            ["/a/1/b: expected 2, got 3"]
        );
    }

    #[test]
    fn null_matches_missing_fields() {
        assert!(fits(&json!({"a": null}), &json!({})));
        assert!(fits(&json!({"a": null}), &json!({"a": null})));
        assert!(!fits(&json!({"a": null}), &json!({"a": 0})));
    }

    #[test]
    fn matchers_compare_actual_values() {
        let object = json!({"text": "one two", "list": [{"n": 1}, {"n": 2}], "number": "12"});
        for (matcher, matches_value) in [
            (json!({"text": {"$any": true}}), true),
            (json!({"other": {"$any": true}}), false),
            (json!({"text": {"$has": "two"}}), true),
            (json!({"text": {"$has": "three"}}), false),
            (json!({"text": {"$hasnt": "three"}}), true),
            (json!({"text": {"$matches": "one .*"}}), true),
            (json!({"text": {"$matches": "two"}}), false),
            (json!({"list": {"$contains": [{"n": 2}]}}), true),
            (json!({"list": {"$contains": [{"n": 3}]}}), false),
            (json!({"list": {"$not": {"$contains": [{"n": 3}]}}}), true),
            (json!({"list": {"$len": 2}}), true),
            (json!({"list": {"$len": 3}}), false),
            (json!({"list": {"$exactly": [{"n": 1}, {"n": 2}]}}), true),
            (json!({"list": {"$exactly": [{"n": 1}, {}]}}), false),
            (json!({"number": {"$more": 11}}), true),
            (json!({"number": {"$more": 12}}), false),
            (json!({"number": {"$one_of": ["11", "12"]}}), true),
            (json!({"number": {"$one_of": ["11", null]}}), false),
            (json!({"text": {"$unknown": 1}}), false),
        ] {
            assert_eq!(fits(&matcher, &object), matches_value, "{matcher}");
        }
    }
}
