//! Mutates bodies, as values and as text.

use crate::{rng::SeededRng, values};
use serde_json::{Value, json};

/// Placeholder in a value for text that JSON values cannot represent.
const HOLE: &str = "@@hole@@";

/// Returns a replacement of a placeholder: huge numbers and deep nesting.
fn filling(rng: &mut SeededRng) -> String {
    let deep = [40, 150, 2_000, 30_000][rng.below(4)];
    match rng.below(9) {
        0 => "[".repeat(deep) + &"]".repeat(deep),
        1 => "{\"a\":".repeat(deep) + "1" + &"}".repeat(deep),
        2 => "1e400".to_owned(),
        3 => "-1e-400".to_owned(),
        4 => "1".repeat(deep),
        5 => "NaN".to_owned(),
        6 => "9223372036854775808".to_owned(),
        7 => "1.0".to_owned(),
        _ => "\"\\ud800\"".to_owned(),
    }
}

/// Replaces or removes a few parts of a value.
pub(crate) fn value(rng: &mut SeededRng, value: &mut Value, times: usize) {
    for _ in 0..times {
        let pointers = pointers(value);
        let pointer = rng.pick(&pointers);
        if rng.chance(25) {
            structure(rng, value, &pointer);
        } else if let Some(target) = value.pointer_mut(&pointer) {
            *target = other(rng, target);
        }
    }
}

/// Returns a value of another type, or an odd one of the same type.
fn other(rng: &mut SeededRng, old: &Value) -> Value {
    match rng.below(16) {
        0 | 1 => Value::Null,
        2 => json!(i64::MAX),
        3 => json!(u64::MAX),
        4 => json!(-1),
        5 => json!(1.5),
        6 => json!(values::number(rng)),
        7 => json!([]),
        8 => json!({}),
        9 => json!(rng.chance(50)),
        10 | 11 => json!(values::odd(rng)),
        12 => json!(values::word(rng, "")),
        13 => json!(HOLE),
        14 => json!([old]),
        _ => json!({"a": old, "$patch": "replace"}),
    }
}

/// Adds, removes or renames fields, and duplicates elements.
fn structure(rng: &mut SeededRng, value: &mut Value, pointer: &str) {
    match value.pointer_mut(pointer) {
        Some(Value::Object(map)) => {
            let keys: Vec<String> = map.keys().cloned().collect();
            let key = rng.pick(&keys);
            match rng.below(4) {
                0 => drop(map.remove(&key)),
                1 => drop(map.insert(values::odd(rng), json!(1))),
                2 => drop(map.insert("unknown".to_owned(), json!({"a": [1]}))),
                _ => {
                    if let Some(held) = map.remove(&key) {
                        map.insert(values::word(rng, ""), held);
                    }
                }
            }
        }
        Some(Value::Array(list)) => {
            let times = [1, 2, 70, 1100][rng.below(4)];
            if let Some(first) = list.first().cloned().filter(|f| f.to_string().len() < 2_000) {
                list.extend(std::iter::repeat_n(first, times));
            }
        }
        Some(other) => *other = json!(values::odd(rng)),
        None => {}
    }
}

/// Returns JSON pointers to all parts of a value.
fn pointers(value: &Value) -> Vec<String> {
    fn walk(value: &Value, at: &str, found: &mut Vec<String>) {
        found.push(at.to_owned());
        match value {
            Value::Object(map) => map.iter().for_each(|(key, inner)| {
                walk(inner, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            }),
            Value::Array(list) => {
                list.iter().take(20).enumerate().for_each(|(i, inner)| walk(inner, &format!("{at}/{i}"), found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(value, "", &mut found);
    found
}

/// Serializes a value with replaced placeholders, and sometimes with mutated bytes.
pub(crate) fn text(rng: &mut SeededRng, value: &Value) -> Vec<u8> {
    let mut text = value.to_string();
    let hole = format!("\"{HOLE}\"");
    if text.contains(&hole) {
        text = text.replace(&hole, &filling(rng));
    }
    let mut bytes = text.into_bytes();
    if rng.chance(6) {
        letters(rng, &mut bytes);
    }
    bytes
}

fn letters(rng: &mut SeededRng, bytes: &mut Vec<u8>) {
    let at = rng.below(bytes.len());
    match rng.below(10) {
        0 => bytes.truncate(at),
        1 => bytes.clear(),
        2 => bytes.extend_from_slice(b"{}"),
        3 => drop(bytes.splice(..0, *b"\xef\xbb\xbf")),
        4 => drop(bytes.splice(at..at, *b"\xff\xfe")),
        5 => drop(bytes.splice(at..at, *b"\0")),
        // A duplicate field.
        6 => {
            drop(bytes.splice(..bytes.len().min(1), b"{\"kind\":\"x\",\"metadata\":{\"name\":\"y\"},".iter().copied()));
        }
        7 => drop(bytes.splice(..0, std::iter::repeat_n(b' ', 100_000))),
        8 => (0..8).for_each(|_| {
            let at = rng.below(bytes.len());
            let byte = rng.byte();
            if let Some(target) = bytes.get_mut(at) {
                *target = byte;
            }
        }),
        // More than the server's size limit.
        _ => bytes.extend(std::iter::repeat_n(b'x', if rng.chance(5) { 4 << 20 } else { 100 })),
    }
}

#[cfg(test)]
mod tests {
    use super::{pointers, text, value};
    use crate::rng::SeededRng;
    use serde_json::json;

    #[test]
    fn pointers_cover_all_parts() {
        assert_eq!(pointers(&json!({"a/b": [1, {"c": null}]})), ["", "/a~1b", "/a~1b/0", "/a~1b/1", "/a~1b/1/c"]);
    }

    #[test]
    fn mutated_value_differs_and_has_no_placeholders() {
        let mut rng = SeededRng::new(3);
        let sample = json!({"a": [1, {"c": "d"}], "b": {"e": true}});
        let mut changed = 0;
        for _ in 0..500 {
            let mut mutated = sample.clone();
            value(&mut rng, &mut mutated, 2);
            changed += usize::from(mutated != sample);
            assert!(!text(&mut rng, &mutated).windows(8).any(|w| w == b"@@hole@@"));
        }
        assert!(changed > 400, "{changed}");
    }
}
