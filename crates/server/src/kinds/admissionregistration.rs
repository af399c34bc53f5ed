//! `admissionregistration.k8s.io/v1`. Who is asked, and which policy holds, is found out in `admit/outside.rs`.

mod mutating;
mod status;

pub(super) use mutating::{
    MUTATING_POLICY, MUTATING_POLICY_ALPHA, MUTATING_POLICY_BINDING, MUTATING_POLICY_BINDING_ALPHA,
};

use super::{
    AGE, Cell, Column, FieldErrors, FieldPath, KindInfo, NAME,
    checks::{items, text as text_of},
    fill,
    info::METADATA,
    integer,
    plain::Plain,
    selector, text,
};
use admission::{conditions, policy, webhook};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const GROUP: &str = "admissionregistration.k8s.io";
const WEBHOOKS: &[Column] = &[NAME, integer("Webhooks", Cell::Count("/webhooks")), AGE];

pub(super) static MUTATING_WEBHOOKS: Plain = Plain {
    columns: WEBHOOKS,
    default: |object| {
        default_webhooks(object);
        for i in 0..items(object, "webhooks").count() {
            fill::at(object, &format!("/webhooks/{i}"), &[("reinvocationPolicy", json!("Never"))]);
        }
    },
    validate: webhooks,
    ..Plain::of(&KindInfo {
        needs_version: true,
        generation: true,
        categories: &["api-extensions"],
        ..KindInfo::of_cluster(
            GROUP,
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            "mutatingwebhookconfiguration",
        )
    })
};
pub(super) static VALIDATING_WEBHOOKS: Plain = Plain {
    columns: WEBHOOKS,
    default: default_webhooks,
    validate: webhooks,
    ..Plain::of(&KindInfo {
        needs_version: true,
        generation: true,
        categories: &["api-extensions"],
        ..KindInfo::of_cluster(
            GROUP,
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            "validatingwebhookconfiguration",
        )
    })
};
pub(super) static VALIDATING_POLICY: Plain = Plain {
    columns: &[
        NAME,
        integer("Validations", Cell::Count("/spec/validations")),
        text("ParamKind", Cell::Of(|p, _| json!(param_kind(&p["spec"]["paramKind"])))),
        AGE,
    ],
    default: |object| {
        fill::at(object, "/spec", &[("failurePolicy", json!("Fail"))]);
        default_match(object, "/spec/matchConstraints");
    },
    validate: policy_spec,
    observe: status::observe,
    ..Plain::of(&KindInfo {
        needs_version: true,
        status: true,
        kept_by_status: METADATA,
        generation: true,
        categories: &["api-extensions"],
        ..KindInfo::of_cluster(
            GROUP,
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            "validatingadmissionpolicy",
        )
    })
};
pub(super) static VALIDATING_POLICY_BINDING: Plain = Plain {
    columns: &[
        NAME,
        text("PolicyName", Cell::At("/spec/policyName")),
        text("ParamRef", Cell::Of(|b, _| json!(param_ref(&b["spec"]["paramRef"])))),
        AGE,
    ],
    default: |object| default_match(object, "/spec/matchResources"),
    validate: binding,
    ..Plain::of(&KindInfo {
        needs_version: true,
        generation: true,
        categories: &["api-extensions"],
        ..KindInfo::of_cluster(
            GROUP,
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            "validatingadmissionpolicybinding",
        )
    })
};

fn param_kind(kind: &Value) -> String {
    match (text_of(kind, "apiVersion"), text_of(kind, "kind")) {
        (_, "") => "<unset>".to_owned(),
        (version, kind) => format!("{version}/{kind}"),
    }
}

