//! Whether an answer holds what a case expects.
//!
//! Objects must hold at least the expected fields, arrays exactly as many items as expected; `null` is for what must be null or
//! missing. An object whose only key starts with `$` is a question instead:
//!
//! | question | holds for |
//! | --- | --- |
//! | `$any: true` | whatever is there and not null |
//! | `$contains: [a, b]` | an array with an item for each of these |
//! | `$exactly: value` | this value, with no field more |
//! | `$has: text` | a string with this text in it |
//! | `$hasnt: text` | a string without it |
//! | `$len: n` | an array, an object or a string as long as that |
//! | `$matches: pattern` | a string that matches from its begin to its end |
//! | `$more: n` | a number, also one in a string, greater than this |
//! | `$not: value` | what this does not hold for |
//! | `$one_of: [a, b]` | what one of these holds for |

use serde_json::Value;

/// How much of a value is shown: the whole answer follows in the report.
const SHOWN: usize = 500;

/// Each place where `actual` is not what is expected, with what is there.
pub(crate) fn differences(expected: &Value, actual: Option<&Value>) -> Vec<String> {
    let mut found = Vec::new();
    compare("", expected, actual, &mut found);
    found
}

fn compare(at: &str, expected: &Value, actual: Option<&Value>, found: &mut Vec<String>) {
    if let Some((question, argument)) = question(expected) {
        if question == "contains"
            && let (Value::Array(wanted), Some(Value::Array(given))) = (argument, actual)
        {
            // What is there is often long, what is missing is one of few.
            let missing =
                wanted.iter().filter(|want| !given.iter().any(|item| differences(want, Some(item)).is_empty()));
            found.extend(missing.map(|want| format!("{at}: no item is {want}")));
        } else if !holds(question, argument, actual) {
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

fn question(expected: &Value) -> Option<(&str, &Value)> {
    let (key, argument) = expected.as_object().filter(|o| o.len() == 1)?.iter().next()?;
    Some((key.strip_prefix('$')?, argument))
}

fn holds(question: &str, argument: &Value, actual: Option<&Value>) -> bool {
    let fits = |expected: &Value| differences(expected, actual).is_empty();
    match question {
        "not" => return !fits(argument),
        "one_of" => return argument.as_array().is_some_and(|all| all.iter().any(fits)),
        _ => {}
    }
    let Some(actual) = actual.filter(|a| !a.is_null()) else { return false };
    match (question, actual) {
        ("any", _) => true,
        ("exactly", _) => actual == argument,
        ("contains", Value::Array(given)) => argument.as_array().is_some_and(|wanted| {
            wanted.iter().all(|want| given.iter().any(|item| differences(want, Some(item)).is_empty()))
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
    if text.chars().count() <= SHOWN { text } else { text.chars().take(SHOWN).chain("...".chars()).collect() }
}

#[cfg(test)]
mod tests {
    use super::differences;
    use serde_json::{Value, json};

    fn fits(expected: &Value, actual: &Value) -> bool {
        differences(expected, Some(actual)).is_empty()
    }

    #[test]
    fn objects_may_hold_more_and_arrays_may_not() {
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
    fn null_is_for_what_is_missing() {
        assert!(fits(&json!({"a": null}), &json!({})));
        assert!(fits(&json!({"a": null}), &json!({"a": null})));
        assert!(!fits(&json!({"a": null}), &json!({"a": 0})));
    }

    #[test]
    fn questions_are_asked_of_what_is_there() {
        let object = json!({"text": "one two", "list": [{"n": 1}, {"n": 2}], "number": "12"});
        for (question, holds) in [
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
            assert_eq!(fits(&question, &object), holds, "{question}");
        }
    }
}
