//! MutatingAdmissionPolicy: mutation of objects with CEL expressions
//! (`apiserver/pkg/admission/plugin/policy/mutating`).

use super::{Expression, evaluate_variables, expression_error, policy_variable_types, variables};
use crate::{
    Aggregate,
    conditions::{self, Conditions, ExpressionError, Variables},
    matching::{Matching, MatchingError},
};
use expr::{Budget, Type, Value};
use serde_json::{Value as Json, json};

/// Compiled MutatingAdmissionPolicy.
#[derive(Debug, Clone)]
pub struct MutatingPolicy {
    /// Name.
    pub name: String,
    /// `matchConstraints`, or the error of an invalid selector.
    pub matching: Result<Matching, MatchingError>,
    /// Whether `failurePolicy` is `Ignore`.
    pub is_optional: bool,
    /// Whether `reinvocationPolicy` is `IfNeeded`.
    pub is_reinvoked: bool,
    /// `paramKind`: API version and kind.
    pub params: Option<(String, String)>,
    conditions: Conditions,
    variables: Vec<Expression>,
    mutations: Vec<Mutation>,
}

#[derive(Debug, Clone)]
struct Mutation {
    /// Whether the patch type is `ApplyConfiguration`, not `JSONPatch`.
    applies: bool,
    expression: Expression,
}

/// Result of a mutation expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// `ApplyConfiguration`: fields to merge into the object.
    ApplyConfiguration(Json),
    /// `JSONPatch`: operations.
    JsonPatch(Json),
}

/// Error of a mutation expression, with upstream's message.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MutationError {
    /// The expression failed.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// The result of an `ApplyConfiguration` is not an object.
    #[error("unsupported return type from ApplyConfiguration expression: it is no Object")]
    NotAnObject,
    /// The result of a `JSONPatch` is not a list of operations.
    #[error("type mismatch: JSONPatchType.expression should evaluate to array")]
    NotAnArray,
}

/// Returns the expression of a mutation, and whether it is an `ApplyConfiguration`.
pub(super) fn source(mutation: &Json) -> (&'static str, &Json) {
    match mutation["patchType"].as_str() {
        Some("JSONPatch") => ("jsonPatch", &mutation["jsonPatch"]["expression"]),
        _ => ("applyConfiguration", &mutation["applyConfiguration"]["expression"]),
    }
}

/// Returns the types of the variables available before the policy's own variables.
pub(super) fn types(spec: &Json) -> Vec<(&'static str, Type)> {
    let mut types = conditions::types(&policy_variable_types());
    // `params` requires a `paramKind`.
    types.retain(|(name, _)| *name != "params" || spec["paramKind"].is_object());
    types
}

/// Adds the types of `authorizer` and of the patch objects.
pub(super) fn with_mutation_types(types: &[(&'static str, Type)]) -> Vec<(&'static str, Type)> {
    [types, &[("authorizer", Type::AUTHORIZER), Type::MUTATION_TYPES]].concat()
}

impl MutatingPolicy {
    /// Compiles a policy. Compilation errors are reported on evaluation.
    #[must_use]
    pub fn read(policy: &Json) -> Self {
        let spec = &policy["spec"];
        let text = |object: &Json, field: &str| object[field].as_str().unwrap_or("").to_owned();
        let mut types = types(spec);
        let authorized = [types.as_slice(), &[("authorizer", Type::AUTHORIZER)]].concat();
        let conditions = Conditions::read(&spec["matchConditions"], &authorized);
        types.push(Type::MUTATION_TYPES);
        let variables = variables(spec, &mut types);
        let known = with_mutation_types(&types);
        let mutation = |mutation: &Json| {
            let (field, source) = source(mutation);
            Mutation { applies: field == "applyConfiguration", expression: Expression::read("", source, &known) }
        };
        let params = &spec["paramKind"];
        Self {
            name: text(&policy["metadata"], "name"),
            matching: Matching::of_policy(&spec["matchConstraints"]),
            is_optional: spec["failurePolicy"] == "Ignore",
            is_reinvoked: spec["reinvocationPolicy"] == "IfNeeded",
            params: params.is_object().then(|| (text(params, "apiVersion"), text(params, "kind"))),
            conditions,
            variables,
            mutations: spec["mutations"].as_array().into_iter().flatten().map(mutation).collect(),
        }
    }

    /// Returns the number of mutations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mutations.len()
    }

    /// Whether there are no mutations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mutations.is_empty()
    }

    /// Whether the match conditions are true for a request. `inputs` are [`conditions::inputs`].
    ///
    /// # Errors
    /// If a condition cannot be evaluated.
    pub fn matches(
        &self,
        inputs: Variables<'_>,
        params: &Json,
        namespace: &Json,
    ) -> Result<bool, Aggregate<ExpressionError>> {
        self.conditions.matches(&with_objects(inputs, params, namespace))
    }

    /// Evaluates a mutation for the object after the preceding mutations.
    ///
    /// # Errors
    /// If the expression fails or returns an invalid value.
    pub fn patch(
        &self,
        index: usize,
        inputs: Variables<'_>,
        params: &Json,
        namespace: &Json,
    ) -> Result<Patch, MutationError> {
        let Some(Mutation { applies, expression }) = self.mutations.get(index) else {
            return Ok(Patch::JsonPatch(json!([])));
        };
        let mut inputs = with_objects(inputs, params, namespace);
        let mut budget = Budget::default();
        let failed = evaluate_variables(&self.variables, &mut inputs, &mut budget);
        let value =
            expression.evaluate(&inputs, &mut budget).map_err(|error| expression_error(expression, error, &failed))?;
        let json =
            |value: &Value| value.to_json().map_err(|error| ExpressionError::evaluation(&expression.source, error));
        match (&value, applies) {
            (Value::Map(_), true) => Ok(Patch::ApplyConfiguration(json(&value)?)),
            (_, true) => Err(MutationError::NotAnObject),
            (Value::List(steps), false) if steps.iter().all(|step| matches!(step, Value::Map(_))) => {
                Ok(Patch::JsonPatch(json(&value)?))
            }
            (_, false) => Err(MutationError::NotAnArray),
        }
    }
}

