//! Validation rules in CEL, including transition rules: `x-kubernetes-validations`
//! (`apiextensions-apiserver/pkg/apiserver/schema/cel`).

mod cel_values;
mod rule_validation;

pub(crate) use rule_validation::validate_rules;

use crate::{Schema, correlation::OldItems};
use api::field::{FieldErrors, FieldPath};
use expr::{Budget, CompileError, EvalError, Program, Type, Value};
use serde_json::{Value as Json, json};
use std::sync::Arc;

/// Message for an object whose other errors prevent the evaluation of rules.
const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
/// Errors that prevent the evaluation of rules (`hasBlockingErr`).
const BLOCKING: [&str; 5] =
    ["FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"];

/// A parsed rule. A rule with a compilation error fails for every value.
#[derive(Debug)]
pub(crate) struct Rule {
    program: Result<Program, CompileError>,
    source: String,
    message: String,
    message_expression: Option<Program>,
    reason: String,
    field: String,
    /// Whether the rule is a transition rule, which uses `oldSelf`.
    is_transition: bool,
    /// `optionalOldSelf`: whether the transition rule is evaluated for new objects, too.
    optional_old: bool,
}

impl Rule {
    pub(crate) fn read(rule: &Json, value_type: &Type) -> Self {
        let text = |key: &str| rule[key].as_str().unwrap_or("").trim().to_owned();
        let (source, expression) = (text("rule"), text("messageExpression"));
        let optional_old = rule["optionalOldSelf"] == true;
        let old = if optional_old { Type::Optional(Box::new(value_type.clone())) } else { value_type.clone() };
        let compile =
            |source: &str| Program::compile(source, &[("self", value_type.clone()), ("oldSelf", old.clone())]);
        let program = compile(&source);
        Self {
            is_transition: program.as_ref().is_ok_and(|p| p.uses_variable("oldSelf")),
            message_expression: Some(expression).filter(|e| !e.is_empty()).and_then(|e| compile(&e).ok()),
            program,
            source,
            message: text("message"),
            reason: text("reason"),
            field: text("fieldPath"),
            optional_old,
        }
    }

    /// Returns the name of the rule in messages: its message, or its source.
    fn display_name(&self) -> &str {
        if self.message.is_empty() { &self.source } else { &self.message }
    }
}

/// Evaluates the rules of a schema and of its nested schemas.
struct RuleEvaluator<'a> {
    errors: &'a mut FieldErrors,
    budget: Budget,
    /// Whether the budget is exhausted.
    is_exhausted: bool,
}

/// A value with its old value.
#[derive(Clone, Copy)]
struct CorrelatedValue<'a> {
    value: &'a Json,
    /// The old value.
    old: Option<&'a Json>,
    /// Whether the value or its parent is unchanged.
    unchanged: bool,
}

impl Schema {
    /// Evaluates all rules for a resource, unless it has blocking errors; `old` is the old resource of an update.
    pub fn validate_rules(&self, resource: &Json, old: Option<&Json>, errors: &mut FieldErrors) {
        if !self.has_rules {
            return;
        }
        if errors.0.iter().any(|e| BLOCKING.contains(&e.reason)) {
            return errors.invalid(&FieldPath::new("<nil>"), &json!("null"), NOT_CHECKED);
        }
        let mut evaluator = RuleEvaluator { errors, budget: Budget::default(), is_exhausted: false };
        evaluator.evaluate_nested(
            self,
            CorrelatedValue { value: resource, old, unchanged: false },
            &FieldPath::default(),
            true,
        );
    }
}

