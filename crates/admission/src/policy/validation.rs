//! Validation of the expressions of webhooks and policies (`pkg/apis/admissionregistration/validation`).

use super::{mutating as mutations, policy_variable_types, variables};
use crate::conditions;
use api::field::{FieldErrors, FieldPath};
use expr::{Program, RESERVED, Type};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Maximum number of match conditions.
const MAX_MATCH_CONDITIONS: usize = 64;
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
/// Maximum number of audit annotations of a policy, and maximum size of their expressions in bytes.
const MAX_AUDIT_ANNOTATIONS: usize = 20;
const MAX_VALUE_EXPRESSION_LENGTH: usize = 5 << 10;
/// Reserved words of CEL and of Kubernetes.
const RESERVED_BY_KUBERNETES: [&str; 3] = ["var", "void", "while"];

fn items<'a>(object: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    object[list].as_array().into_iter().flatten()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or("")
}

/// Validates `paramKind` (`validateParamKind`).
fn param_kind(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (params, path) = (&spec["paramKind"], path.child("paramKind"));
    if !params.is_object() {
        return;
    }
    let (at, given) = (path.child("apiVersion"), text(params, "apiVersion"));
    let (group, version) = given.split_once('/').unwrap_or(("", given));
    if given.is_empty() {
        errors.required(&at, "");
    } else if version.contains('/') {
        errors.invalid(&at, &params["apiVersion"], &format!("unexpected GroupVersion string: {given}"));
    } else {
        let wrong = if group.is_empty() { Vec::new() } else { api::names::dns1123_subdomain(group) };
        if !wrong.is_empty() {
            errors.invalid(&at, &json!(group), &wrong.join(","));
        }
        let wrong = api::names::dns1035_label(version);
        if version.is_empty() {
            errors.invalid(&at, &params["apiVersion"], "version must be specified");
        } else if !wrong.is_empty() {
            errors.invalid(&at, &json!(version), &wrong.join(","));
        }
    }
    let (at, kind) = (path.child("kind"), text(params, "kind"));
    let wrong = api::names::dns1035_label(&kind.to_lowercase());
    if kind.is_empty() {
        errors.required(&at, "");
    } else if !wrong.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
        errors.invalid(&at, &params["kind"], &detail);
    }
}

/// Validates the expressions of a MutatingAdmissionPolicy's spec.
pub fn mutating(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    param_kind(spec, path, errors);
    let mut types = mutations::types(spec);
    let authorized = [types.as_slice(), &[("authorizer", Type::AUTHORIZER)]].concat();
    conditions::check(spec, &authorized, path, errors);
    types.push(Type::MUTATION_TYPES);
    check_variables(spec, &mut types, path, errors);
    let known = mutations::with_mutation_types(&types);
    if items(spec, "mutations").next().is_none() {
        errors.required(&path.child("mutations"), "mutations must contain at least one item");
    }
    for (i, mutation) in items(spec, "mutations").enumerate() {
        let at = path.child("mutations").index(i);
        let kinds = ["ApplyConfiguration", "JSONPatch"];
        match text(mutation, "patchType") {
            "" => errors.required(&at.child("patchType"), ""),
            kind if !kinds.contains(&kind) => {
                errors.not_supported(&at.child("patchType"), &mutation["patchType"], &kinds);
            }
            _ => validate_mutation(mutation, &known, &at, errors),
        }
    }
}

/// Validates a mutation: it has the expression of its patch type only.
fn validate_mutation(mutation: &Value, types: &[(&str, Type)], at: &FieldPath, errors: &mut FieldErrors) {
    let (field, source) = mutations::source(mutation);
    let (other, kind, expected) = match field {
        "jsonPatch" => ("applyConfiguration", "JSONPatch", Type::list(Type::Struct("JSONPatch".into()))),
        _ => ("jsonPatch", "ApplyConfiguration", Type::Struct("Object".into())),
    };
    if mutation[field].is_null() {
        errors.required(&at.child(field), &format!("must be specified when patchType is {kind}"));
    } else {
        validate_patch_expression(field, source, types, &expected, &at.child(field).child("expression"), errors);
    }
    if !mutation[other].is_null() {
        let (value, detail) = (format!("{{{other}}}"), format!("must not be specified when patchType is {kind}"));
        // Upstream's value in the error.
        errors.invalid(&at.child(other), &json!(value), &detail);
    }
}

