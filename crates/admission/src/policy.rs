//! ValidatingAdmissionPolicy: validation of objects with CEL expressions
//! (`apiserver/pkg/admission/plugin/policy/validating`).

mod mutating;
mod type_check;
mod validation;

pub use mutating::{MutatingPolicy, MutationError, Patch};
pub use type_check::{ExpressionWarning, ResourceType, type_check};
pub use validation::{binding as check_binding, match_conditions, mutating as check_mutating, policy as check};

use crate::{
    conditions::{self, Conditions, ExpressionError, Variables, object_type},
    matching::{Matching, MatchingError},
};
use expr::{Budget, CompileError, EvalError, Key, Program, Type, Value};
use serde_json::Value as Json;
use std::{collections::BTreeMap, sync::Arc};

/// Maximum length of a message, in bytes.
const MAX_MESSAGE_LENGTH: usize = 5 << 10;

/// Compiled ValidatingAdmissionPolicy.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Name.
    pub name: String,
    /// `matchConstraints`, or the error of an invalid selector.
    pub matching: Result<Matching, MatchingError>,
    /// Whether `failurePolicy` is `Ignore`.
    pub is_optional: bool,
    /// `paramKind`: API version and kind.
    pub params: Option<(String, String)>,
    conditions: Conditions,
    variables: Vec<Expression>,
    validations: Vec<Validation>,
    annotations: Vec<Expression>,
}

/// CEL expression with a name.
#[derive(Debug, Clone)]
struct Expression {
    name: String,
    source: String,
    program: Result<Program, CompileError>,
}

#[derive(Debug, Clone)]
struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

/// Whether policies are never evaluated for a resource: authentication and authorization reviews, because a policy that
/// denies them could not be repaired (`pkg/kubeapiserver/admission/exclusion`).
#[must_use]
pub fn is_ignored(group: &str, resource: &str) -> bool {
    match group {
        "authentication.k8s.io" => matches!(resource, "selfsubjectreviews" | "tokenreviews"),
        "authorization.k8s.io" => matches!(
            resource,
            "localsubjectaccessreviews"
                | "selfsubjectaccessreviews"
                | "selfsubjectrulesreviews"
                | "subjectaccessreviews"
        ),
        _ => false,
    }
}

/// ValidatingAdmissionPolicyBinding.
#[derive(Debug, Clone)]
pub struct Binding {
    /// Name.
    pub name: String,
    /// Name of the policy.
    pub policy: String,
    /// `matchResources`, or the error of an invalid selector.
    pub matching: Result<Matching, MatchingError>,
    /// `paramRef`.
    pub params: Json,
    /// `validationActions`: `Deny`, `Warn`, `Audit`.
    pub actions: Vec<String>,
}

/// Failed validation (`PolicyDecision`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// Message.
    pub message: String,
    /// Reason of the `Status`.
    pub reason: String,
    /// Whether the request is denied whatever the `validationActions`.
    pub always: bool,
    /// Index of the validation.
    pub index: usize,
}

/// Result of the evaluation of a policy (`ValidateResult`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Failed validations.
    pub denials: Vec<Denial>,
    /// Audit annotations: keys and values.
    pub annotations: Vec<(String, String)>,
}

impl From<Vec<Denial>> for Decision {
    fn from(denials: Vec<Denial>) -> Self {
        Self { denials, annotations: Vec::new() }
    }
}

impl Denial {
    /// Creates a denial with the default reason, `Invalid`.
    #[must_use]
    pub fn new(message: String) -> Self {
        Self { message, reason: "Invalid".to_owned(), always: false, index: 0 }
    }

    /// Returns the HTTP status code of the reason.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self.reason.as_str() {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        }
    }
}

impl Expression {
    fn read(name: &str, source: &Json, types: &[(&str, Type)]) -> Self {
        let source = source.as_str().unwrap_or("").to_owned();
        Self { name: name.to_owned(), program: Program::compile(&source, types), source }
    }

    fn evaluate(&self, values: &Variables<'_>, budget: &mut Budget) -> Result<Value, EvalError> {
        match &self.program {
            Ok(program) => program.evaluate(values, budget),
            Err(error) => Err(EvalError::Failed { message: error.to_string() }),
        }
    }
}

/// Returns the types of the additional variables of policies.
fn policy_variable_types() -> Vec<(&'static str, Type)> {
    vec![("params", Type::Dyn), ("namespaceObject", namespace())]
}

