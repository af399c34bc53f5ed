//! CertificateSigningRequest (`certificates.k8s.io/v1`).

pub(super) mod signer_name;
mod status;

use super::{
    AGE, Cell, FieldErrors, KindInfo, NAME, Subresource, WriteContext, WriteTarget, enums,
    field_cursor::FieldCursor,
    field_validation::{items, text as text_of},
    generic_kind::GenericKind,
    human_duration, or_none, text,
};
use api::certificate::{SubjectError, SubjectUser, subject_user};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use x509_parser::{
    certification_request::X509CertificationRequest, error::X509Error, pem::parse_x509_pem, prelude::FromDer,
    x509::X509Name,
};

const GROUP: &str = "certificates.k8s.io";
const APPROVAL_SUBRESOURCE: &str = "approval";

pub(super) static CERTIFICATE_SIGNING_REQUEST: GenericKind = GenericKind {
    columns: &[
        NAME,
        AGE,
        text("SignerName", Cell::Pointer("/spec/signerName")),
        text("Requestor", Cell::Pointer("/spec/username")),
        text(
            "RequestedDuration",
            Cell::Computed(|r, _| {
                or_none(&r["spec"]["expirationSeconds"].as_i64().map(human_duration).unwrap_or_default())
            }),
        ),
        text("Condition", Cell::Computed(|r, _| json!(condition_cell(r)))),
    ],
    fields: &["spec.signerName"],
    prepare,
    validate,
    validate_change: status::validate_conditions_not_removed,
    validate_status: |object, old, errors| {
        status::validate_conditions(object, errors);
        status::validate_conditions_not_removed(object, old, errors);
        status::validate_signer_update(object, old, errors);
    },
    ..GenericKind::new(&KindInfo {
        short_names: &["csr"],
        status: true,
        subresources: &[Subresource {
            name: APPROVAL_SUBRESOURCE,
            group: GROUP,
            version: "v1",
            kind: "CertificateSigningRequest",
            verbs: &["get", "patch", "update"],
        }],
        ..KindInfo::cluster_scoped(
            GROUP,
            "CertificateSigningRequest",
            "certificatesigningrequests",
            "certificatesigningrequest",
        )
    })
};

/// Returns the condition cell, for example `Approved,Issued` (`extractCSRStatus`).
fn condition_cell(request: &Value) -> String {
    let conditions = || items(&request["status"], "conditions");
    let has = |kind: &str| conditions().any(|c| c["type"] == kind);
    let mut text = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        text += ",Failed";
    }
    if !text_of(&request["status"], "certificate").is_empty() {
        text += ",Issued";
    }
    text
}

/// Sets missing timestamps of conditions (`populateConditionTimestamps`).
fn populate_condition_timestamps(object: &mut Value, old: &Value, ctx: &WriteContext) {
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let is_same = |c: &&Value| c["type"] == condition["type"] && c["status"] == condition["status"];
        let old_time = items(&old["status"], "conditions").find(is_same).map(|c| c["lastTransitionTime"].clone());
        let since = old_time.filter(|t| !t.is_null()).unwrap_or_else(|| json!(ctx.now));
        for (field, time) in [("lastUpdateTime", json!(ctx.now)), ("lastTransitionTime", since)] {
            if condition[field].is_null() {
                condition[field] = time;
            }
        }
    }
}

/// Restores the spec; an approval only changes conditions (`csrApprovalStrategy`).
fn prepare(object: &mut Value, old: Option<&Value>, ctx: &WriteContext) {
    let Some(old) = old else { return };
    object["spec"] = old["spec"].clone();
    populate_condition_timestamps(object, old, ctx);
    if ctx.target == WriteTarget::Sub(APPROVAL_SUBRESOURCE) {
        let conditions: Vec<Value> = items(&object["status"], "conditions").cloned().collect();
        object["status"] = old["status"].clone();
        if !conditions.is_empty() {
            object["status"]["conditions"] = json!(conditions);
        } else if let Some(status) = object["status"].as_object_mut() {
            status.remove("conditions");
        }
    }
}

fn conditions_of_type(object: &Value, kind: &str) -> Vec<Value> {
    items(&object["status"], "conditions").filter(|c| c["type"] == kind).cloned().collect()
}

/// Invalid certificate request.
#[derive(Debug, thiserror::Error)]
pub enum CertificateRequestError {
    /// The PEM block has another type.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    PemBlock,
    /// The DER is invalid.
    #[error("asn1: structure error: malformed certificate request")]
    Malformed,
    /// The signature algorithm is not supported.
    #[error("x509: cannot verify signature: algorithm unimplemented")]
    SignatureAlgorithm,
    /// The request is signed by another key.
    #[error("x509: the signature of the request is not that of its key")]
    Signature,
    /// The subject does not identify a user.
    #[error(transparent)]
    Subject(#[from] SubjectError),
}

/// Returns the user in the subject of a certificate request.
///
/// # Errors
/// If the request is invalid, or its subject does not identify a user.
pub fn requested_user(request: &str) -> Result<SubjectUser, CertificateRequestError> {
    Ok(parse_subject(request, subject_user)??)
}

/// Whether a certificate request is malformed or its signature is invalid.
pub fn is_invalid_request(request: &str) -> bool {
    parse_subject(request, |_| ()).is_err()
}

/// Verifies a certificate request's signature and parses its subject.
fn parse_subject<T>(request: &str, read: impl FnOnce(&X509Name<'_>) -> T) -> Result<T, CertificateRequestError> {
    let bytes = STANDARD.decode(request).unwrap_or_default();
    let block = parse_x509_pem(&bytes).ok().filter(|(_, pem)| pem.label == "CERTIFICATE REQUEST");
    let (_, pem) = block.ok_or(CertificateRequestError::PemBlock)?;
    let parsed = X509CertificationRequest::from_der(&pem.contents);
    let (_, parsed) = parsed.map_err(|_| CertificateRequestError::Malformed)?;
    parsed.verify_signature().map_err(|e| match e {
        X509Error::SignatureUnsupportedAlgorithm => CertificateRequestError::SignatureAlgorithm,
        _ => CertificateRequestError::Signature,
    })?;
    Ok(read(&parsed.certification_request_info.subject))
}

/// Validates a CertificateSigningRequest (`validateCertificateSigningRequest`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    let cursor = FieldCursor::object(object);
    let spec = cursor.at("spec");
    let (request, usages, signer) = (spec.at("request"), spec.at("usages"), spec.at("signerName"));
    if request.text().is_empty() {
        request.required("", errors);
    } else if let Err(error) = parse_subject(request.text(), |_| ()) {
        request.invalid(&error.to_string(), errors);
    }
    if usages.count() == 0 {
        usages.required("", errors);
    }
    let mut seen = BTreeSet::new();
    for usage in usages.items() {
        usage.supported(enums::CERTIFICATE_USAGES, errors);
        if !seen.insert(usage.text()) {
            usage.duplicate(errors);
        }
    }
    if signer.text() == "kubernetes.io/legacy-unknown" {
        signer.invalid("the legacy signerName is not allowed via this API version", errors);
    } else {
        signer_name::validate(&signer, errors);
    }
    status::validate_conditions(object, errors);
    let expiration = spec.at("expirationSeconds");
    if expiration.integer().is_some_and(|seconds| seconds < 600) {
        expiration.invalid("may not specify a duration less than 600 seconds (10 minutes)", errors);
    }
}
