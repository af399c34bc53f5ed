//! Validating admission policies: expressions that must hold of what is written
//! (`apiserver/pkg/admission/plugin/policy/validating`).

mod mutating;
mod type_check;
mod written;

pub use mutating::{Change, MutatingPolicy};
pub use type_check::{ExpressionWarning, Known, type_check};
pub use written::{binding as check_binding, match_conditions, mutating as check_mutating, policy as check};

use crate::{
    conditions::{self, Conditions, Variables, fields},
    matching::Matching,
};
use expr::{Budget, EvalError, Key, Program, Type, Value};
use serde_json::Value as Json;
use std::{collections::BTreeMap, sync::Arc};

/// Longer messages are not shown.
const LONGEST_MESSAGE: usize = 5 << 10;

/// A policy.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// What it is about; or why that cannot be said.
    pub matching: Result<Matching, String>,
    /// Whether requests go on when it cannot be evaluated.
    pub is_optional: bool,
    /// Version and kind of the objects by which its bindings configure it.
    pub params: Option<(String, String)>,
    conditions: Conditions,
    variables: Vec<Expression>,
    validations: Vec<Validation>,
    annotations: Vec<Expression>,
}

/// An expression, and what it is called.
#[derive(Debug, Clone)]
struct Expression {
    name: String,
    source: String,
    program: Result<Program, String>,
}

#[derive(Debug, Clone)]
struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

/// Whether this is a question about who somebody is, or what they may do: policies are not asked about those, for nobody
/// could mend one that refuses them (`pkg/kubeapiserver/admission/exclusion`).
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

/// Where a policy holds.
#[derive(Debug, Clone)]
pub struct Binding {
    /// Its name.
    pub name: String,
    /// The policy's name.
    pub policy: String,
    /// What it is about, beside the policy; or why that cannot be said.
    pub matching: Result<Matching, String>,
    /// Which objects configure the policy here: `paramRef`.
    pub params: Json,
    /// What follows when the policy is not kept: `Deny`, `Warn`, `Audit`.
    pub actions: Vec<String>,
}

/// Why something may not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// What is told.
    pub message: String,
    /// The reason of the `Status`.
    pub reason: String,
    /// Whether the client is refused whatever the binding says.
    pub always: bool,
    /// Which of the policy's validations it is about.
    pub index: usize,
}

/// What a policy says of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// Why it is not kept.
    pub denials: Vec<Denial>,
    /// What is for the audit log: keys and values.
    pub annotations: Vec<(String, String)>,
}

impl From<Vec<Denial>> for Said {
    fn from(denials: Vec<Denial>) -> Self {
        Self { denials, annotations: Vec::new() }
    }
}

impl Denial {
    /// One that has the usual reason.
    #[must_use]
    pub fn new(message: String) -> Self {
        Self { message, reason: "Invalid".to_owned(), always: false, index: 0 }
    }

    /// The HTTP code of its reason.
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
            Err(why) => Err(EvalError::Wrong(why.clone())),
        }
    }
}

/// What expressions of a policy can name beside what all can.
fn more() -> Vec<(&'static str, Type)> {
    vec![("params", Type::Dyn), ("namespaceObject", namespace())]
}

/// What of a namespace can be named (`BuildNamespaceType`).
fn namespace() -> Type {
    let texts = || Type::Map(Box::new(Type::STRING));
    let metadata = fields([
        ("name", Type::STRING),
        ("generateName", Type::STRING),
        ("namespace", Type::STRING),
        ("labels", texts()),
        ("annotations", texts()),
        ("UID", Type::STRING),
        // Moments are texts here.
        ("creationTimestamp", Type::Dyn),
        ("deletionGracePeriodSeconds", Type::INT),
        ("deletionTimestamp", Type::Dyn),
        ("generation", Type::INT),
        ("resourceVersion", Type::STRING),
        ("finalizers", Type::list(Type::STRING)),
    ]);
    let condition = fields([
        ("status", Type::STRING),
        ("type", Type::STRING),
        ("lastTransitionTime", Type::Dyn),
        ("message", Type::STRING),
        ("reason", Type::STRING),
    ]);
    let spec = fields([("finalizers", Type::list(Type::STRING))]);
    let status = fields([("conditions", Type::list(condition)), ("phase", Type::STRING)]);
    fields([("metadata", metadata), ("spec", spec), ("status", status)])
}

