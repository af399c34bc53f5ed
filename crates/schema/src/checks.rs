//! What must hold of a single text, number or list.

use crate::{Checks, Schema, format, validate::Validator};
use serde_json::{Value, json};

impl Validator<'_> {
    pub(crate) fn simple(&mut self, schema: &Schema, value: &Value, path: &str) {
        let checks = &schema.checks;
        match value {
            Value::String(text) => self.text(checks, text, path),
            Value::Number(_) => self.number(checks, value, path),
            Value::Array(items) => self.list(checks, items, path),
            _ => {}
        }
    }

    fn text(&mut self, checks: &Checks, text: &str, path: &str) {
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
        if let Some(format) = checks.format.as_deref().filter(|f| !format::holds(f, text)) {
            self.type_invalid(path, &value, &format!("must be of type {format}: {text:?}"));
        }
    }

    fn number(&mut self, checks: &Checks, value: &Value, path: &str) {
        let Some(number) = value.as_f64() else { return };
        if let Some(factor) = checks.multiple_of.filter(|f| *f > 0.0) {
            let times = number / factor;
            if (times - times.round()).abs() > f64::EPSILON * times.abs().max(1.0) {
                self.invalid(path, value, &format!("should be a multiple of {factor}"));
            }
        }
        if let Some(max) = checks.maximum {
            if max.exclusive && number >= max.at {
                self.invalid(path, value, &format!("should be less than {}", max.at));
            } else if number > max.at {
                self.invalid(path, value, &format!("should be less than or equal to {}", max.at));
            }
        }
        if let Some(min) = checks.minimum {
            if min.exclusive && number <= min.at {
                self.invalid(path, value, &format!("should be greater than {}", min.at));
            } else if number < min.at {
                self.invalid(path, value, &format!("should be greater than or equal to {}", min.at));
            }
        }
    }

    fn list(&mut self, checks: &Checks, items: &[Value], path: &str) {
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