fn param_ref(reference: &Value) -> String {
    match (text_of(reference, "namespace"), text_of(reference, "name")) {
        _ if reference.is_null() => "<unset>".to_owned(),
        ("", "") => "*".to_owned(),
        ("", name) => format!("*/{name}"),
        (namespace, "") => format!("{namespace}/*"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// `SetDefaults_ValidatingWebhook`, and what rules and services have in common.
fn default_webhooks(object: &mut Value) {
    for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        let values = [
            ("failurePolicy", json!("Fail")),
            ("matchPolicy", json!("Equivalent")),
            ("namespaceSelector", json!({})),
            ("objectSelector", json!({})),
            ("timeoutSeconds", json!(10)),
        ];
        fill::at(webhook, "", &values);
        fill::at(webhook, "/clientConfig/service", &[("port", json!(443))]);
        default_rules(webhook, "rules");
    }
}

fn default_rules(holder: &mut Value, list: &str) {
    for i in 0..items(holder, list).count() {
        fill::at(holder, &format!("/{list}/{i}"), &[("scope", json!("*"))]);
    }
}

fn default_match(object: &mut Value, pointer: &str) {
    let values =
        [("matchPolicy", json!("Equivalent")), ("namespaceSelector", json!({})), ("objectSelector", json!({}))];
    fill::at(object, pointer, &values);
    if let Some(constraints) = object.pointer_mut(pointer).filter(|c| c.is_object()) {
        for list in ["resourceRules", "excludeResourceRules"] {
            default_rules(constraints, list);
        }
    }
}

/// `validateValidatingWebhook`, `validateMutatingWebhook`.
fn webhooks(object: &Value, errors: &mut FieldErrors) {
    let mut names = BTreeSet::new();
    for (i, webhook) in items(object, "webhooks").enumerate() {
        let path = FieldPath::new("webhooks").index(i);
        let (at, name) = (path.child("name"), text_of(webhook, "name"));
        // A name has a domain that has a domain.
        if name.is_empty() {
            errors.required(&at, "");
        } else if name.split('.').count() < 3 {
            let why = "should be a domain with at least three segments separated by dots";
            errors.invalid(&at, &webhook["name"], why);
        } else {
            api::names::dns1123_subdomain(name).iter().for_each(|e| errors.invalid(&at, &webhook["name"], e));
        }
        if !names.insert(name) {
            errors.duplicate(&at, &webhook["name"]);
        }
        rules(webhook, "rules", &path, errors);
        let one_of = |field: &str, supported: &[&str], errors: &mut FieldErrors| {
            if !supported.contains(&text_of(webhook, field)) {
                errors.not_supported(&path.child(field), &webhook[field], supported);
            }
        };
        one_of("failurePolicy", &["Fail", "Ignore"], errors);
        one_of("matchPolicy", &["Equivalent", "Exact"], errors);
        if webhook["sideEffects"].is_null() {
            errors.required(&path.child("sideEffects"), "must specify one of None, NoneOnDryRun");
        } else {
            one_of("sideEffects", &["None", "NoneOnDryRun"], errors);
        }
        if !(1..=30).contains(&webhook["timeoutSeconds"].as_i64().unwrap_or(0)) {
            let why = "the timeout value must be between 1 and 30 seconds";
            errors.invalid(&path.child("timeoutSeconds"), &webhook["timeoutSeconds"], why);
        }
        for list in ["namespaceSelector", "objectSelector"] {
            selector::validate(&webhook[list], &path.child(list), errors);
        }
        conditions::check(webhook, &webhook::condition_types(), &path, errors);
        client(&webhook["clientConfig"], &path.child("clientConfig"), errors);
        if items(webhook, "admissionReviewVersions").next().is_none() {
            let why = "must specify one of v1, v1beta1";
            errors.required(&path.child("admissionReviewVersions"), why);
        } else if !items(webhook, "admissionReviewVersions").any(|v| v == "v1" || v == "v1beta1") {
            let (at, why) = (path.child("admissionReviewVersions"), "must include at least one of v1, v1beta1");
            errors.invalid(&at, &webhook["admissionReviewVersions"], why);
        }
    }
}

fn client(config: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (url, service) = (&config["url"], &config["service"]);
    if url.is_null() == service.is_null() {
        return errors.required(&path.child("url"), "exactly one of url or service is required");
    }
    if let Some(text) = url.as_str().filter(|u| !u.starts_with("https://")) {
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        let why = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
        errors.invalid(&path.child("url"), &json!(scheme), why);
    }
    if let Some(rest) = url.as_str().and_then(|u| u.strip_prefix("https://")) {
        address(rest, &path.child("url"), errors);
    }
    for field in ["name", "namespace"].into_iter().filter(|f| !service.is_null() && text_of(service, f).is_empty()) {
        errors.required(&path.child("service").child(field), &format!("service {field} is required"));
    }
}

/// What a URL may have behind its scheme (`ValidateWebhookURL`).
fn address(rest: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let host = rest.split('/').next().unwrap_or("");
    let (user, host) = host.rsplit_once('@').unwrap_or(("", host));
    if host.is_empty() {
        errors.invalid(path, &json!(host), "host must be specified; desired format: https://host[/path]");
    }
    for (part, what) in [(user, "user information is"), (fragment, "fragments are"), (query, "query parameters are")] {
        if !part.is_empty() {
            errors.invalid(path, &json!(part), &format!("{what} not permitted in the URL"));
        }
    }
}

/// `validateRule`, `validateRuleWithOperations`.
fn rules(holder: &Value, list: &str, path: &FieldPath, errors: &mut FieldErrors) {
    for (i, rule) in items(holder, list).enumerate() {
        let path = path.child(list).index(i);
        for field in ["operations", "apiGroups", "apiVersions", "resources"] {
            let at = path.child(field);
            if items(rule, field).next().is_none() {
                errors.required(&at, "");
            }
            let all = items(rule, field).count() > 1 && items(rule, field).any(|v| v == "*");
            if all && field != "resources" {
                let why = "if '*' is present, must not specify other ";
                let what = match field {
                    "operations" => "operations",
                    "apiGroups" => "API groups",
                    _ => "API versions",
                };
                errors.invalid(&at, &rule[field], &format!("{why}{what}"));
            }
        }
        let operations = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
        for (j, operation) in items(rule, "operations").enumerate() {
            if !operation.as_str().is_some_and(|o| operations.contains(&o)) {
                errors.not_supported(&path.child("operations").index(j), operation, &operations);
            }
        }
        let scopes = ["*", "Cluster", "Namespaced"];
        if !scopes.contains(&text_of(rule, "scope")) {
            errors.not_supported(&path.child("scope"), &rule["scope"], &scopes);
        }
    }
}

/// What a policy is about, and what follows when it cannot be evaluated.
fn constraints(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !matches!(text_of(spec, "failurePolicy"), "Fail" | "Ignore") {
        errors.not_supported(&path.child("failurePolicy"), &spec["failurePolicy"], &["Fail", "Ignore"]);
    }
    let constraints = &spec["matchConstraints"];
    if constraints.is_null() {
        return errors.required(&path.child("matchConstraints"), "");
    }
    let path = path.child("matchConstraints");
    if items(constraints, "resourceRules").next().is_none() {
        errors.required(&path.child("resourceRules"), "");
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        rules(constraints, list, &path, errors);
    }
}

/// `validateValidatingAdmissionPolicySpec`.
fn policy_spec(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    constraints(spec, &path, errors);
    if ["validations", "auditAnnotations"].iter().all(|list| items(spec, list).next().is_none()) {
        let why = "validations or auditAnnotations must contain at least one item";
        errors.required(&path.child("validations"), why);
        errors.required(&path.child("auditAnnotations"), why);
    }
    policy::check(spec, &path, errors);
}

/// `validateValidatingAdmissionPolicyBindingSpec`.
fn binding(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    if text_of(spec, "policyName").is_empty() {
        errors.required(&path.child("policyName"), "");
    }
    policy::check_binding(spec, &path, errors);
    let at = path.child("validationActions");
    if items(spec, "validationActions").next().is_none() {
        errors.required(&at, "at least one validation action is required");
    }
    let actions = ["Audit", "Deny", "Warn"];
    for (i, action) in items(spec, "validationActions").enumerate() {
        if !action.as_str().is_some_and(|a| actions.contains(&a)) {
            errors.not_supported(&at.index(i), action, &actions);
        }
    }
    let has = |action: &str| items(spec, "validationActions").any(|a| a == action);
    if has("Deny") && has("Warn") {
        errors.invalid(&at, &spec["validationActions"], "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)");
    }
}