/// Returns the type of `namespaceObject` (`BuildNamespaceType`).
fn namespace() -> Type {
    let texts = || Type::Map(Box::new(Type::STRING));
    let metadata = object_type([
        ("name", Type::STRING),
        ("generateName", Type::STRING),
        ("namespace", Type::STRING),
        ("labels", texts()),
        ("annotations", texts()),
        ("UID", Type::STRING),
        // Timestamps are strings in JSON.
        ("creationTimestamp", Type::Dyn),
        ("deletionGracePeriodSeconds", Type::INT),
        ("deletionTimestamp", Type::Dyn),
        ("generation", Type::INT),
        ("resourceVersion", Type::STRING),
        ("finalizers", Type::list(Type::STRING)),
    ]);
    let condition = object_type([
        ("status", Type::STRING),
        ("type", Type::STRING),
        ("lastTransitionTime", Type::Dyn),
        ("message", Type::STRING),
        ("reason", Type::STRING),
    ]);
    let spec = object_type([("finalizers", Type::list(Type::STRING))]);
    let status = object_type([("conditions", Type::list(condition)), ("phase", Type::STRING)]);
    object_type([("metadata", metadata), ("spec", spec), ("status", status)])
}

/// Compiles the variables of a policy, each with the preceding ones in scope, and adds their types.
fn variables(spec: &Json, types: &mut Vec<(&'static str, Type)>) -> Vec<Expression> {
    let (mut known, mut all) = (BTreeMap::new(), Vec::new());
    types.push(("variables", Type::Object(Arc::new(known.clone()))));
    for variable in spec["variables"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().unwrap_or("");
        let expression = Expression::read(name, &variable["expression"], types);
        let result = expression.program.as_ref().map_or(Type::Dyn, |program| program.result().clone());
        known.insert(name.to_owned(), result);
        if let Some((_, last)) = types.last_mut() {
            *last = Type::Object(Arc::new(known.clone()));
        }
        all.push(expression);
    }
    all
}

impl Policy {
    /// Compiles a policy. Compilation errors are reported on evaluation.
    #[must_use]
    pub fn read(policy: &Json) -> Self {
        let spec = &policy["spec"];
        let text = |object: &Json, field: &str| object[field].as_str().unwrap_or("").to_owned();
        let mut types = conditions::types(&policy_variable_types());
        // Match conditions are evaluated before the variables.
        let with_authorizer = |types: &[(&'static str, Type)]| [types, &[("authorizer", Type::AUTHORIZER)]].concat();
        let conditions = Conditions::read(&spec["matchConditions"], &with_authorizer(&types));
        let variables = variables(spec, &mut types);
        let checked = with_authorizer(&types);
        let validation = |validation: &Json| Validation {
            expression: Expression::read("", &validation["expression"], &checked),
            message: text(validation, "message").trim().to_owned(),
            message_expression: validation["messageExpression"]
                .as_str()
                .filter(|e| !e.is_empty())
                .map(|_| Expression::read("", &validation["messageExpression"], &types)),
            reason: Some(text(validation, "reason")).filter(|r| !r.is_empty()).unwrap_or_else(|| "Invalid".to_owned()),
        };
        let annotation = |a: &Json| Expression::read(&text(a, "key"), &a["valueExpression"], &types);
        let params = &spec["paramKind"];
        Self {
            name: text(&policy["metadata"], "name"),
            matching: Matching::of_policy(&spec["matchConstraints"]),
            is_optional: spec["failurePolicy"] == "Ignore",
            params: params.is_object().then(|| (text(params, "apiVersion"), text(params, "kind"))),
            conditions,
            variables,
            validations: spec["validations"].as_array().into_iter().flatten().map(validation).collect(),
            annotations: spec["auditAnnotations"].as_array().into_iter().flatten().map(annotation).collect(),
        }
    }

    /// Evaluates the policy for a request. `inputs` are [`conditions::inputs`].
    #[must_use]
    pub fn decide(&self, mut inputs: Variables<'_>, params: &Json, namespace: &Json) -> Decision {
        inputs.push(("params", Value::from(params)));
        inputs.push(("namespaceObject", Value::from(namespace)));
        match self.conditions.matches(&inputs) {
            Ok(true) => {}
            Ok(false) => return Decision::default(),
            Err(error) => return Vec::from_iter(self.failed(error.to_string())).into(),
        }
        let mut budget = Budget::default();
        let failed = evaluate_variables(&self.variables, &mut inputs, &mut budget);
        let (mut denials, mut annotations) = (Vec::new(), Vec::new());
        for (index, validation) in self.validations.iter().enumerate() {
            match validation.expression.evaluate(&inputs, &mut budget) {
                Ok(Value::Bool(true)) => {}
                Ok(_) => denials.push(Denial {
                    message: validation.failure_message(&inputs, &mut budget),
                    reason: validation.reason.clone(),
                    always: false,
                    index,
                }),
                Err(error) => {
                    let denial = self.failed(expression_error(&validation.expression, error, &failed).to_string());
                    denials.extend(denial.map(|denial| Denial { index, ..denial }));
                }
            }
        }
        for annotation in &self.annotations {
            let message = match annotation.evaluate(&inputs, &mut budget) {
                Ok(Value::String(text)) => {
                    let text = text.trim();
                    if !text.is_empty() {
                        annotations.push((annotation.name.clone(), text.to_owned()));
                    }
                    continue;
                }
                Ok(Value::Null) => continue,
                Ok(_) => format!(
                    "valueExpression '{}' resulted in unsupported return type. Return type must be either string or null.",
                    annotation.source
                ),
                Err(error) => expression_error(annotation, error, &failed).to_string(),
            };
            denials.extend(self.failed(message).map(|denial| Denial { always: true, ..denial }));
        }
        Decision { denials, annotations }
    }

    /// Returns the denial for an expression that cannot be evaluated, unless `failurePolicy` is `Ignore`.
    fn failed(&self, message: String) -> Option<Denial> {
        (!self.is_optional).then(|| Denial::new(message))
    }
}

/// Evaluates and adds the variables. Returns the errors of failed ones, which only affect expressions that use them.
fn evaluate_variables(
    variables: &[Expression],
    inputs: &mut Variables<'_>,
    budget: &mut Budget,
) -> BTreeMap<String, EvalError> {
    let (mut known, mut failed) = (BTreeMap::new(), BTreeMap::new());
    inputs.push(("variables", Value::Map(Arc::default())));
    for variable in variables {
        match variable.evaluate(inputs, budget) {
            Ok(value) => drop(known.insert(Key::String(variable.name.as_str().into()), value)),
            Err(error) => drop(failed.insert(variable.name.clone(), error)),
        }
        if let Some((_, last)) = inputs.last_mut() {
            *last = Value::Map(Arc::new(known.clone()));
        }
    }
    failed
}

/// Returns the error of a failed expression, with the cause if it uses a failed variable.
fn expression_error(
    expression: &Expression,
    error: EvalError,
    failed: &BTreeMap<String, EvalError>,
) -> ExpressionError {
    if let Err(error) = &expression.program {
        return error.clone().into();
    }
    let text = error.to_string();
    let cause = text.strip_prefix("no such key: ").and_then(|name| Some((name, failed.get(name)?)));
    match cause.filter(|(name, _)| expression.source.contains(&format!("variables.{name}"))) {
        Some((name, error)) => {
            let message = format!("composited variable {name:?} fails to evaluate: {error}");
            ExpressionError::evaluation(&expression.source, EvalError::Failed { message })
        }
        None => ExpressionError::evaluation(&expression.source, error),
    }
}

impl Validation {
    /// Returns the message of a failed validation.
    fn failure_message(&self, inputs: &Variables<'_>, budget: &mut Budget) -> String {
        let made = self.message_expression.as_ref().and_then(|e| e.evaluate(inputs, budget).ok());
        if let Some(Value::String(text)) = made {
            let text = text.trim();
            if !text.is_empty() && text.len() <= MAX_MESSAGE_LENGTH && !text.contains('\n') {
                return text.to_owned();
            }
        }
        if self.message.is_empty() {
            format!("failed expression: {}", self.expression.source.trim())
        } else {
            self.message.clone()
        }
    }
}

impl Binding {
    /// Parses a binding.
    #[must_use]
    pub fn read(binding: &Json) -> Self {
        let spec = &binding["spec"];
        let actions = spec["validationActions"].as_array().into_iter().flatten();
        Self {
            name: binding["metadata"]["name"].as_str().unwrap_or("").to_owned(),
            policy: spec["policyName"].as_str().unwrap_or("").to_owned(),
            matching: Matching::of_binding(&spec["matchResources"]),
            params: spec["paramRef"].clone(),
            actions: actions.filter_map(Json::as_str).map(str::to_owned).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