/// Validates the expression of a mutation and its result type.
fn validate_patch_expression(
    field: &str,
    source: &Value,
    types: &[(&str, Type)],
    expected: &Type,
    at: &FieldPath,
    errors: &mut FieldErrors,
) {
    if source.as_str().unwrap_or("").trim().is_empty() {
        return errors.required(at, "expression is not specified");
    }
    match Program::compile(source.as_str().unwrap_or(""), types) {
        Err(error) => errors.invalid(at, source, &error.to_string()),
        // The items of a dynamically typed list are checked at their construction.
        Ok(program) if matches!(program.result(), Type::Dyn) || program.result() == expected => {}
        Ok(program) if field == "jsonPatch" && *program.result() == Type::list(Type::Dyn) => {}
        Ok(program) => {
            errors.invalid(at, source, &format!("must evaluate to {expected} but got {}", program.result()));
        }
    }
}

/// Validates the variables of a policy's spec and adds their types.
fn check_variables(spec: &Value, types: &mut Vec<(&'static str, Type)>, path: &FieldPath, errors: &mut FieldErrors) {
    for (i, (variable, read)) in items(spec, "variables").zip(variables(spec, types)).enumerate() {
        let at = path.child("variables").index(i);
        let name = text(variable, "name");
        if name.is_empty() {
            errors.required(&at.child("name"), "name is not specified");
        } else if !is_identifier(name) {
            errors.invalid(&at.child("name"), &variable["name"], "name is not a valid CEL identifier");
        }
        if text(variable, "expression").trim().is_empty() {
            errors.required(&at.child("expression"), "expression is not specified");
        } else if let Err(error) = &read.program {
            errors.invalid(&at.child("expression"), &variable["expression"], &error.to_string());
        }
    }
}

/// Validates the expressions of a ValidatingAdmissionPolicy's spec.
pub fn policy(spec: &Value, name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    param_kind(spec, path, errors);
    let authorizer = ("authorizer", Type::AUTHORIZER);
    let mut variables = policy_variable_types();
    // `params` requires a `paramKind`.
    variables.retain(|(name, _)| *name != "params" || spec["paramKind"].is_object());
    let mut types = conditions::types(&variables);
    let with = |types: &[(&'static str, Type)]| [types, std::slice::from_ref(&authorizer)].concat();
    conditions::check(spec, &with(&types), path, errors);
    check_variables(spec, &mut types, path, errors);
    let checked = with(&types);
    for (i, validation) in items(spec, "validations").enumerate() {
        let at = path.child("validations").index(i);
        validate_messages(validation, &at, errors);
        expression(validation, "expression", &checked, &[Type::BOOL], "must evaluate to bool", &at, errors);
        let (field, detail) = ("messageExpression", "must evaluate to string");
        match text(validation, field) {
            "" => {}
            blank if blank.trim().is_empty() => {
                errors.invalid(&at.child(field), &validation[field], "must be non-empty if specified");
            }
            _ => expression(validation, field, &types, &[Type::STRING], detail, &at, errors),
        }
    }
    annotations(spec, name, &checked, path, errors);
}

/// Validates an audit annotation (`validateAuditAnnotation`).
fn annotations(spec: &Value, name: &str, types: &[(&str, Type)], path: &FieldPath, errors: &mut FieldErrors) {
    let (list, path) = (&spec["auditAnnotations"], path.child("auditAnnotations"));
    if items(spec, "auditAnnotations").count() > MAX_AUDIT_ANNOTATIONS {
        errors.invalid(&path, list, &format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations"));
    }
    let mut keys = BTreeSet::new();
    for (i, annotation) in items(spec, "auditAnnotations").enumerate() {
        let (at, key) = (path.index(i), text(annotation, "key"));
        let whole = format!("{name}/{key}");
        if name.is_empty() {
            errors.invalid(&at.child("key"), &annotation["key"], "requires metadata.name be non-empty");
        } else {
            let wrong = api::names::qualified_name(&whole);
            wrong.iter().for_each(|e| errors.invalid(&at.child("key"), &json!(whole), e));
        }
        let field = "valueExpression";
        match text(annotation, field).trim().len() {
            0 => errors.required(&at.child(field), "valueExpression is not specified"),
            long if long > MAX_VALUE_EXPRESSION_LENGTH => {
                errors.required(
                    &at.child(field),
                    &format!("must not exceed {MAX_VALUE_EXPRESSION_LENGTH} bytes in length"),
                );
            }
            _ => {
                let (expected, detail) =
                    ([Type::STRING, Type::Named("null_type")], "must evaluate to one of [string null_type]");
                expression(annotation, field, types, &expected, detail, &at, errors);
            }
        }
        if !keys.insert(key) {
            errors.duplicate(&at.child("key"), &annotation["key"]);
        }
    }
}

/// Validates the fields of a validation.
fn validate_messages(validation: &Value, at: &FieldPath, errors: &mut FieldErrors) {
    let (source, message) = (text(validation, "expression").trim(), text(validation, "message"));
    if source.is_empty() {
        errors.required(&at.child("expression"), "expression is not specified");
    }
    if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(&at.child("message"), &json!(message), "message must be non-empty if specified");
    } else if message.trim().contains('\n') {
        errors.invalid(&at.child("message"), &json!(message), "message must not contain line breaks");
    } else if source.contains('\n') && message.is_empty() {
        errors.required(&at.child("message"), "message must be specified if expression contains line breaks");
    }
    if let Some(reason) = validation["reason"].as_str().filter(|reason| !REASONS.contains(reason)) {
        errors.not_supported(&at.child("reason"), &json!(reason), &REASONS);
    }
}

/// Validates an expression and its result type.
fn expression(
    holder: &Value,
    field: &str,
    types: &[(&str, Type)],
    expected: &[Type],
    otherwise: &str,
    at: &FieldPath,
    errors: &mut FieldErrors,
) {
    let source = text(holder, field);
    if source.trim().is_empty() {
        return;
    }
    match Program::compile(source, types) {
        Err(error) => errors.invalid(&at.child(field), &holder[field], &error.to_string()),
        Ok(program) if *program.result() == Type::Dyn || expected.contains(program.result()) => {}
        Ok(_) => errors.invalid(&at.child(field), &holder[field], otherwise),
    }
}

fn is_identifier(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(first)
        && name.chars().all(|c| first(c) || c.is_ascii_digit())
        && !RESERVED.contains(&name)
        && !RESERVED_BY_KUBERNETES.contains(&name)
}

/// Validates the `paramRef` of a binding.
pub fn binding(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (params, path) = (&spec["paramRef"], path.child("paramRef"));
    if params.is_null() {
        return;
    }
    match (text(params, "name").is_empty(), params["selector"].is_null()) {
        (false, false) => {
            for field in ["name", "selector"] {
                errors.forbidden(&path.child(field), "name and selector are mutually exclusive");
            }
        }
        (true, true) => errors.required(&path, "one of name or selector must be specified"),
        _ => {}
    }
    let actions = ["Allow", "Deny"];
    match text(params, "parameterNotFoundAction") {
        "" => errors.required(&path.child("parameterNotFoundAction"), ""),
        action if !actions.contains(&action) => {
            errors.not_supported(&path.child("parameterNotFoundAction"), &json!(action), &actions);
        }
        _ => {}
    }
}

/// Validates the `matchConditions` of a webhook or a policy with variables of these types.
pub fn match_conditions(holder: &Value, types: &[(&str, Type)], path: &FieldPath, errors: &mut FieldErrors) {
    let (path, mut names) = (path.child("matchConditions"), BTreeSet::new());
    let count = items(holder, "matchConditions").count();
    if count > MAX_MATCH_CONDITIONS {
        errors.push(
            "FieldValueTooMany",
            &path,
            format!("Too many: {count}: must have at most {MAX_MATCH_CONDITIONS} items"),
        );
    }
    for (i, condition) in items(holder, "matchConditions").enumerate() {
        let (at, name) = (path.index(i), text(condition, "name"));
        if text(condition, "expression").trim().is_empty() {
            errors.required(&at.child("expression"), "");
        } else {
            expression(condition, "expression", types, &[Type::BOOL], "must evaluate to bool", &at, errors);
        }
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        } else {
            let wrong = api::names::qualified_name(name);
            wrong.iter().for_each(|e| errors.invalid(&at.child("name"), &condition["name"], e));
            if !names.insert(name) {
                errors.duplicate(&at.child("name"), &condition["name"]);
            }
        }
    }
}
