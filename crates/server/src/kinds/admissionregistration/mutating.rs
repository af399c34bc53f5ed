//! Mutating admission policies and their bindings: `v1beta1` and `v1alpha1`, where the gate `MutatingAdmissionPolicy` is on.

use super::{GROUP, bound, constraints, default_match, param_kind, param_ref};
use crate::kinds::{
    AGE, Cell, Column, FieldErrors, FieldPath, KindInfo, NAME,
    checks::text as text_of,
    fill, integer,
    plain::{Conversion, Plain},
    text,
};
use admission::policy;
use api::feature_gates::Gate;
use serde_json::{Value, json};

const POLICY: KindInfo = KindInfo {
    version: "v1beta1",
    gate: Some(Gate::MutatingAdmissionPolicy),
    needs_version: true,
    generation: true,
    categories: &["api-extensions"],
    ..KindInfo::of_cluster(GROUP, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", "mutatingadmissionpolicy")
};
const BINDING: KindInfo = KindInfo {
    version: "v1beta1",
    gate: Some(Gate::MutatingAdmissionPolicy),
    needs_version: true,
    generation: true,
    categories: &["api-extensions"],
    ..KindInfo::of_cluster(
        GROUP,
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        "mutatingadmissionpolicybinding",
    )
};

const POLICY_COLUMNS: &[Column] = &[
    NAME,
    integer("Mutations", Cell::Count("/spec/mutations")),
    text("ParamKind", Cell::Of(|p, _| json!(param_kind(&p["spec"]["paramKind"])))),
    AGE,
];
const BINDING_COLUMNS: &[Column] = &[
    NAME,
    text("PolicyName", Cell::At("/spec/policyName")),
    text("ParamRef", Cell::Of(|b, _| json!(param_ref(&b["spec"]["paramRef"])))),
    AGE,
];

/// What of these objects is the same in all versions: all but the version's name.
const OTHER_VERSION: Option<Conversion> = Some(Conversion {
    from: |_| {},
    to: |object| {
        object.insert("apiVersion".to_owned(), json!(POLICY.api_version()));
    },
});

const fn policy(info: &'static KindInfo) -> Plain {
    Plain {
        columns: POLICY_COLUMNS,
        default: |object| {
            fill::at(object, "/spec", &[("failurePolicy", json!("Fail"))]);
            default_match(object, "/spec/matchConstraints");
        },
        validate: policy_spec,
        ..Plain::of(info)
    }
}

const fn binding(info: &'static KindInfo) -> Plain {
    Plain {
        columns: BINDING_COLUMNS,
        default: |object| default_match(object, "/spec/matchResources"),
        validate: binding_spec,
        ..Plain::of(info)
    }
}

pub(in crate::kinds) static MUTATING_POLICY: Plain = policy(&POLICY);
pub(in crate::kinds) static MUTATING_POLICY_BINDING: Plain = binding(&BINDING);
pub(in crate::kinds) static MUTATING_POLICY_ALPHA: Plain =
    Plain { convert: OTHER_VERSION, ..policy(&KindInfo { version: "v1alpha1", converted: true, ..POLICY }) };
pub(in crate::kinds) static MUTATING_POLICY_BINDING_ALPHA: Plain =
    Plain { convert: OTHER_VERSION, ..binding(&KindInfo { version: "v1alpha1", converted: true, ..BINDING }) };

/// `validateMutatingAdmissionPolicySpec`.
fn policy_spec(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    constraints(spec, &path, errors);
    policy::check_mutating(spec, &path, errors);
    let supported = ["IfNeeded", "Never"];
    match text_of(spec, "reinvocationPolicy") {
        "" => errors.required(&path.child("reinvocationPolicy"), ""),
        other if !supported.contains(&other) => {
            errors.not_supported(&path.child("reinvocationPolicy"), &spec["reinvocationPolicy"], &supported);
        }
        _ => {}
    }
}

/// `validateMutatingAdmissionPolicyBindingSpec`.
fn binding_spec(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    bound(spec, &path, errors);
}
