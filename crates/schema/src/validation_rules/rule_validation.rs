//! Validation of rules in a CustomResourceDefinition (`ValidateCustomResourceDefinitionOpenAPISchema`).

use crate::Schema;
use api::field::{FieldErrors, FieldPath};
use expr::{Program, Type};
use serde_json::{Value as Json, json};

const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Validates the rules of a schema; `uncorrelatable` is the path of the schema within which old values cannot be correlated.
pub(crate) fn validate_rules(
    schema: &Json,
    root: bool,
    uncorrelatable: Option<&str>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let Some(rules) = schema["x-kubernetes-validations"].as_array().filter(|r| !r.is_empty()) else { return };
    let before = errors.0.len();
    let at = |i: usize| path.child("x-kubernetes-validations").index(i);
    rules.iter().enumerate().for_each(|(i, rule)| validate_strings(rule, &at(i), errors));
    let parsed = Schema::parse_without_rules(schema);
    for (i, rule) in rules.iter().enumerate() {
        let field = rule["fieldPath"].as_str().unwrap_or("");
        if !field.is_empty() && parsed.resolve_field_path(field, true).is_err() {
            errors.invalid(&at(i).child("fieldPath"), &json!(field), "must be a valid path");
        }
    }
    if errors.0.len() > before {
        return;
    }
    let value_type = parsed.as_type(root);
    for (i, rule) in rules.iter().enumerate() {
        validate_expressions(rule, &value_type, uncorrelatable, &at(i), errors);
    }
}

fn has_line_breaks(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

/// Validates the strings of a rule.
fn validate_strings(rule: &Json, path: &FieldPath, errors: &mut FieldErrors) {
    let text = |key: &str| rule[key].as_str().unwrap_or("");
    let (source, message) = (text("rule").trim(), text("message").trim());
    if source.is_empty() {
        errors.required(&path.child("rule"), "rule is not specified");
    } else if !text("message").is_empty() && message.is_empty() {
        errors.invalid(&path.child("message"), &rule["message"], "must be non-empty if specified");
    } else if has_line_breaks(message) {
        errors.invalid(&path.child("message"), &rule["message"], "must not contain line breaks");
    } else if has_line_breaks(source) && message.is_empty() {
        errors.required(&path.child("message"), "message must be specified if rule contains line breaks");
    }
    if !text("messageExpression").is_empty() && text("messageExpression").trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.required(&path.child("messageExpression"), detail);
    }
    if let Some(reason) = rule["reason"].as_str().filter(|r| !REASONS.contains(r)) {
        errors.not_supported(&path.child("reason"), &json!(reason), &REASONS);
    }
    let field = text("fieldPath");
    if !field.is_empty() && field.trim().is_empty() {
        errors.invalid(&path.child("fieldPath"), &json!(field), "must be non-empty if specified");
    }
    if has_line_breaks(field) {
        errors.invalid(&path.child("fieldPath"), &json!(field), "must not contain line breaks");
    }
}

/// Compiles a rule and validates its types.
fn validate_expressions(
    rule: &Json,
    value_type: &Type,
    uncorrelatable: Option<&str>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let optional = rule["optionalOldSelf"] == true;
    let old = if optional { Type::Optional(Box::new(value_type.clone())) } else { value_type.clone() };
    let compile = |key: &str| {
        let source = rule[key].as_str().unwrap_or("").trim();
        Program::compile(source, &[("self", value_type.clone()), ("oldSelf", old.clone())])
    };
    let program = match compile("rule") {
        Ok(program) if !has_type(program.result(), &Type::BOOL) => {
            return errors.invalid(&path.child("rule"), rule, "must evaluate to a bool");
        }
        Ok(program) => program,
        Err(error) => return errors.invalid(&path.child("rule"), rule, &error.to_string()),
    };
    if !rule["messageExpression"].as_str().unwrap_or("").is_empty() {
        let at = path.child("messageExpression");
        match compile("messageExpression") {
            Ok(program) if !has_type(program.result(), &Type::STRING) => {
                errors.invalid(&at, rule, "must evaluate to a string");
            }
            Ok(_) => {}
            Err(error) => errors.invalid(&at, rule, &format!("messageExpression {error}")),
        }
    }
    match uncorrelatable {
        Some(uncorrelatable) if program.uses_variable("oldSelf") => {
            let detail =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}");
            errors.invalid(&path.child("rule"), &rule["rule"], &detail);
        }
        _ if !program.uses_variable("oldSelf") && !rule["optionalOldSelf"].is_null() => {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.invalid(&path.child("optionalOldSelf"), &rule["optionalOldSelf"], detail);
        }
        _ => {}
    }
}

/// Returns whether a result type is or may be the expected type.
fn has_type(result: &Type, expected: &Type) -> bool {
    *result == Type::Dyn || result == expected
}
