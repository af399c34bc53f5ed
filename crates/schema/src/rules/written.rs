//! What is wrong with rules, told to whoever writes them.

use crate::Schema;
use api::field::{FieldErrors, FieldPath};
use expr::{Program, Type};
use serde_json::{Value as Json, json};

const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Finds what is wrong with the rules of a schema; `apart` is the part of the whole in which nobody knows what a value was
/// before.
pub(crate) fn check(schema: &Json, root: bool, apart: Option<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(rules) = schema["x-kubernetes-validations"].as_array().filter(|r| !r.is_empty()) else { return };
    let before = errors.0.len();
    let at = |i: usize| path.child("x-kubernetes-validations").index(i);
    rules.iter().enumerate().for_each(|(i, rule)| words(rule, &at(i), errors));
    let read = Schema::read_values(schema);
    for (i, rule) in rules.iter().enumerate() {
        let field = rule["fieldPath"].as_str().unwrap_or("");
        if !field.is_empty() && read.at_path(field, true).is_err() {
            errors.invalid(&at(i).child("fieldPath"), &json!(field), "must be a valid path");
        }
    }
    if errors.0.len() > before {
        return;
    }
    let of = read.as_type(root);
    for (i, rule) in rules.iter().enumerate() {
        compiles(rule, &of, apart, &at(i), errors);
    }
}

fn has_line_breaks(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

/// What each of its texts must be.
fn words(rule: &Json, path: &FieldPath, errors: &mut FieldErrors) {
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
        let why = "messageExpression must be non-empty if specified";
        errors.required(&path.child("messageExpression"), why);
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

/// What it says must make sense for such values.
fn compiles(rule: &Json, of: &Type, apart: Option<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    let optional = rule["optionalOldSelf"] == true;
    let old = if optional { Type::Optional(Box::new(of.clone())) } else { of.clone() };
    let compile = |key: &str| {
        let source = rule[key].as_str().unwrap_or("").trim();
        Program::compile(source, &[("self", of.clone()), ("oldSelf", old.clone())])
    };
    let program = match compile("rule") {
        Ok(program) if !is(program.result(), &Type::BOOL) => {
            return errors.invalid(&path.child("rule"), rule, "must evaluate to a bool");
        }
        Ok(program) => program,
        Err(why) => return errors.invalid(&path.child("rule"), rule, &why),
    };
    if !rule["messageExpression"].as_str().unwrap_or("").is_empty() {
        let at = path.child("messageExpression");
        match compile("messageExpression") {
            Ok(program) if !is(program.result(), &Type::STRING) => {
                errors.invalid(&at, rule, "must evaluate to a string");
            }
            Ok(_) => {}
            Err(why) => errors.invalid(&at, rule, &format!("messageExpression {why}")),
        }
    }
    match apart {
        Some(apart) if program.mentions("oldSelf") => {
            let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {apart}");
            errors.invalid(&path.child("rule"), &rule["rule"], &why);
        }
        _ if !program.mentions("oldSelf") && !rule["optionalOldSelf"].is_null() => {
            let why = "may not be set if oldSelf is not used in rule";
            errors.invalid(&path.child("optionalOldSelf"), &rule["optionalOldSelf"], why);
        }
        _ => {}
    }
}

/// Whether a result is of this type, as far as one knows.
fn is(result: &Type, wanted: &Type) -> bool {
    *result == Type::Dyn || result == wanted
}
