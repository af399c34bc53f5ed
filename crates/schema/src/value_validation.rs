//! Validation of strings, numbers and lists.

use crate::{Schema, ValueValidation, format, validate::Validator};
use serde_json::{Value, json};

impl Validator<'_> {
    pub(crate) fn validate_simple_value(&mut self, schema: &Schema, value: &Value, path: &str) {
        let checks = &schema.value_validation;
        match value {
            Value::String(text) => self.validate_string(checks, text, path),
            Value::Number(_) => self.validate_number(checks, value, path),
            Value::Array(items) => self.validate_list(checks, items, path),
            _ => {}
        }
    }

    fn validate_string(&mut self, checks: &ValueValidation, text: &str, path: &str) {
        let (value, length) = (json!(text), text.chars().count() as u64);
        if let Some(max) = checks.max_length.filter(|max| length > *max) {
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            self.errors.too_long(&crate::validate::field(path), max);
        }
        if let Some(min) = checks.min_length.filter(|min| length < *min) {
            self.invalid(path, &value, &format!("should be at least {min} chars long"));
        }
        if let Some(pattern) = checks.pattern.as_ref().filter(|p| !p.is_match(text)) {
            self.invalid(path, &value, &format!("should match '{pattern}'"));
        }
        if let Some(format) = checks.format.as_deref().filter(|f| !format::matches_format(f, text)) {
            self.type_invalid(path, &value, &format!("must be of type {format}: {text:?}"));
        }
    }

    fn validate_number(&mut self, checks: &ValueValidation, value: &Value, path: &str) {
        let Some(number) = value.as_f64() else { return };
        if let Some(factor) = checks.multiple_of.filter(|f| *f > 0.0) {
            let quotient = number / factor;
            if (quotient - quotient.round()).abs() > f64::EPSILON * quotient.abs().max(1.0) {
                self.invalid(path, value, &format!("should be a multiple of {factor}"));
            }
        }
        if let Some(max) = checks.maximum {
            if max.exclusive && number >= max.limit {
                self.invalid(path, value, &format!("should be less than {}", max.limit));
            } else if number > max.limit {
                self.invalid(path, value, &format!("should be less than or equal to {}", max.limit));
            }
        }
        if let Some(min) = checks.minimum {
            if min.exclusive && number <= min.limit {
                self.invalid(path, value, &format!("should be greater than {}", min.limit));
            } else if number < min.limit {
                self.invalid(path, value, &format!("should be greater than or equal to {}", min.limit));
            }
        }
    }

    fn validate_list(&mut self, checks: &ValueValidation, items: &[Value], path: &str) {
        let count = items.len() as u64;
        if let Some(min) = checks.min_items.filter(|min| count < *min) {
            self.invalid(path, &json!(count), &format!("should have at least {min} items"));
        }
        if let Some(max) = checks.max_items.filter(|max| count > *max) {
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            self.errors.too_many(&crate::validate::field(path), items.len(), max);
        }
        if checks.unique_items {
            let mut seen = std::collections::HashSet::new();
            if !items.iter().all(|item| seen.insert(item.to_string())) {
                self.invalid(path, &json!(""), "shouldn't contain duplicates");
            }
        }
    }
}
