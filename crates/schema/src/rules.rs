//! `x-kubernetes-validations`: rules in CEL about a value, and about what it was before
//! (`apiextensions-apiserver/pkg/apiserver/schema/cel`).

mod convert;
mod written;

pub(crate) use written::check as written;

use crate::{Schema, compare::Earlier};
use api::field::{FieldErrors, FieldPath};
use expr::{Budget, EvalError, Program, Type, Value};
use serde_json::{Value as Json, json};
use std::sync::Arc;

/// What is told instead of what the rules would say of an object that is wrong otherwise.
const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
/// Errors after which a rule cannot be asked (`hasBlockingErr`).
const BLOCKING: [&str; 5] =
    ["FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"];

/// A rule that was read. One that cannot be compiled holds for nothing.
#[derive(Debug)]
pub(crate) struct Rule {
    program: Result<Program, String>,
    source: String,
    message: String,
    message_expression: Option<Program>,
    reason: String,
    field: String,
    /// Whether it is about the change.
    of_change: bool,
    /// Whether it is asked of new objects, too.
    optional_old: bool,
}

impl Rule {
    pub(crate) fn read(rule: &Json, of: &Type) -> Self {
        let text = |key: &str| rule[key].as_str().unwrap_or("").trim().to_owned();
        let (source, expression) = (text("rule"), text("messageExpression"));
        let optional_old = rule["optionalOldSelf"] == true;
        let old = if optional_old { Type::Optional(Box::new(of.clone())) } else { of.clone() };
        let compile = |source: &str| Program::compile(source, &[("self", of.clone()), ("oldSelf", old.clone())]);
        let program = compile(&source);
        Self {
            of_change: program.as_ref().is_ok_and(|p| p.mentions("oldSelf")),
            message_expression: Some(expression).filter(|e| !e.is_empty()).and_then(|e| compile(&e).ok()),
            program,
            source,
            message: text("message"),
            reason: text("reason"),
            field: text("fieldPath"),
            optional_old,
        }
    }

    /// What is told about it when nothing better is.
    fn shown(&self) -> &str {
        if self.message.is_empty() { &self.source } else { &self.message }
    }
}

/// Asks the rules of a schema, and of all below it.
struct Asking<'a> {
    errors: &'a mut FieldErrors,
    budget: Budget,
    /// Whether there is no budget left.
    over: bool,
}

/// A value that is asked about.
#[derive(Clone, Copy)]
struct Held<'a> {
    value: &'a Json,
    /// What it was.
    old: Option<&'a Json>,
    /// Whether it is, or what it is in, what it was.
    unchanged: bool,
}

impl Schema {
    /// Asks every rule about a resource, unless it is too wrong for that; `old` is there for a change.
    pub fn ask_rules(&self, resource: &Json, old: Option<&Json>, errors: &mut FieldErrors) {
        if !self.has_rules {
            return;
        }
        if errors.0.iter().any(|e| BLOCKING.contains(&e.reason)) {
            return errors.invalid(&FieldPath::new("<nil>"), &json!("null"), NOT_CHECKED);
        }
        let mut asking = Asking { errors, budget: Budget::default(), over: false };
        asking.all(self, Held { value: resource, old, unchanged: false }, &FieldPath::default(), true);
    }
}