impl RuleEvaluator<'_> {
    fn evaluate_nested(&mut self, schema: &Schema, correlated: CorrelatedValue<'_>, path: &FieldPath, root: bool) {
        if !schema.has_rules || correlated.value.is_null() || self.is_exhausted {
            return;
        }
        let (value, old) = (correlated.value, correlated.old);
        // A value without a correlated old value is unchanged if its parent is.
        let unchanged = correlated.unchanged || old.is_some_and(|old| schema.unchanged(old, value));
        let with_old = |value, old| CorrelatedValue { value, old, unchanged };
        if !schema.rules.is_empty() {
            self.evaluate_rules(schema, with_old(value, old), path, root);
        }
        match value {
            Json::Object(fields) => {
                for (name, value) in fields {
                    let old_property = old.and_then(|old| old.get(name));
                    if let Some(property) = schema.properties.get(name.as_str()) {
                        self.evaluate_nested(property, with_old(value, old_property), &path.child(name), false);
                    } else if let Some(like) = schema.additional.schema() {
                        self.evaluate_nested(like, with_old(value, old_property), &path.key(name), false);
                    }
                }
            }
            Json::Array(items) => {
                let Some(item_schema) = &schema.items else { return };
                let old_items = OldItems::of(schema, old);
                for (i, item) in items.iter().enumerate() {
                    self.evaluate_nested(item_schema, with_old(item, old_items.find(item)), &path.index(i), false);
                }
            }
            _ => {}
        }
    }

    fn evaluate_rules(&mut self, schema: &Schema, correlated: CorrelatedValue<'_>, path: &FieldPath, root: bool) {
        let CorrelatedValue { value, old, unchanged } = correlated;
        let must_evaluate = |rule: &&Rule| {
            if rule.is_transition { old.is_some() || rule.optional_old } else { !unchanged }
        };
        if !schema.rules.iter().any(|rule| must_evaluate(&rule)) {
            return;
        }
        let self_value = schema.as_value(value, root);
        let old_cel_value = old.filter(|old| !old.is_null()).map(|old| schema.as_value(old, root));
        for rule in schema.rules.iter().filter(must_evaluate) {
            let old = match (&old_cel_value, rule.optional_old) {
                (old_value, true) => Value::Optional(old_value.clone().map(Arc::new)),
                (Some(old_value), false) => old_value.clone(),
                (None, false) if rule.is_transition => continue,
                (None, false) => Value::Null,
            };
            let path = if rule.field.is_empty() { path.clone() } else { rule_field_path(path, schema, &rule.field) };
            self.evaluate_rule(schema, rule, value, &[("self", self_value.clone()), ("oldSelf", old)], &path);
            if self.is_exhausted {
                return;
            }
        }
    }

    fn evaluate_rule(
        &mut self,
        schema: &Schema,
        rule: &Rule,
        value: &Json,
        variables: &[(&str, Value)],
        path: &FieldPath,
    ) {
        let kind = json!(schema.kind.map_or("", crate::JsonType::name));
        let program = match &rule.program {
            Ok(program) => program,
            Err(error) => return self.invalid(path, &kind, &error.to_string()),
        };
        match program.evaluate(variables, &mut self.budget) {
            Ok(Value::Bool(true)) => {}
            Ok(_) => {
                let custom_message =
                    rule.message_expression.as_ref().and_then(|e| e.evaluate(variables, &mut self.budget).ok());
                let detail = match custom_message {
                    Some(Value::String(text)) if is_valid_message(&text) => text.trim().to_owned(),
                    _ if rule.message.is_empty() => format!("failed rule: {}", rule.source),
                    _ => rule.message.clone(),
                };
                self.report_failure(schema, rule, value, path, &detail);
            }
            Err(error @ (EvalError::CostLimitExceeded | EvalError::BudgetExhausted)) => {
                self.is_exhausted = true;
                let detail = format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                    rule.display_name()
                );
                self.invalid(path, &kind, &detail);
            }
            Err(error) if error.to_string().starts_with("no such overload") => {
                let detail = format!(
                    "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                    rule.display_name()
                );
                self.invalid(path, &kind, &detail);
            }
            Err(error) => self.invalid(path, &kind, &format!("{error} evaluating rule: {}", rule.display_name())),
        }
    }

    fn invalid(&mut self, path: &FieldPath, value: &Json, detail: &str) {
        self.errors.invalid(&error_path(path), value, detail);
    }

    /// Adds the error of a failed rule.
    fn report_failure(&mut self, schema: &Schema, rule: &Rule, value: &Json, path: &FieldPath, detail: &str) {
        let path = error_path(path);
        let is_large = matches!(schema.kind, Some(crate::JsonType::Object | crate::JsonType::Array));
        match rule.reason.as_str() {
            "FieldValueForbidden" => self.errors.forbidden(&path, detail),
            "FieldValueRequired" => self.errors.required(&path, detail),
            // Objects and lists are not shown.
            "FieldValueDuplicate" if is_large => {
                self.errors.push("FieldValueDuplicate", &path, "Duplicate value".to_owned());
            }
            "FieldValueDuplicate" => self.errors.duplicate(&path, value),
            _ if is_large => self.errors.push("FieldValueInvalid", &path, format!("Invalid value: {detail}")),
            _ => self.errors.invalid(&path, value, detail),
        }
    }
}

/// Returns the path for errors; the root has upstream's path `<nil>`.
fn error_path(path: &FieldPath) -> FieldPath {
    if *path == FieldPath::default() { FieldPath::new("<nil>") } else { path.clone() }
}

/// Returns the path of a rule's `fieldPath`, relative to its value.
fn rule_field_path(path: &FieldPath, schema: &Schema, field: &str) -> FieldPath {
    schema.resolve_field_path(field, true).map_or_else(|_| path.clone(), |found| path.child(&found.path.to_string()))
}

/// Returns whether the result of a `messageExpression` is a valid message: a non-empty line of at most 5 KiB.
fn is_valid_message(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(['\n', '\r']) && text.len() <= 5 << 10
}
