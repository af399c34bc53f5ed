//! `admissionregistration.k8s.io/v1`. Who is asked, and which policy holds, is found out in `admit/outside.rs`.

mod mutating;
mod rules;
mod status;

pub(super) use mutating::{
    MUTATING_POLICY, MUTATING_POLICY_ALPHA, MUTATING_POLICY_BINDING, MUTATING_POLICY_BINDING_ALPHA,
};

use super::{
    AGE, Cell, Column, FieldErrors, FieldPath, KindInfo, NAME,
    checks::{items, text as text_of},
    fill,
    info::METADATA,
    integer, path_segment,
    plain::Plain,
    selector, text,
    webhook_client::{self, review_versions},
};
use admission::{conditions, policy, webhook};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};

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
    validate: |object, errors| {
        webhooks(object, errors);
        let supported = ["IfNeeded", "Never"];
        for (i, webhook) in items(object, "webhooks").enumerate() {
            if !supported.contains(&text_of(webhook, "reinvocationPolicy")) {
                let at = FieldPath::new("webhooks").index(i).child("reinvocationPolicy");
                errors.not_supported(&at, &webhook["reinvocationPolicy"], &supported);
            }
        }
    },
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
        rules::check(webhook, "rules", &path, errors);
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
        webhook_client::check(&webhook["clientConfig"], &path.child("clientConfig"), errors);
        let versions = &webhook["admissionReviewVersions"];
        review_versions(versions, "must specify one of v1, v1beta1", &path.child("admissionReviewVersions"), errors);
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
    rules::match_resources(constraints, &path, errors);
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
    policy::check(spec, text_of(&object["metadata"], "name"), &path, errors);
}

/// What bindings of all policies have in common.
fn bound(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (at, name) = (path.child("policyName"), text_of(spec, "policyName"));
    if name.is_empty() {
        errors.required(&at, "");
    } else {
        api::names::dns1123_subdomain(name).iter().for_each(|e| errors.invalid(&at, &spec["policyName"], e));
    }
    let (params, at) = (&spec["paramRef"], path.child("paramRef"));
    let wrong = path_segment(text_of(params, "name"));
    wrong.iter().for_each(|e| errors.invalid(&at.child("name"), &params["name"], e));
    selector::validate(&params["selector"], &at.child("selector"), errors);
    policy::check_binding(spec, path, errors);
    if !spec["matchResources"].is_null() {
        rules::match_resources(&spec["matchResources"], &path.child("matchResources"), errors);
    }
}

/// `validateValidatingAdmissionPolicyBindingSpec`.
fn binding(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    bound(spec, &path, errors);
    let at = path.child("validationActions");
    if items(spec, "validationActions").next().is_none() {
        errors.required(&at, "at least one validation action is required");
    }
    let actions = ["Audit", "Deny", "Warn"];
    let mut seen = HashSet::new();
    for (i, action) in items(spec, "validationActions").enumerate() {
        if !action.as_str().is_some_and(|a| actions.contains(&a)) {
            errors.not_supported(&at.index(i), action, &actions);
        }
        if !seen.insert(action) {
            errors.duplicate(&at.index(i), action);
        }
    }
    let has = |action: &str| items(spec, "validationActions").any(|a| a == action);
    if has("Deny") && has("Warn") {
        errors.invalid(&at, &spec["validationActions"], "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)");
    }
}
