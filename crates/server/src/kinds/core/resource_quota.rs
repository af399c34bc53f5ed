//! ResourceQuota. What it allows is held by `admit/quota.rs`; its status is a controller's.

use super::{COUNTED, amount};
use crate::kinds::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME,
    checks::{immutable, items, text as text_of},
    plain::Plain,
    text,
};
use serde_json::{Value, json};

pub(in crate::kinds) static RESOURCE_QUOTA: Plain = Plain {
    columns: &[
        NAME,
        text("Request", Cell::Of(|q, _| json!(used(q, false)))),
        text("Limit", Cell::Of(|q, _| json!(used(q, true)))),
        AGE,
    ],
    validate,
    validate_change: |object, old, errors| {
        let path = FieldPath::new("spec").child("scopes");
        immutable(&object["spec"]["scopes"], &old["spec"]["scopes"], &path, errors);
    },
    // `ValidateResourceQuotaStatusUpdate`.
    validate_status: |object, _, errors| {
        let (path, status) = (FieldPath::new("status"), &object["status"]);
        ["hard", "used"].iter().for_each(|part| amounts(&status[part], &path.child(part), errors));
    },
    ..Plain::of(&KindInfo {
        short_names: &["quota"],
        status: true,
        ..KindInfo::core("ResourceQuota", "resourcequotas", "resourcequota")
    })
};

/// `cpu: 1/2, pods: 3/10`, of limits or of everything else.
fn used(quota: &Value, limits: bool) -> String {
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

const MEASURED: [&str; 10] = [
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
    pages || COUNTED.contains(&name) || MEASURED.contains(&name)
}

/// `ValidateResourceQuotaSpec`.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    amounts(&spec["hard"], &path.child("hard"), errors);
    let named: Vec<&str> = items(spec, "scopes").filter_map(Value::as_str).collect();
    scopes(spec, &named, &spec["scopes"], &path.child("scopes"), errors);
    if !spec["scopeSelector"].is_null() {
        selector(spec, &path.child("scopeSelector").child("matchExpressions"), errors);
    }
}

/// What is counted, by names and in amounts that a quota may have.
fn amounts(all: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (name, quantity) in all.as_object().into_iter().flatten() {
        let at = path.key(name);
        self::name(name, &at, errors);
        amount(name, quantity, &at, errors);
    }
}

fn name(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let value = json!(name);
    let wrong = api::names::qualified_name(name);
    wrong.iter().for_each(|e| errors.invalid(path, &value, e));
    if name.contains('/') || is_standard(name) {
        return;
    }
    // A claim's `storage` is a resource, though none of a quota.
    if wrong.is_empty() && name != "storage" {
        errors.invalid(path, &value, "must be a standard resource type or fully qualified");
    }
    errors.invalid(path, &value, "must be a standard resource for quota");
}

/// Scopes that there are, that hold for what is counted, and that can hold together; `shown` is what is wrong.
fn scopes(spec: &Value, named: &[&str], shown: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for scope in named {
        if !SCOPES.contains(scope) {
            errors.invalid(path, shown, "unsupported scope");
        }
        applied(spec, scope, shown, path, errors);
    }
    conflicts(spec, named, path, errors);
}

fn applied(spec: &Value, scope: &str, shown: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let resources = spec["hard"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    for _ in resources.filter(|name| is_standard(name) && !holds_for(scope, name)) {
        errors.invalid(path, shown, "unsupported scope applied to resource");
    }
}

fn conflicts(spec: &Value, named: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| named.contains(scope)) {
            errors.invalid(path, &spec["scopes"], "conflicting scopes");
        }
    }
}

const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

/// `IsResourceQuotaScopeValidForResource`.
fn holds_for(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ if SCOPES.contains(&scope) => {
            let computing = ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
            resource == "pods" || computing.contains(&resource)
        }
        _ => true,
    }
}

/// `validateScopedResourceSelectorRequirement`; its paths do not say which of the requirements.
fn selector(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let requirements = || items(&spec["scopeSelector"], "matchExpressions");
    for r in requirements() {
        let (scope, values) = (text_of(r, "scopeName"), items(r, "values").count());
        if !SCOPES.contains(&scope) {
            errors.invalid(&path.child("scopeName"), &json!(scope), "unsupported scope");
        }
        applied(spec, scope, &spec["scopeSelector"], path, errors);
        let (operator, at) = (text_of(r, "operator"), path.child("values"));
        if !matches!(scope, "PriorityClass" | "VolumeAttributesClass")
            && SCOPES.contains(&scope)
            && operator != "Exists"
        {
            let why = "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.invalid(&path.child("operator"), &json!(operator), why);
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
    conflicts(spec, &named, path, errors);
}
