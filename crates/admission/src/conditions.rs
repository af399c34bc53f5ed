//! Match conditions, and the variables of CEL expressions in webhooks and policies
//! (`apiserver/pkg/admission/plugin/cel`, `.../webhook/matchconditions`).

pub use crate::policy::match_conditions as check;
use expr::{Authorizer, AuthorizerBuilder, Budget, EvalError, Program, Type, Value};
use serde_json::Value as Json;
use std::{collections::BTreeMap, sync::Arc};

/// Error text when the cost budget is exceeded.
const SPENT: &str = "validation failed due to running out of cost budget, no further validation rules will be run";

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
pub fn types<'a>(more: &[(&'a str, Type)]) -> Vec<(&'a str, Type)> {
    let mut all = vec![("object", Type::Dyn), ("oldObject", Type::Dyn), ("request", request())];
    all.extend(more.iter().cloned());
    all
}

/// Returns an object type with these fields.
#[must_use]
pub fn object_type<const N: usize>(fields: [(&str, Type); N]) -> Type {
    Type::Object(Arc::new(fields.into_iter().map(|(name, of)| (name.to_owned(), of)).collect::<BTreeMap<_, _>>()))
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

/// Returns upstream's error text for a failed expression.
#[must_use]
pub fn evaluation_error(source: &str, error: &EvalError) -> String {
    match error {
        EvalError::BudgetExhausted => SPENT.to_owned(),
        error => format!("expression '{source}' resulted in error: {error}"),
    }
}

/// Match conditions, which must all be true for a webhook or policy to apply.
#[derive(Debug, Clone, Default)]
pub struct Conditions(Vec<(String, Result<Program, String>)>);

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
    pub fn hold(&self, variables: &Variables<'_>) -> Result<bool, String> {
        let mut budget = Budget::for_match_conditions();
        let mut errors = Vec::new();
        for (source, program) in &self.0 {
            match program.as_ref().map(|program| program.evaluate(variables, &mut budget)) {
                Ok(Ok(Value::Bool(true))) => {}
                Ok(Ok(Value::Bool(false))) => return Ok(false),
                Ok(Ok(_)) => {
                    errors.push(format!("expression '{source}' resulted in error: it is neither true nor false"));
                }
                Ok(Err(error)) => errors.push(evaluation_error(source, &error)),
                Err(why) => errors.push(format!("compilation error: {why}")),
            }
        }
        match errors.len() {
            0 => Ok(true),
            1 => Err(errors.concat()),
            _ => Err(format!("[{}]", errors.join(", "))),
        }
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
            assert_eq!(conditions.hold(&variables).as_ref().map_err(String::as_str).copied(), expected, "{list:?}");
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
