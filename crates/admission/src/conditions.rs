//! Match conditions, and the variables of CEL expressions in webhooks and policies
//! (`apiserver/pkg/admission/plugin/cel`, `.../webhook/matchconditions`).

use crate::Aggregate;
pub use crate::policy::match_conditions as check;
use expr::{Authorizer, AuthorizerBuilder, Budget, CompileError, EvalError, Program, Type, Value};
use serde_json::Value as Json;
use std::{collections::BTreeMap, sync::Arc};

/// Error of an expression, with upstream's message.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ExpressionError {
    /// The expression does not compile.
    #[error("compilation error: {0}")]
    Compile(#[from] CompileError),
    /// The cost budget is exceeded.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    BudgetExhausted,
    /// The evaluation failed.
    #[error("expression '{expression}' resulted in error: {source}")]
    Evaluation {
        /// The expression.
        expression: String,
        /// The cause.
        source: EvalError,
    },
    /// The result of a match condition is not a boolean.
    #[error("expression '{0}' resulted in error: it is neither true nor false")]
    NotBool(String),
}

impl ExpressionError {
    /// Creates the error of a failed evaluation.
    pub(crate) fn evaluation(expression: &str, error: EvalError) -> Self {
        match error {
            EvalError::BudgetExhausted => Self::BudgetExhausted,
            source => Self::Evaluation { expression: expression.to_owned(), source },
        }
    }
}

/// Names and values of CEL variables.
pub type Variables<'a> = Vec<(&'a str, Value)>;

/// Returns the variables of all expressions: `object`, `oldObject`, `request` and `authorizer`.
#[must_use]
pub fn inputs(object: &Json, old: &Json, request: &Json, authority: Arc<dyn Authorizer>) -> Variables<'static> {
    vec![
        ("object", Value::from(object)),
        ("oldObject", Value::from(old)),
        ("request", Value::from(request)),
        ("authorizer", Value::Authorizer(Arc::new(AuthorizerBuilder::new(authority)))),
    ]
}

/// Returns the types of the variables of all expressions, and of additional ones.
#[must_use]
pub fn types<'a>(additional: &[(&'a str, Type)]) -> Vec<(&'a str, Type)> {
    let mut all = vec![("object", Type::Dyn), ("oldObject", Type::Dyn), ("request", request())];
    all.extend(additional.iter().cloned());
    all
}

/// Returns an object type with these fields.
#[must_use]
pub fn object_type<const N: usize>(fields: [(&str, Type); N]) -> Type {
    Type::Object(Arc::new(
        fields.into_iter().map(|(name, field_type)| (name.to_owned(), field_type)).collect::<BTreeMap<_, _>>(),
    ))
}

/// Returns the type of an AdmissionRequest without its objects (`BuildRequestType`).
fn request() -> Type {
    let kind = || object_type([("group", Type::STRING), ("version", Type::STRING), ("kind", Type::STRING)]);
    let resource = || object_type([("group", Type::STRING), ("version", Type::STRING), ("resource", Type::STRING)]);
    let user = object_type([
        ("username", Type::STRING),
        ("uid", Type::STRING),
        ("groups", Type::list(Type::STRING)),
        ("extra", Type::Map(Box::new(Type::list(Type::STRING)))),
    ]);
    object_type([
        ("kind", kind()),
        ("resource", resource()),
        ("subResource", Type::STRING),
        ("requestKind", kind()),
        ("requestResource", resource()),
        ("requestSubResource", Type::STRING),
        ("name", Type::STRING),
        ("namespace", Type::STRING),
        ("operation", Type::STRING),
        ("userInfo", user),
        ("dryRun", Type::BOOL),
        ("options", Type::Dyn),
    ])
}

/// Match conditions, which must all be true for a webhook or policy to apply.
#[derive(Debug, Clone, Default)]
pub struct Conditions(Vec<(String, Result<Program, CompileError>)>);

impl Conditions {
    /// Compiles `matchConditions` with variables of these types.
    #[must_use]
    pub fn read(list: &Json, variables: &[(&str, Type)]) -> Self {
        let one = |condition: &Json| {
            let source = condition["expression"].as_str().unwrap_or("").to_owned();
            let program = Program::compile(&source, variables);
            (source, program)
        };
        Self(list.as_array().into_iter().flatten().map(one).collect())
    }

    /// Whether there are no conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Evaluates the conditions. A false condition takes precedence over errors.
    ///
    /// # Errors
    /// If no condition is false and some cannot be evaluated.
    pub fn matches(&self, variables: &Variables<'_>) -> Result<bool, Aggregate<ExpressionError>> {
        let mut budget = Budget::for_match_conditions();
        let mut errors = Vec::new();
        for (source, program) in &self.0 {
            match program.as_ref().map(|program| program.evaluate(variables, &mut budget)) {
                Ok(Ok(Value::Bool(true))) => {}
                Ok(Ok(Value::Bool(false))) => return Ok(false),
                Ok(Ok(_)) => errors.push(ExpressionError::NotBool(source.clone())),
                Ok(Err(error)) => errors.push(ExpressionError::evaluation(source, error)),
                Err(error) => errors.push(error.clone().into()),
            }
        }
        Aggregate::check(errors).map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn false_condition_takes_precedence_over_errors() {
        let object = json!({"metadata": {"name": "a", "namespace": "n", "labels": {"a.b/c": "d"}}});
        let request = json!({"operation": "CREATE", "userInfo": {"username": "ann", "groups": ["g"]}});
        let check = |conditions: &[&str], expected: Result<bool, &str>| {
            let list: Vec<Json> = conditions.iter().map(|c| json!({"name": "x", "expression": c})).collect();
            let conditions = Conditions::read(&json!(list), &types(&[]));
            let variables =
                vec![("object", Value::from(&object)), ("oldObject", Value::Null), ("request", Value::from(&request))];
            let got = conditions.matches(&variables).map_err(|error| error.to_string());
            assert_eq!(got, expected.map_err(str::to_owned), "{list:?}");
        };
        check(&[], Ok(true));
        check(&["object.metadata.name == 'a'", "oldObject == null"], Ok(true));
        check(&["object.metadata.labels['a.b/c'] == 'd'", "object.metadata.namespace == 'n'"], Ok(true));
        check(&["request.userInfo.username != 'ann'"], Ok(false));
        check(&["'g' in request.userInfo.groups && request.operation in ['CREATE']"], Ok(true));
        let missing = "expression 'object.spec.x == 1' resulted in error: no such key: spec";
        check(&["object.spec.x == 1"], Err(missing));
        check(&["object.spec.x == 1", "false"], Ok(false));
        check(&["!has(object.spec) || object.spec.x == 1"], Ok(true));
    }
}
