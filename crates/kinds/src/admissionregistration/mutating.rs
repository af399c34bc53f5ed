//! Mutating admission policies and their bindings in `v1beta1` and `v1alpha1` (feature gate `MutatingAdmissionPolicy`).

use super::{
    GROUP, param_kind_cell, param_ref_cell, set_match_resources_defaults, validate_binding_spec,
    validate_match_constraints,
};
use crate::{
    AGE, Cell, Column, FieldErrors, KindInfo, NAME, defaulting, enums,
    field_cursor::FieldCursor,
    generic_kind::{Conversion, GenericKind},
    integer, text,
};
use ::admission::policy;
use api::feature_gates::Gate;
use serde_json::{Value, json};

const POLICY: KindInfo = KindInfo {
    version: "v1beta1",
    gate: Some(Gate::MutatingAdmissionPolicy),
    requires_resource_version: true,
    generation: true,
    categories: &["api-extensions"],
    ..KindInfo::cluster_scoped(GROUP, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", "mutatingadmissionpolicy")
};
const BINDING: KindInfo = KindInfo {
    version: "v1beta1",
    gate: Some(Gate::MutatingAdmissionPolicy),
    requires_resource_version: true,
    generation: true,
    categories: &["api-extensions"],
    ..KindInfo::cluster_scoped(
        GROUP,
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        "mutatingadmissionpolicybinding",
    )
};

const POLICY_COLUMNS: &[Column] = &[
    NAME,
    integer("Mutations", Cell::Count("/spec/mutations")),
    text("ParamKind", Cell::Computed(|p, _| json!(param_kind_cell(&p["spec"]["paramKind"])))),
    AGE,
];
const BINDING_COLUMNS: &[Column] = &[
    NAME,
    text("PolicyName", Cell::Pointer("/spec/policyName")),
    text("ParamRef", Cell::Computed(|b, _| json!(param_ref_cell(&b["spec"]["paramRef"])))),
    AGE,
];

/// Conversion between versions that differ in `apiVersion` only.
const OTHER_VERSION: Option<Conversion> = Some(Conversion {
    from: |_| {},
    to: |object| {
        object.insert("apiVersion".to_owned(), json!(POLICY.api_version()));
    },
});

const fn policy_kind(info: &'static KindInfo) -> GenericKind {
    GenericKind {
        columns: POLICY_COLUMNS,
        default: |object| {
            defaulting::set_defaults_at(object, "/spec", &[("failurePolicy", json!("Fail"))]);
            set_match_resources_defaults(object, "/spec/matchConstraints");
        },
        validate: validate_policy,
        ..GenericKind::new(info)
    }
}

const fn binding_kind(info: &'static KindInfo) -> GenericKind {
    GenericKind {
        columns: BINDING_COLUMNS,
        default: |object| set_match_resources_defaults(object, "/spec/matchResources"),
        validate: validate_binding,
        ..GenericKind::new(info)
    }
}

pub(crate) static MUTATING_POLICY: GenericKind = policy_kind(&POLICY);
pub(crate) static MUTATING_POLICY_BINDING: GenericKind = binding_kind(&BINDING);
pub(crate) static MUTATING_POLICY_ALPHA: GenericKind =
    GenericKind { convert: OTHER_VERSION, ..policy_kind(&KindInfo { version: "v1alpha1", converted: true, ..POLICY }) };
pub(crate) static MUTATING_POLICY_BINDING_ALPHA: GenericKind = GenericKind {
    convert: OTHER_VERSION,
    ..binding_kind(&KindInfo { version: "v1alpha1", converted: true, ..BINDING })
};

/// Validates a mutating policy (`validateMutatingAdmissionPolicySpec`).
fn validate_policy(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    validate_match_constraints(&spec, errors);
    policy::check_mutating(spec.value(), &spec.path(), errors);
    spec.at("reinvocationPolicy").one_of(enums::REINVOCATION_POLICIES, errors);
}

/// Validates a binding of a mutating policy (`validateMutatingAdmissionPolicyBindingSpec`).
fn validate_binding(object: &Value, errors: &mut FieldErrors) {
    validate_binding_spec(&FieldCursor::object(object).at("spec"), errors);
}
