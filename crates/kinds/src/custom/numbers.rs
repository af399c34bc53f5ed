//! Number formatting like Go's JSON encoder, which writes integral floats without a decimal point.

use serde_json::{Number, Value};

/// Integers below 2⁵³ are exact in a 64-bit float.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Converts integral floats such as `1.0` to integers, recursively.
pub(super) fn normalize_integers(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(normalize_integers),
        Value::Array(items) => items.iter_mut().for_each(normalize_integers),
        Value::Number(number) if number.is_f64() => {
            let integer = number
                .as_f64()
                .filter(|f| f.fract() == 0.0 && f.abs() < MAX_EXACT_INTEGER && !(*f == 0.0 && f.is_sign_negative()));
            // Through text, because there is no lossless conversion.
            if let Some(integer) = integer.and_then(|f| format!("{f:.0}").parse::<i64>().ok()) {
                *number = Number::from(integer);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::normalize_integers;
    use serde_json::{Value, json};

    #[test]
    fn integral_floats_become_integers() {
        let mut value: Value = serde_json::from_str(r#"{"a": [1.0, 1.5e1, -2.0, 0.5, -0.0, 1e30], "b": 3}"#).unwrap();
        normalize_integers(&mut value);
        assert_eq!(value.to_string(), r#"{"a":[1,15,-2,0.5,-0.0,1e+30],"b":3}"#);
        assert_eq!(json!({"b": 3})["b"], value["b"]);
    }
}
