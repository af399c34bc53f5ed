//! Kinds of `admissionregistration.k8s.io`. `crate::admission` calls the webhooks and evaluates the policies.

mod mutating;
mod rules;
mod status;

pub(super) use mutating::{
    MUTATING_POLICY, MUTATING_POLICY_ALPHA, MUTATING_POLICY_BINDING, MUTATING_POLICY_BINDING_ALPHA,
};

use super::{
    AGE, Cell, Column, FieldErrors, KindInfo, NAME, defaulting, enums,
    field_cursor::FieldCursor,
    field_validation::{items, text as text_of},
    generic_kind::GenericKind,
    integer,
    kind_info::METADATA_RESET_FOR_STATUS,
    selector, text, validate_path_segment_name,
    webhook_client::{self, validate_review_versions},
};
use ::admission::{conditions, policy, webhook};
use serde_json::{Value, json};
use std::collections::BTreeSet;

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
        for webhook in FieldCursor::object(object).at("webhooks").items() {
            webhook.at("reinvocationPolicy").supported(enums::REINVOCATION_POLICIES, errors);
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
    for webhook in FieldCursor::object(object).at("webhooks").items() {
        let (name, side_effects, timeout) =
            (webhook.at("name"), webhook.at("sideEffects"), webhook.at("timeoutSeconds"));
        // A name has at least three labels.
        if name.text().is_empty() {
            name.required("", errors);
        } else if name.text().split('.').count() < 3 {
            name.invalid("should be a domain with at least three segments separated by dots", errors);
        } else {
            name.validate_text(api::names::dns1123_subdomain, errors);
        }
        if !names.insert(name.text()) {
            name.duplicate(errors);
        }
        rules::validate_rules(&webhook.at("rules"), errors);
        webhook.at("failurePolicy").supported(enums::FAILURE_POLICIES, errors);
        webhook.at("matchPolicy").supported(enums::MATCH_POLICIES, errors);
        if side_effects.is_null() {
            side_effects.required("must specify one of None, NoneOnDryRun", errors);
        } else {
            side_effects.supported(enums::SIDE_EFFECTS, errors);
        }
        if !(1..=30).contains(&timeout.integer().unwrap_or(0)) {
            timeout.invalid("the timeout value must be between 1 and 30 seconds", errors);
        }
        selector::validate(&webhook.at("namespaceSelector"), errors);
        selector::validate(&webhook.at("objectSelector"), errors);
        conditions::check(webhook.value(), &webhook::condition_types(), &webhook.path(), errors);
        webhook_client::validate_client_config(&webhook.at("clientConfig"), errors);
        let versions = webhook.at("admissionReviewVersions");
        validate_review_versions(&versions, "must specify one of v1, v1beta1", errors);
    }
}

/// Validates the failure policy and the match constraints of a policy.
fn validate_match_constraints(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    spec.at("failurePolicy").supported(enums::FAILURE_POLICIES, errors);
    let constraints = spec.at("matchConstraints");
    if constraints.is_null() {
        return constraints.required("", errors);
    }
    let rules = constraints.at("resourceRules");
    if rules.count() == 0 {
        rules.required("", errors);
    }
    rules::validate_match_resources(&constraints, errors);
}

/// Validates a validating policy (`validateValidatingAdmissionPolicySpec`).
fn validate_policy(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let (metadata, spec) = (object.at("metadata"), object.at("spec"));
    validate_match_constraints(&spec, errors);
    let (validations, annotations) = (spec.at("validations"), spec.at("auditAnnotations"));
    if validations.count() == 0 && annotations.count() == 0 {
        let detail = "validations or auditAnnotations must contain at least one item";
        validations.required(detail, errors);
        annotations.required(detail, errors);
    }
    policy::check(spec.value(), metadata.at("name").text(), &spec.path(), errors);
}

/// Validates the spec of a binding, except `validationActions`.
fn validate_binding_spec(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    spec.at("policyName").validate_required_text(api::names::dns1123_subdomain, errors);
    let (params, resources) = (spec.at("paramRef"), spec.at("matchResources"));
    params.at("name").validate_text(validate_path_segment_name, errors);
    selector::validate(&params.at("selector"), errors);
    policy::check_binding(spec.value(), &spec.path(), errors);
    if resources.is_set() {
        rules::validate_match_resources(&resources, errors);
    }
}

/// Validates a binding of a validating policy (`validateValidatingAdmissionPolicyBindingSpec`).
fn validate_binding(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    validate_binding_spec(&spec, errors);
    let actions = spec.at("validationActions");
    if actions.count() == 0 {
        actions.required("at least one validation action is required", errors);
    }
    let mut seen = BTreeSet::new();
    for action in actions.items() {
        action.supported(enums::VALIDATION_ACTIONS, errors);
        if !seen.insert(action.text()) {
            action.duplicate(errors);
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        actions.invalid("must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)", errors);
    }
}
