//! ResourceQuota. `admission/resource_quota.rs` enforces it.

use super::{INTEGER_RESOURCES, validate_resource_quantity};
use crate::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, enums,
    field_validation::{items, text as text_of, validate_immutable},
    generic_kind::GenericKind,
    text,
};
use serde_json::{Value, json};

pub(crate) static RESOURCE_QUOTA: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("Request", Cell::Computed(|q, _| json!(usage_cell(q, false)))),
        text("Limit", Cell::Computed(|q, _| json!(usage_cell(q, true)))),
        AGE,
    ],
    validate,
    validate_change: |object, old, errors| {
        let path = FieldPath::new("spec").child("scopes");
        validate_immutable(&object["spec"]["scopes"], &old["spec"]["scopes"], &path, errors);
    },
    // Validates an update of the status (`ValidateResourceQuotaStatusUpdate`).
    validate_status: |object, _, errors| {
        let (path, status) = (FieldPath::new("status"), &object["status"]);
        ["hard", "used"].iter().for_each(|part| validate_quantities(&status[part], &path.child(part), errors));
    },
    ..GenericKind::new(&KindInfo {
        short_names: &["quota"],
        status: true,
        ..KindInfo::core("ResourceQuota", "resourcequotas", "resourcequota")
    })
};

/// Returns used and hard quantities of limits or of all other resources, for example `cpu: 1/2, pods: 3/10`.
fn usage_cell(quota: &Value, limits: bool) -> String {
    let status = &quota["status"];
    let hard = status["hard"].as_object().into_iter().flatten();
    let mut all: Vec<String> = hard
        .filter(|(name, _)| name.starts_with("limits") == limits)
        .map(|(name, hard)| {
            let shown = |v: &Value| v.as_str().unwrap_or("0").to_owned();
            format!("{name}: {}/{}", shown(&status["used"][name]), shown(hard))
        })
        .collect();
    all.sort();
    all.join(", ")
}

const COMPUTE_AND_STORAGE_RESOURCES: [&str; 10] = [
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
];

fn is_standard(name: &str) -> bool {
    let pages = name.starts_with("hugepages-") || name.starts_with("requests.hugepages-");
    pages || INTEGER_RESOURCES.contains(&name) || COMPUTE_AND_STORAGE_RESOURCES.contains(&name)
}

/// Validates a ResourceQuota (`ValidateResourceQuotaSpec`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    validate_quantities(&spec["hard"], &path.child("hard"), errors);
    let named: Vec<&str> = items(spec, "scopes").filter_map(Value::as_str).collect();
    validate_scopes(spec, &named, &spec["scopes"], &path.child("scopes"), errors);
    if !spec["scopeSelector"].is_null() {
        validate_scope_selector(spec, &path.child("scopeSelector").child("matchExpressions"), errors);
    }
}

/// Validates the names and quantities of resources.
fn validate_quantities(all: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (name, quantity) in all.as_object().into_iter().flatten() {
        let at = path.key(name);
        self::validate_resource_name(name, &at, errors);
        validate_resource_quantity(name, quantity, &at, errors);
    }
}

fn validate_resource_name(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let value = json!(name);
    let wrong = api::names::qualified_name(name);
    wrong.iter().for_each(|e| errors.invalid(path, &value, e));
    if name.contains('/') || is_standard(name) {
        return;
    }
    // `storage` is a standard resource of claims, but not of quotas.
    if wrong.is_empty() && name != "storage" {
        errors.invalid(path, &value, "must be a standard resource type or fully qualified");
    }
    errors.invalid(path, &value, "must be a standard resource for quota");
}

/// Validates that scopes are supported, apply to the quota's resources and do not conflict. Errors show the value `shown`.
fn validate_scopes(spec: &Value, named: &[&str], shown: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for scope in named {
        if !enums::QUOTA_SCOPES.contains(scope) {
            errors.invalid(path, shown, "unsupported scope");
        }
        validate_scope_resources(spec, scope, shown, path, errors);
    }
    validate_scope_conflicts(spec, named, path, errors);
}

fn validate_scope_resources(spec: &Value, scope: &str, shown: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let resources = spec["hard"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    for _ in resources.filter(|name| is_standard(name) && !is_scope_valid_for_resource(scope, name)) {
        errors.invalid(path, shown, "unsupported scope applied to resource");
    }
}

fn validate_scope_conflicts(spec: &Value, named: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| named.contains(scope)) {
            errors.invalid(path, &spec["scopes"], "conflicting scopes");
        }
    }
}

/// Whether a scope applies to a resource (`IsResourceQuotaScopeValidForResource`).
fn is_scope_valid_for_resource(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ if enums::QUOTA_SCOPES.contains(&scope) => {
            let compute_resources = ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
            resource == "pods" || compute_resources.contains(&resource)
        }
        _ => true,
    }
}

/// Validates the scope selector (`validateScopedResourceSelectorRequirement`). Like upstream, paths lack the index.
fn validate_scope_selector(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let requirements = || items(&spec["scopeSelector"], "matchExpressions");
    for r in requirements() {
        let (scope, values) = (text_of(r, "scopeName"), items(r, "values").count());
        if !enums::QUOTA_SCOPES.contains(&scope) {
            errors.invalid(&path.child("scopeName"), &json!(scope), "unsupported scope");
        }
        validate_scope_resources(spec, scope, &spec["scopeSelector"], path, errors);
        let (operator, at) = (text_of(r, "operator"), path.child("values"));
        if !matches!(scope, "PriorityClass" | "VolumeAttributesClass")
            && enums::QUOTA_SCOPES.contains(&scope)
            && operator != "Exists"
        {
            let detail = "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.invalid(&path.child("operator"), &json!(operator), detail);
        }
        match operator {
            "In" | "NotIn" if values == 0 => {
                errors
                    .required(&at, "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector");
            }
            "Exists" | "DoesNotExist" if values > 0 => errors.invalid(
                &at,
                &r["values"],
                "must be no value when `operator` is 'Exists' or 'DoesNotExist' for scope selector",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.invalid(&path.child("operator"), &json!(operator), "not a valid selector operator"),
        }
    }
    let named: Vec<&str> = requirements().map(|r| text_of(r, "scopeName")).collect();
    validate_scope_conflicts(spec, &named, path, errors);
}
