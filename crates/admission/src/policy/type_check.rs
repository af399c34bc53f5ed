//! Type checking of the expressions of a policy against the matched resources (`validating.TypeChecker`).

use super::{Expression, policy_variable_types, variables};
use crate::conditions;
use expr::Type;
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// Maximum number of kinds to check (`maxTypesToCheck`).
const MAX_TYPES_TO_CHECK: usize = 10;

/// Warning about an expression (`ExpressionWarning`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionWarning {
    /// Field, for example `spec.validations[0].expression`.
    pub field: String,
    /// Kinds and errors.
    pub warning: String,
}

/// Kind of a resource, and the type of its objects.
pub struct ResourceType {
    /// Kind, for example `apps/v1, Kind=Deployment`, and `/v1, Kind=Pod`.
    pub kind: String,
    /// Type of the objects.
    pub object: Type,
}

/// Returns the type checking warnings of a policy's spec. `find` returns a resource by group, version and name; `params` is
/// the type of the parameter objects, if it is known.
#[must_use]
pub fn type_check(
    spec: &Json,
    params: Option<&Type>,
    find: &dyn Fn(&str, &str, &str) -> Option<ResourceType>,
) -> Vec<ExpressionWarning> {
    let found = resources(spec).into_iter().filter_map(|[group, version, resource]| {
        let known = find(group, version, resource)?;
        let types = types(spec, &known.object, params);
        Some(([group, version], known, types))
    });
    let mut all: Vec<_> = found.take(MAX_TYPES_TO_CHECK).collect();
    all.sort_by(|(left, one, _), (right, other, _)| (left, &one.kind).cmp(&(right, &other.kind)));
    let mut warnings = Vec::new();
    for (i, validation) in spec["validations"].as_array().into_iter().flatten().enumerate() {
        for field in ["expression", "messageExpression"] {
            if validation[field].as_str().is_none_or(str::is_empty) {
                continue;
            }
            let wrong = all.iter().filter_map(|(_, known, types)| {
                let error = Expression::read("", &validation[field], types).program.err()?.to_string();
                let error = error.trim_start_matches("compilation failed: ");
                Some(format!("{}: {error}\n", known.kind))
            });
            let warning = wrong.collect::<Vec<_>>().join("\n");
            if !warning.is_empty() {
                warnings.push(ExpressionWarning { field: format!("spec.validations[{i}].{field}"), warning });
            }
        }
    }
    warnings
}

fn types(spec: &Json, object: &Type, params: Option<&Type>) -> Vec<(&'static str, Type)> {
    let mut types = conditions::types(&policy_variable_types());
    // `params` is undeclared if its type is not known, as upstream.
    types.retain(|(name, _)| *name != "params" || params.is_some());
    for (name, variable_type) in &mut types {
        match (*name, params) {
            ("object" | "oldObject", _) => *variable_type = object.clone(),
            ("params", Some(params)) => *variable_type = params.clone(),
            _ => {}
        }
    }
    variables(spec, &mut types);
    types.push(("authorizer", Type::AUTHORIZER));
    types
}

/// Returns group, version and name of the resources in a policy's rules. Wildcards are skipped, and so are all resources of
/// rules with a wildcard in groups or versions.
fn resources(spec: &Json) -> BTreeSet<[&str; 3]> {
    let mut all = BTreeSet::new();
    for rule in spec["matchConstraints"]["resourceRules"].as_array().into_iter().flatten() {
        let names = |field: &str| {
            let list = rule[field].as_array().into_iter().flatten().filter_map(Json::as_str);
            list.collect::<Vec<_>>()
        };
        let (groups, versions, mut resources) = (names("apiGroups"), names("apiVersions"), names("resources"));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        resources.retain(|name| !name.contains(['*', '/']));
        for group in groups {
            for version in &versions {
                all.extend(resources.iter().map(|resource| [group, *version, *resource]));
            }
        }
    }
    all
}