/// The variables of a policy, each over those before it; and the types that everything after them sees.
fn variables(spec: &Json, types: &mut Vec<(&'static str, Type)>) -> Vec<Expression> {
    let (mut known, mut all) = (BTreeMap::new(), Vec::new());
    types.push(("variables", Type::Object(Arc::new(known.clone()))));
    for variable in spec["variables"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().unwrap_or("");
        let expression = Expression::read(name, &variable["expression"], types);
        let of = expression.program.as_ref().map_or(Type::Dyn, |program| program.result().clone());
        known.insert(name.to_owned(), of);
        if let Some((_, last)) = types.last_mut() {
            *last = Type::Object(Arc::new(known.clone()));
        }
        all.push(expression);
    }
    all
}

impl Policy {
    /// Reads a policy. What is wrong with an expression is told when it is needed.
    #[must_use]
    pub fn read(policy: &Json) -> Self {
        let spec = &policy["spec"];
        let text = |of: &Json, field: &str| of[field].as_str().unwrap_or("").to_owned();
        let mut types = conditions::types(&more());
        // Conditions are asked before there are variables.
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

    /// Whether a request keeps the policy. `inputs` are [`conditions::inputs`].
    #[must_use]
    pub fn decide(&self, mut inputs: Variables<'_>, params: &Json, namespace: &Json) -> Said {
        inputs.push(("params", Value::from(params)));
        inputs.push(("namespaceObject", Value::from(namespace)));
        match self.conditions.hold(&inputs) {
            Ok(true) => {}
            Ok(false) => return Said::default(),
            Err(why) => return Vec::from_iter(self.failed(why)).into(),
        }
        let mut budget = Budget::default();
        let failed = evaluate_variables(&self.variables, &mut inputs, &mut budget);
        let (mut denials, mut annotations) = (Vec::new(), Vec::new());
        for (index, validation) in self.validations.iter().enumerate() {
            match validation.expression.evaluate(&inputs, &mut budget) {
                Ok(Value::Bool(true)) => {}
                Ok(_) => denials.push(Denial {
                    message: validation.told(&inputs, &mut budget),
                    reason: validation.reason.clone(),
                    always: false,
                    index,
                }),
                Err(error) => {
                    let denial = self.failed(told(&validation.expression, error, &failed));
                    denials.extend(denial.map(|denial| Denial { index, ..denial }));
                }
            }
        }
        for annotation in &self.annotations {
            let why = match annotation.evaluate(&inputs, &mut budget) {
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
                Err(error) => told(annotation, error, &failed),
            };
            denials.extend(self.failed(why).map(|denial| Denial { always: true, ..denial }));
        }
        Said { denials, annotations }
    }

    /// What comes of an expression that cannot be evaluated.
    fn failed(&self, why: String) -> Option<Denial> {
        (!self.is_optional).then(|| Denial::new(why))
    }
}

/// Adds the variables; gives those that have no value, and why. Those matter only to whoever names them.
fn evaluate_variables(
    variables: &[Expression],
    inputs: &mut Variables<'_>,
    budget: &mut Budget,
) -> BTreeMap<String, String> {
    let (mut known, mut failed) = (BTreeMap::new(), BTreeMap::new());
    inputs.push(("variables", Value::Map(Arc::default())));
    for variable in variables {
        match variable.evaluate(inputs, budget) {
            Ok(value) => drop(known.insert(Key::String(variable.name.as_str().into()), value)),
            Err(error) => drop(failed.insert(variable.name.clone(), error.to_string())),
        }
        if let Some((_, last)) = inputs.last_mut() {
            *last = Value::Map(Arc::new(known.clone()));
        }
    }
    failed
}

/// Why an expression has no value; where a variable has none, why that is so.
fn told(expression: &Expression, error: EvalError, failed: &BTreeMap<String, String>) -> String {
    if let Err(why) = &expression.program {
        return format!("compilation error: {why}");
    }
    let text = error.to_string();
    let cause = text.strip_prefix("no such key: ").and_then(|name| Some((name, failed.get(name)?)));
    match cause.filter(|(name, _)| expression.source.contains(&format!("variables.{name}"))) {
        Some((name, why)) => {
            let why = format!("composited variable {name:?} fails to evaluate: {why}");
            conditions::told(&expression.source, &EvalError::Wrong(why))
        }
        None => conditions::told(&expression.source, &error),
    }
}

impl Validation {
    /// What is told when it does not hold.
    fn told(&self, inputs: &Variables<'_>, budget: &mut Budget) -> String {
        let made = self.message_expression.as_ref().and_then(|e| e.evaluate(inputs, budget).ok());
        if let Some(Value::String(text)) = made {
            let text = text.trim();
            if !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n') {
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
    /// Reads a binding.
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
