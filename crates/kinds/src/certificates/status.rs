//! Validation of a CertificateSigningRequest's status (`validateConditions`, `validateCertificate`).

use super::{conditions_of_type, text_of};
use crate::{FieldErrors, FieldPath, field_cursor::FieldCursor};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use x509_parser::pem::Pem;

/// Conditions that can only be `True`, and cannot be removed.
const TERMINAL_CONDITIONS: [&str; 3] = ["Approved", "Denied", "Failed"];

pub(super) fn validate_conditions(object: &Value, errors: &mut FieldErrors) {
    let (mut seen, mut decisions) = (BTreeSet::new(), BTreeSet::new());
    for condition in FieldCursor::object(object).at("status").at("conditions").items() {
        let (condition_type, status) = (condition.at("type"), condition.at("status"));
        let kind = condition_type.text();
        if kind.is_empty() {
            condition_type.required("", errors);
        }
        let is_terminal = TERMINAL_CONDITIONS.contains(&kind);
        status.one_of(if is_terminal { &["True"] } else { &["False", "True", "Unknown"] }, errors);
        if matches!(kind, "Approved" | "Denied") && decisions.insert(kind) && decisions.len() > 1 {
            condition_type.invalid("Approved and Denied conditions are mutually exclusive", errors);
        }
        if !seen.insert(kind) {
            condition_type.duplicate(errors);
        }
    }
}

/// Validates that terminal conditions are not removed (`validateCertificateSigningRequestUpdate`).
pub(super) fn validate_conditions_not_removed(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("status").child("conditions");
    for kind in TERMINAL_CONDITIONS {
        if conditions_of_type(object, kind).len() < conditions_of_type(old, kind).len() {
            errors.forbidden(&path, &format!("updates may not remove a condition of type {kind:?}"));
        }
    }
}

/// Validates an update of the status by a signer, which must not approve or deny, or replace a certificate.
pub(super) fn validate_signer_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("status");
    for kind in ["Approved", "Denied"] {
        if conditions_of_type(object, kind).len() > conditions_of_type(old, kind).len() {
            let detail = format!("updates may not add a condition of type {kind:?}");
            errors.forbidden(&path.child("conditions"), &detail);
        }
    }
    let (new, before) = (text_of(&object["status"], "certificate"), text_of(&old["status"], "certificate"));
    if new == before {
        return;
    }
    if let Err(error) = validate_certificates(&STANDARD.decode(new).unwrap_or_default()) {
        errors.invalid(&path.child("certificate"), &json!("<certificate data>"), &error.to_string());
    }
    if !before.is_empty() {
        errors.forbidden(&path.child("certificate"), "updates may not modify existing certificate content");
    }
}

/// Invalid `status.certificate`, with upstream's message.
#[derive(Debug, thiserror::Error)]
enum IssuedCertificateError {
    #[error("only CERTIFICATE PEM blocks are allowed, found {0:?}")]
    PemBlock(String),
    #[error("x509: malformed certificate")]
    Malformed,
    #[error("must contain at least one CERTIFICATE PEM block")]
    Empty,
}

/// Validates optional PEM certificates (`validateCertificate`).
fn validate_certificates(text: &[u8]) -> Result<(), IssuedCertificateError> {
    let mut blocks = 0;
    for block in Pem::iter_from_buffer(text).map_while(Result::ok) {
        if block.label != "CERTIFICATE" {
            return Err(IssuedCertificateError::PemBlock(block.label));
        }
        block.parse_x509().map_err(|_| IssuedCertificateError::Malformed)?;
        blocks += 1;
    }
    if blocks == 0 && !text.is_empty() {
        return Err(IssuedCertificateError::Empty);
    }
    Ok(())
}
