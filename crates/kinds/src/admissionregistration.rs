//! Kinds of `admissionregistration.k8s.io`. `crate::admission` calls the webhooks and evaluates the policies.

mod mutating;
mod rules;
mod status;

pub(super) use mutating::{
    MUTATING_POLICY, MUTATING_POLICY_ALPHA, MUTATING_POLICY_BINDING, MUTATING_POLICY_BINDING_ALPHA,
};

use super::{
    AGE, Cell, Column, FieldErrors, FieldPath, KindInfo, NAME, defaulting, enums,
    field_validation::{items, text as text_of},
    generic_kind::GenericKind,
    integer,
    kind_info::METADATA_RESET_FOR_STATUS,
    selector, text, validate_path_segment_name,
    webhook_client::{self, validate_review_versions},
};
use ::admission::{conditions, policy, webhook};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};

const GROUP: &str = "admissionregistration.k8s.io";
const WEBHOOKS: &[Column] = &[NAME, integer("Webhooks", Cell::Count("/webhooks")), AGE];

pub(super) static MUTATING_WEBHOOKS: GenericKind = GenericKind {
    columns: WEBHOOKS,
    default: |object| {
        set_webhook_defaults(object);
        for i in 0..items(object, "webhooks").count() {
            defaulting::set_defaults_at(object, &format!("/webhooks/{i}"), &[("reinvocationPolicy", json!("Never"))]);
        }
    },
    validate: |object, errors| {
        validate_webhooks(object, errors);
        for (i, webhook) in items(object, "webhooks").enumerate() {
            if !enums::REINVOCATION_POLICIES.contains(&text_of(webhook, "reinvocationPolicy")) {
                let at = FieldPath::new("webhooks").index(i).child("reinvocationPolicy");
                errors.not_supported(&at, &webhook["reinvocationPolicy"], enums::REINVOCATION_POLICIES);
            }
        }
    },
    ..GenericKind::new(&KindInfo {
        requires_resource_version: true,
        generation: true,
        categories: &["api-extensions"],
        ..KindInfo::cluster_scoped(
            GROUP,
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            "mutatingwebhookconfiguration",
        )
    })
};
pub(super) static VALIDATING_WEBHOOKS: GenericKind = GenericKind {
    columns: WEBHOOKS,
    default: set_webhook_defaults,
    validate: validate_webhooks,
    ..GenericKind::new(&KindInfo {
        requires_resource_version: true,
        generation: true,
        categories: &["api-extensions"],
        ..KindInfo::cluster_scoped(
            GROUP,
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            "validatingwebhookconfiguration",
        )
    })
};
pub(super) static VALIDATING_POLICY: GenericKind = GenericKind {
    columns: &[
        NAME,
        integer("Validations", Cell::Count("/spec/validations")),
        text("ParamKind", Cell::Computed(|p, _| json!(param_kind_cell(&p["spec"]["paramKind"])))),
        AGE,
    ],
    default: |object| {
        defaulting::set_defaults_at(object, "/spec", &[("failurePolicy", json!("Fail"))]);
        set_match_resources_defaults(object, "/spec/matchConstraints");
    },
    validate: validate_policy,
    derive_status: status::set_type_checking_status,
    ..GenericKind::new(&KindInfo {
        requires_resource_version: true,
        status: true,
        reset_by_status_update: METADATA_RESET_FOR_STATUS,
        generation: true,
        categories: &["api-extensions"],
        ..KindInfo::cluster_scoped(
            GROUP,
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            "validatingadmissionpolicy",
        )
    })
};
pub(super) static VALIDATING_POLICY_BINDING: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("PolicyName", Cell::Pointer("/spec/policyName")),
        text("ParamRef", Cell::Computed(|b, _| json!(param_ref_cell(&b["spec"]["paramRef"])))),
        AGE,
    ],
    default: |object| set_match_resources_defaults(object, "/spec/matchResources"),
    validate: validate_binding,
    ..GenericKind::new(&KindInfo {
        requires_resource_version: true,
        generation: true,
        categories: &["api-extensions"],
        ..KindInfo::cluster_scoped(
            GROUP,
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            "validatingadmissionpolicybinding",
        )
    })
};

fn param_kind_cell(kind: &Value) -> String {
    match (text_of(kind, "apiVersion"), text_of(kind, "kind")) {
        (_, "") => "<unset>".to_owned(),
        (version, kind) => format!("{version}/{kind}"),
    }
}

