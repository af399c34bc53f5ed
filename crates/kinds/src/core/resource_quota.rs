//! ResourceQuota. `admission/resource_quota.rs` enforces it.

use super::{INTEGER_RESOURCES, validate_resource_quantity};
use crate::{
    AGE, Cell, FieldErrors, KindInfo, NAME, enums, field_cursor::FieldCursor, generic_kind::GenericKind, text,
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
        let (object, old) = (FieldCursor::object(object), FieldCursor::object(old));
        object.at("spec").at("scopes").validate_immutable(&old.at("spec").at("scopes"), errors);
    },
    // Validates an update of the status (`ValidateResourceQuotaStatusUpdate`).
    validate_status: |object, _, errors| {
        let object = FieldCursor::object(object);
        let status = object.at("status");
        validate_quantities(&status.at("hard"), errors);
        validate_quantities(&status.at("used"), errors);
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
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    let (scopes, selector) = (spec.at("scopes"), spec.at("scopeSelector"));
    validate_quantities(&spec.at("hard"), errors);
    let named: Vec<&str> = scopes.items().map(|scope| scope.text()).collect();
    validate_scopes(&spec, &named, errors);
    if selector.is_set() {
        validate_scope_selector(&spec, errors);
    }
}

/// Validates the names and quantities of resources.
fn validate_quantities(all: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for (name, quantity) in all.entries() {
        self::validate_resource_name(name, &quantity, errors);
        validate_resource_quantity(name, &quantity, errors);
    }
}

fn validate_resource_name(name: &str, entry: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let mut invalid = |detail: &str| errors.invalid(&entry.path(), &json!(name), detail);
    let wrong = api::names::qualified_name(name);
    wrong.iter().for_each(|detail| invalid(detail));
    if name.contains('/') || is_standard(name) {
        return;
    }
    // `storage` is a standard resource of claims, but not of quotas.
    if wrong.is_empty() && name != "storage" {
        invalid("must be a standard resource type or fully qualified");
    }
    invalid("must be a standard resource for quota");
}

/// Validates that scopes are supported, apply to the quota's resources and do not conflict.
fn validate_scopes(spec: &FieldCursor<'_, '_>, named: &[&str], errors: &mut FieldErrors) {
    let scopes = spec.at("scopes");
    for scope in named {
        if !enums::QUOTA_SCOPES.contains(scope) {
            scopes.invalid("unsupported scope", errors);
        }
        validate_scope_resources(spec, scope, &scopes, errors);
    }
    validate_scope_conflicts(named, &scopes, errors);
}

fn validate_scope_resources(
    spec: &FieldCursor<'_, '_>,
    scope: &str,
    shown: &FieldCursor<'_, '_>,
    errors: &mut FieldErrors,
) {
    let hard = spec.at("hard");
    let resources = hard.entries().map(|(name, _)| name);
    for _ in resources.filter(|name| is_standard(name) && !is_scope_valid_for_resource(scope, name)) {
        shown.invalid("unsupported scope applied to resource", errors);
    }
}

fn validate_scope_conflicts(named: &[&str], shown: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| named.contains(scope)) {
            shown.invalid("conflicting scopes", errors);
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
fn validate_scope_selector(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let selector = spec.at("scopeSelector");
    let requirements = selector.at("matchExpressions");
    for requirement in requirements.items() {
        let requirement = requirements.with_value(requirement.value());
        let (scope, operator, values) =
            (requirement.at("scopeName"), requirement.at("operator"), requirement.at("values"));
        if !enums::QUOTA_SCOPES.contains(&scope.text()) {
            scope.invalid("unsupported scope", errors);
        }
        // Upstream shows the selector.
        validate_scope_resources(spec, scope.text(), &requirements.with_value(selector.value()), errors);
        if !matches!(scope.text(), "PriorityClass" | "VolumeAttributesClass")
            && enums::QUOTA_SCOPES.contains(&scope.text())
            && operator.text() != "Exists"
        {
            let detail = "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            operator.invalid(detail, errors);
        }
        match operator.text() {
            "In" | "NotIn" if values.count() == 0 => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                values.required(detail, errors);
            }
            "Exists" | "DoesNotExist" if values.count() > 0 => {
                let detail = "must be no value when `operator` is 'Exists' or 'DoesNotExist' for scope selector";
                values.invalid(detail, errors);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => operator.invalid("not a valid selector operator", errors),
        }
    }
    let named: Vec<&str> = requirements.items().map(|requirement| requirement.at("scopeName").text()).collect();
    // Upstream shows the scopes.
    validate_scope_conflicts(&named, &requirements.with_value(spec.at("scopes").value()), errors);
}
