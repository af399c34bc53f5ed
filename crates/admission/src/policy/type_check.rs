//! Whether the expressions of a policy fit the objects that it is about (`validating.TypeChecker`).

use super::{Expression, more, variables};
use crate::conditions;
use expr::Type;
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// Of so many kinds the expressions are looked at.
const MOST: usize = 10;

/// An expression that does not fit some objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionWarning {
    /// For example `spec.validations[0].expression`.
    pub field: String,
    /// Which objects, and why.
    pub warning: String,
}

/// The kind of a resource, and the type of its objects.
pub struct Known {
    /// For example `apps/v1, Kind=Deployment`, and `/v1, Kind=Pod`.
    pub kind: String,
    /// What its objects are made of.
    pub object: Type,
}

/// Everything in a policy's spec that does not fit; `find` knows resources by group, version and name, and `params` is the
/// type of what configures the policy, if that is known.
#[must_use]
pub fn type_check(
    spec: &Json,
    params: Option<&Type>,
    find: &dyn Fn(&str, &str, &str) -> Option<Known>,
) -> Vec<ExpressionWarning> {
    let found = resources(spec).into_iter().filter_map(|[group, version, resource]| {
        let known = find(group, version, resource)?;
        let types = types(spec, &known.object, params);
        Some(([group, version], known, types))
    });
    let mut all: Vec<_> = found.take(MOST).collect();
    all.sort_by(|(left, one, _), (right, other, _)| (left, &one.kind).cmp(&(right, &other.kind)));
    let mut warnings = Vec::new();
    for (i, validation) in spec["validations"].as_array().into_iter().flatten().enumerate() {
        for field in ["expression", "messageExpression"] {
            if validation[field].as_str().is_none_or(str::is_empty) {
                continue;
            }
            let wrong = all.iter().filter_map(|(_, known, types)| {
                let why = Expression::read("", &validation[field], types).program.err()?;
                let why = why.trim_start_matches("compilation failed: ");
                Some(format!("{}: {why}\n", known.kind))
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
    let mut types = conditions::types(&more());
    // What nothing is known of is not there, as upstream has it.
    types.retain(|(name, _)| *name != "params" || params.is_some());
    for (name, of) in &mut types {
        match (*name, params) {
            ("object" | "oldObject", _) => *of = object.clone(),
            ("params", Some(params)) => *of = params.clone(),
            _ => {}
        }
    }
    variables(spec, &mut types);
    types.push(("authorizer", Type::AUTHORIZER));
    types
}

/// Group, version and name of the resources that a policy names. Those that it has a pattern for could be any, and so could
/// all of a rule with a pattern for groups or versions.
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