impl Asking<'_> {
    fn all(&mut self, schema: &Schema, held: Held<'_>, path: &FieldPath, root: bool) {
        if !schema.has_rules || held.value.is_null() || self.over {
            return;
        }
        let (value, old) = (held.value, held.old);
        // Of what cannot be compared itself, what it is in decides.
        let unchanged = held.unchanged || old.is_some_and(|old| schema.unchanged(old, value));
        let held = |value, old| Held { value, old, unchanged };
        if !schema.rules.is_empty() {
            self.own(schema, held(value, old), path, root);
        }
        match value {
            Json::Object(fields) => {
                for (name, value) in fields {
                    let before = old.and_then(|old| old.get(name));
                    if let Some(property) = schema.properties.get(name.as_str()) {
                        self.all(property, held(value, before), &path.child(name), false);
                    } else if let Some(like) = schema.additional.schema() {
                        self.all(like, held(value, before), &path.key(name), false);
                    }
                }
            }
            Json::Array(items) => {
                let Some(part) = &schema.items else { return };
                let earlier = Earlier::of(schema, old);
                for (i, item) in items.iter().enumerate() {
                    self.all(part, held(item, earlier.find(item)), &path.index(i), false);
                }
            }
            _ => {}
        }
    }

    fn own(&mut self, schema: &Schema, held: Held<'_>, path: &FieldPath, root: bool) {
        let Held { value, old, unchanged } = held;
        let asked = |rule: &&Rule| {
            if rule.of_change { old.is_some() || rule.optional_old } else { !unchanged }
        };
        if !schema.rules.iter().any(|rule| asked(&rule)) {
            return;
        }
        let now = schema.as_value(value, root);
        let before = old.filter(|old| !old.is_null()).map(|old| schema.as_value(old, root));
        for rule in schema.rules.iter().filter(asked) {
            let old = match (&before, rule.optional_old) {
                (held, true) => Value::Optional(held.clone().map(Arc::new)),
                (Some(held), false) => held.clone(),
                (None, false) if rule.of_change => continue,
                (None, false) => Value::Null,
            };
            let path = if rule.field.is_empty() { path.clone() } else { within(path, schema, &rule.field) };
            self.one(schema, rule, value, &[("self", now.clone()), ("oldSelf", old)], &path);
            if self.over {
                return;
            }
        }
    }

    fn one(&mut self, schema: &Schema, rule: &Rule, value: &Json, variables: &[(&str, Value)], path: &FieldPath) {
        let kind = json!(schema.kind.map_or("", crate::Kind::name));
        let program = match &rule.program {
            Ok(program) => program,
            Err(why) => return self.invalid(path, &kind, why),
        };
        match program.evaluate(variables, &mut self.budget) {
            Ok(Value::Bool(true)) => {}
            Ok(_) => {
                let said = rule.message_expression.as_ref().and_then(|e| e.evaluate(variables, &mut self.budget).ok());
                let detail = match said {
                    Some(Value::String(text)) if is_message(&text) => text.trim().to_owned(),
                    _ if rule.message.is_empty() => format!("failed rule: {}", rule.source),
                    _ => rule.message.clone(),
                };
                self.refused(schema, rule, value, path, &detail);
            }
            Err(error @ (EvalError::TooExpensive | EvalError::Spent)) => {
                self.over = true;
                let why = format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                    rule.shown()
                );
                self.invalid(path, &kind, &why);
            }
            Err(error) if error.to_string().starts_with("no such overload") => {
                let why = format!(
                    "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                    rule.shown()
                );
                self.invalid(path, &kind, &why);
            }
            Err(error) => self.invalid(path, &kind, &format!("{error} evaluating rule: {}", rule.shown())),
        }
    }

    fn invalid(&mut self, path: &FieldPath, value: &Json, why: &str) {
        self.errors.invalid(&named(path), value, why);
    }

    /// The rule does not hold.
    fn refused(&mut self, schema: &Schema, rule: &Rule, value: &Json, path: &FieldPath, detail: &str) {
        let path = named(path);
        let is_large = matches!(schema.kind, Some(crate::Kind::Object | crate::Kind::Array));
        match rule.reason.as_str() {
            "FieldValueForbidden" => self.errors.forbidden(&path, detail),
            "FieldValueRequired" => self.errors.required(&path, detail),
            // What is large is not shown.
            "FieldValueDuplicate" if is_large => {
                self.errors.push("FieldValueDuplicate", &path, "Duplicate value".to_owned());
            }
            "FieldValueDuplicate" => self.errors.duplicate(&path, value),
            _ if is_large => self.errors.push("FieldValueInvalid", &path, format!("Invalid value: {detail}")),
            _ => self.errors.invalid(&path, value, detail),
        }
    }
}

/// The path of a resource itself has no name.
fn named(path: &FieldPath) -> FieldPath {
    if *path == FieldPath::default() { FieldPath::new("<nil>") } else { path.clone() }
}

/// Where a rule wants to be told, below the path of its value.
fn within(path: &FieldPath, schema: &Schema, field: &str) -> FieldPath {
    schema.at_path(field, true).map_or_else(|_| path.clone(), |found| path.child(&found.path.to_string()))
}

/// What may be told: one line that says something.
fn is_message(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(['\n', '\r']) && text.len() <= 5 << 10
}