fn param_ref_cell(reference: &Value) -> String {
    match (text_of(reference, "namespace"), text_of(reference, "name")) {
        _ if reference.is_null() => "<unset>".to_owned(),
        ("", "") => "*".to_owned(),
        ("", name) => format!("*/{name}"),
        (namespace, "") => format!("{namespace}/*"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// Sets the defaults of webhooks, their rules and services (`SetDefaults_ValidatingWebhook`).
fn set_webhook_defaults(object: &mut Value) {
    for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        let values = [
            ("failurePolicy", json!("Fail")),
            ("matchPolicy", json!("Equivalent")),
            ("namespaceSelector", json!({})),
            ("objectSelector", json!({})),
            ("timeoutSeconds", json!(10)),
        ];
        defaulting::set_defaults_at(webhook, "", &values);
        defaulting::set_defaults_at(webhook, "/clientConfig/service", &[("port", json!(443))]);
        set_rule_defaults(webhook, "rules");
    }
}

fn set_rule_defaults(holder: &mut Value, list: &str) {
    for i in 0..items(holder, list).count() {
        defaulting::set_defaults_at(holder, &format!("/{list}/{i}"), &[("scope", json!("*"))]);
    }
}

fn set_match_resources_defaults(object: &mut Value, pointer: &str) {
    let values =
        [("matchPolicy", json!("Equivalent")), ("namespaceSelector", json!({})), ("objectSelector", json!({}))];
    defaulting::set_defaults_at(object, pointer, &values);
    if let Some(constraints) = object.pointer_mut(pointer).filter(|c| c.is_object()) {
        for list in ["resourceRules", "excludeResourceRules"] {
            set_rule_defaults(constraints, list);
        }
    }
}

/// Validates webhooks (`validateValidatingWebhook`, `validateMutatingWebhook`).
fn validate_webhooks(object: &Value, errors: &mut FieldErrors) {
    let mut names = BTreeSet::new();
    for (i, webhook) in items(object, "webhooks").enumerate() {
        let path = FieldPath::new("webhooks").index(i);
        let (at, name) = (path.child("name"), text_of(webhook, "name"));
        // A name has at least three labels.
        if name.is_empty() {
            errors.required(&at, "");
        } else if name.split('.').count() < 3 {
            let detail = "should be a domain with at least three segments separated by dots";
            errors.invalid(&at, &webhook["name"], detail);
        } else {
            api::names::dns1123_subdomain(name).iter().for_each(|e| errors.invalid(&at, &webhook["name"], e));
        }
        if !names.insert(name) {
            errors.duplicate(&at, &webhook["name"]);
        }
        rules::validate_rules(webhook, "rules", &path, errors);
        let validate_enum = |field: &str, supported: &[&str], errors: &mut FieldErrors| {
            if !supported.contains(&text_of(webhook, field)) {
                errors.not_supported(&path.child(field), &webhook[field], supported);
            }
        };
        validate_enum("failurePolicy", enums::FAILURE_POLICIES, errors);
        validate_enum("matchPolicy", enums::MATCH_POLICIES, errors);
        if webhook["sideEffects"].is_null() {
            errors.required(&path.child("sideEffects"), "must specify one of None, NoneOnDryRun");
        } else {
            validate_enum("sideEffects", enums::SIDE_EFFECTS, errors);
        }
        if !(1..=30).contains(&webhook["timeoutSeconds"].as_i64().unwrap_or(0)) {
            let detail = "the timeout value must be between 1 and 30 seconds";
            errors.invalid(&path.child("timeoutSeconds"), &webhook["timeoutSeconds"], detail);
        }
        for list in ["namespaceSelector", "objectSelector"] {
            selector::validate(&webhook[list], &path.child(list), errors);
        }
        conditions::check(webhook, &webhook::condition_types(), &path, errors);
        webhook_client::validate_client_config(&webhook["clientConfig"], &path.child("clientConfig"), errors);
        let versions = &webhook["admissionReviewVersions"];
        validate_review_versions(
            versions,
            "must specify one of v1, v1beta1",
            &path.child("admissionReviewVersions"),
            errors,
        );
    }
}

/// Validates the failure policy and the match constraints of a policy.
fn validate_match_constraints(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !enums::FAILURE_POLICIES.contains(&text_of(spec, "failurePolicy")) {
        errors.not_supported(&path.child("failurePolicy"), &spec["failurePolicy"], enums::FAILURE_POLICIES);
    }
    let constraints = &spec["matchConstraints"];
    if constraints.is_null() {
        return errors.required(&path.child("matchConstraints"), "");
    }
    let path = path.child("matchConstraints");
    if items(constraints, "resourceRules").next().is_none() {
        errors.required(&path.child("resourceRules"), "");
    }
    rules::validate_match_resources(constraints, &path, errors);
}

/// Validates a validating policy (`validateValidatingAdmissionPolicySpec`).
fn validate_policy(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    validate_match_constraints(spec, &path, errors);
    if ["validations", "auditAnnotations"].iter().all(|list| items(spec, list).next().is_none()) {
        let detail = "validations or auditAnnotations must contain at least one item";
        errors.required(&path.child("validations"), detail);
        errors.required(&path.child("auditAnnotations"), detail);
    }
    policy::check(spec, text_of(&object["metadata"], "name"), &path, errors);
}

/// Validates the spec of a binding, except `validationActions`.
fn validate_binding_spec(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (at, name) = (path.child("policyName"), text_of(spec, "policyName"));
    if name.is_empty() {
        errors.required(&at, "");
    } else {
        api::names::dns1123_subdomain(name).iter().for_each(|e| errors.invalid(&at, &spec["policyName"], e));
    }
    let (params, at) = (&spec["paramRef"], path.child("paramRef"));
    let wrong = validate_path_segment_name(text_of(params, "name"));
    wrong.iter().for_each(|e| errors.invalid(&at.child("name"), &params["name"], e));
    selector::validate(&params["selector"], &at.child("selector"), errors);
    policy::check_binding(spec, path, errors);
    if !spec["matchResources"].is_null() {
        rules::validate_match_resources(&spec["matchResources"], &path.child("matchResources"), errors);
    }
}

/// Validates a binding of a validating policy (`validateValidatingAdmissionPolicyBindingSpec`).
fn validate_binding(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    validate_binding_spec(spec, &path, errors);
    let at = path.child("validationActions");
    if items(spec, "validationActions").next().is_none() {
        errors.required(&at, "at least one validation action is required");
    }
    let mut seen = HashSet::new();
    for (i, action) in items(spec, "validationActions").enumerate() {
        if !action.as_str().is_some_and(|a| enums::VALIDATION_ACTIONS.contains(&a)) {
            errors.not_supported(&at.index(i), action, enums::VALIDATION_ACTIONS);
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