fn with_objects<'a>(mut inputs: Variables<'a>, params: &Json, namespace: &Json) -> Variables<'a> {
    inputs.push(("params", Value::from(params)));
    inputs.push(("namespaceObject", Value::from(namespace)));
    inputs
}

#[cfg(test)]
mod tests {
    use super::*;
    use expr::{AuthorizationAttributes, AuthorizationDecision, Authorizer};
    use std::sync::Arc;

    #[derive(Debug)]
    struct DenyAll;

    impl Authorizer for DenyAll {
        fn authorize(&self, _: &AuthorizationAttributes) -> AuthorizationDecision {
            AuthorizationDecision { allowed: false, reason: String::new() }
        }
        fn request(&self) -> AuthorizationAttributes {
            AuthorizationAttributes::default()
        }
    }

    #[track_caller]
    fn check(mutation: Json, expected: Result<Patch, &str>) {
        let spec = json!({"mutations": [mutation], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "variables": [{"name": "labels", "expression": "has(object.metadata.labels) ? object.metadata.labels : {}"}]});
        let policy = MutatingPolicy::read(&json!({"metadata": {"name": "p"}, "spec": spec}));
        let object = json!({"metadata": {"name": "a", "labels": {"a.b/c": "d"}}, "spec": {"replicas": 1}});
        let inputs = conditions::inputs(&object, &Json::Null, &json!({}), Arc::new(DenyAll));
        let got = policy.patch(0, inputs, &json!({"data": {"k": "v"}}), &Json::Null);
        assert_eq!(got.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
    }

    fn apply(expression: &str) -> Json {
        json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
    }

    fn patch(expression: &str) -> Json {
        json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
    }

    #[test]
    fn apply_configuration_expression_returns_fields() {
        let fields = json!({"metadata": {"labels": {"x": "v"}}, "spec": {"replicas": 2}});
        let source = "Object{metadata: Object.metadata{labels: {'x': params.data.k}}, spec: Object.spec{replicas: object.spec.replicas + 1}}";
        check(apply(source), Ok(Patch::ApplyConfiguration(fields)));
        let with_items = "Object{spec: Object.spec{containers: object.spec.replicas == 1 ? [Object.spec.containers{name: 'c'}] : []}}";
        check(apply(with_items), Ok(Patch::ApplyConfiguration(json!({"spec": {"containers": [{"name": "c"}]}}))));
        check(apply("Object{?spec: optional.none()}"), Ok(Patch::ApplyConfiguration(json!({}))));
        let missing = "expression 'Object{spec: object.none}' resulted in error: no such key: none";
        check(apply("Object{spec: object.none}"), Err(missing));
    }

    #[test]
    fn json_patch_expression_returns_operations() {
        let source = "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a.b/c~d'), value: variables.labels}]";
        let step = json!({"op": "add", "path": "/metadata/labels/a.b~1c~0d", "value": {"a.b/c": "d"}});
        check(patch(source), Ok(Patch::JsonPatch(json!([step]))));
        let made =
            "variables.labels.map(k, JSONPatch{op: 'remove', path: '/metadata/labels/' + jsonpatch.escapeKey(k)})";
        check(patch(made), Ok(Patch::JsonPatch(json!([{"op": "remove", "path": "/metadata/labels/a.b~1c"}]))));
        check(patch("[]"), Ok(Patch::JsonPatch(json!([]))));
        check(patch("[1]"), Err("type mismatch: JSONPatchType.expression should evaluate to array"));
    }
}
